// Package phrase has the sentences that people read about limits, decisions and outcomes.
// Every sentence with a number says which limit it is held against, who enforces that, and
// where it was read.
package phrase

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Against says who compares what with a limit, in parentheses behind a number.
func Against(l *event.Limit) string {
	who, _, _ := strings.Cut(l.Enforcer, ",") // "slurmstepd, by OverMemoryKill"
	if who == "" {
		who = "nothing"
	}
	text := who + " acts on "
	if l.Name.Row().Kills {
		text = who + " kills on "
	}
	if acts := l.Name.Row().Acts; acts != "" {
		text = acts
	}
	if l.ByJobSum() {
		text = who + " cancels the job on "
	}
	text += l.Compared()
	if l.Accounting == event.AccountingPSS && l.UsedMax > l.Used {
		text += fmt.Sprintf(", at most %v", l.UsedMax)
		if l.Age >= 1 {
			text += fmt.Sprintf(", read up to %.0f s ago", l.Age)
		}
	}
	if l.LimitSource != "" {
		text += "; limit from " + l.Place()
	}
	return "(" + text + ")"
}

// Memory is the front of every line about a limit: "memory 91 % of 3.00 GiB
// (slurmstepd kills on summed RSS; limit from RLIMIT_RSS)".
func Memory(l *event.Limit) string {
	if !l.Name.Memory() {
		return Side(l)
	}
	of := ""
	if l.Name == event.LimitSlurm && l.Level != "" {
		of = " of step " + l.Level
	}
	return fmt.Sprintf("memory %s of %v%s %s", text.Percent(l.Ratio()), l.Limit, of, Against(l))
}

// Occasion is the front of every line about a decision: l is the limit it is
// about, which the job's end is not read as.
func Occasion(d *event.Decision, l *event.Limit) string {
	switch {
	case d.Limit == event.LimitTime && d.ETA != nil:
		return "the job's time ends in " + text.About(*d.ETA)
	case l == nil:
		l = &event.Limit{Name: d.Limit, Used: d.Used, Limit: d.LimitSize}
	}
	return Memory(l)
}

// Processes names processes: "process 12", "processes 12, 13 and 14".
func Processes(list []*rss.Proc) string {
	if len(list) == 0 {
		return "no process"
	}
	pids := make([]int, len(list))
	for i, p := range list {
		pids[i] = p.ID.PID
	}
	return text.Named("process", pids)
}

// Coming says that a rung was met before its time, as what is counted comes fast: at this
// rate the limit is full within that time.
func Coming(d *event.Decision, within time.Duration) string {
	if d.Lead == 0 || !d.Limit.Counts() {
		return ""
	}
	return fmt.Sprintf("; at this rate full within %.0f s", within.Seconds())
}

// Forecast says when a limit will be reached, as a range, or at what growth flattens
// before.
func Forecast(d *event.Decision) string {
	switch {
	case d.Limit == event.LimitTime:
		return ""
	case d.Flattens > 0:
		return "; flattens " + At(d.Limit, d.Flattens)
	case d.ETA == nil:
		return ""
	}
	return "; at this rate full in " + text.About(*d.ETA) + Range(d.ETALow, d.ETAHigh)
}

// At says at what growth flattens.
func At(l event.LimitName, level rss.Bytes) string {
	return "at about " + l.Amount(level) + ", below the limit"
}

// Range is the range of a forecast, in parentheses behind it; empty without one.
func Range(low, high *float64) string {
	switch {
	case low == nil:
		return ""
	case high == nil:
		return " (at least " + text.About(*low) + "; it may flatten before)"
	}
	return " (" + text.About(*low) + " to " + text.About(*high) + ")"
}

// Watching is the first line: what is watched, and the limit that leaves the
// least room. Which one is nearest in proportion means nothing before the
// command has grown.
func Watching(command []string, pid int, limits []event.Limit) string {
	return fmt.Sprintf("watching %s (process %d): %s", text.Command(command, 60), pid, Room(limits))
}

// WatchingJob is the first line of an attach to a job, of which steps names those here.
func WatchingJob(job, steps string, processes int, limits []event.Limit) string {
	return fmt.Sprintf("watching job %s on this node (%s; processes now: %d): %s", job, steps, processes, Room(limits))
}

// AttachEnded is the front of the last line of an attach to a job, or to a process where
// that is empty.
func AttachEnded(pid int, job string, ended, stopped bool, watched time.Duration) string {
	what := fmt.Sprintf("process %d", pid)
	if job != "" {
		what = "job " + job
	}
	end := " has ended, its parent knows how"
	switch {
	case !ended:
		end = " runs on, unwatched"
	case stopped:
		end = " was stopped by rsswarden"
	case job != "":
		end = " has no process left on this node"
	}
	return what + end + "; watched for " + text.Span(watched)
}

// Nested says that two runs watch one command, and which does what. loaders says whether
// this one talks to loaders.
func Nested(outer int, loaders bool) string {
	line := fmt.Sprintf("this run is within rsswarden run %d: both watch the command, and each acts by its own rules", outer)
	if loaders {
		line += "; its PyTorch loaders answer to this one alone"
	}
	return line + "; one is enough: leave one out, or set RSSWARDEN=off for this one"
}

// SrunInside says that the tasks of a srun within the command are not watched.
func SrunInside(pid int) string {
	return fmt.Sprintf("process %d is srun: Slurm starts its tasks beside this run, which does not see their processes; "+
		"turn the two round: srun [OPTIONS] rsswarden run -- COMMAND", pid)
}

// Room names the limit that leaves the least room.
func Room(limits []event.Limit) string {
	var least *event.Limit
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 || l.Name == event.LimitThrottle || !l.Name.Memory() || least != nil && least.Headroom() <= l.Headroom() {
			continue
		}
		least = l
	}
	if least == nil {
		return "nothing here limits its memory"
	}
	return fmt.Sprintf("%v may be used, %s are %s", least.Limit, text.Percent(least.Ratio()), Against(least))
}

// NoExec warns that signals of Slurm will not arrive: slurmstepd sends them to
// its own child, which is a shell that waits for us.
func NoExec(job slurm.Job, ok bool, parent string) string {
	// A parent that cannot be read may be slurmstepd.
	if !ok || job.StepID != slurm.StepBatch || parent == "" || strings.HasPrefix(parent, "slurmstepd") {
		return ""
	}
	return "the batch script stands between Slurm and rsswarden: signals (scancel, --signal, the time limit's TERM) will not arrive; " +
		"write `exec rsswarden run -- …` as its last line, or `srun rsswarden run -- …`"
}

// Outcome says the outcome of an action: "recycled worker 4711, freed 612 MiB,
// trainer paused 7 ms".
func Outcome(d *event.Decision, o *event.Outcome) string {
	name := string(d.Action)
	if d.Arg != "" {
		name += "=" + text.Cut(text.Plain(d.Arg), 40)
	}
	if o.Reason == event.ReasonDryRun {
		return "would " + name + " (dry run)"
	}
	row := d.Action.Row()
	if o.OK && o.Detail != "" && row.DidTo != nil {
		return row.DidTo(name, d.Arg, o.Detail)
	}
	line := row.Did
	if o.Stopped > 0 {
		line = strings.Replace(line, "workers", "processes", 1)
	}
	if d.Action == event.ActionStop && o.Detail != "" {
		line = "stopped " + o.Detail
	}
	if !o.OK {
		line = name
	}
	if o.PID != 0 && d.Action != event.ActionExec {
		line += fmt.Sprintf(" %d", o.PID)
	}
	if o.Reason == event.ReasonDeferred {
		return line + ": " + string(o.Reason)
	}
	if !o.OK {
		why := string(o.Reason)
		if d.Action == event.ActionExec && o.Reason == event.ReasonVanished && o.Detail != "" {
			why = "" // of what is watched: the detail says so
		}
		if why != "" && o.Detail != "" {
			why += ", "
		}
		return line + " did not work: " + why + o.Detail
	}
	line += fmt.Sprintf(", freed %v", o.Freed)
	if o.Paused > 0 {
		line += ", trainer paused " + text.Span(time.Duration(o.Paused*float64(time.Second)))
	}
	if o.Stopped > 0 {
		line += fmt.Sprintf(", each stopped for %.1f ms at a time at most", o.Stopped*1e3)
	}
	return line
}

// Side is the front of every line about a limit that is none on summed memory, but on
// numbers of things, one process or /dev/shm: "memory mappings 81 % of
// 65,530, in process 4711 (trainer) (kernel, by ENOMEM of mmap; limit from
// vm.max_map_count)".
func Side(l *event.Limit) string {
	line := fmt.Sprintf("%s %s of %s", l.Name.Thing(), text.Percent(l.Ratio()), l.Name.Amount(l.Limit))
	switch l.Scope {
	case event.ScopeNode:
		line += ", of all users of the node"
	case event.ScopeUser:
		line += ", of all your processes on the node"
	}
	if l.PID != 0 {
		line += fmt.Sprintf(", in process %d", l.PID)
		if l.Role != "" && l.Role != rss.RoleOther {
			line += " (" + string(l.Role) + ")"
		}
	}
	who := l.Enforcer
	if l.LimitSource != "" {
		who += "; limit from " + l.Place()
	}
	if l.Age >= 1 {
		read := "counted"
		if !l.Name.Counts() {
			read = "read"
		}
		who += fmt.Sprintf("; %s %.0f s ago", read, l.Age)
	}
	return line + " (" + who + ")"
}

// Sharing says what is about to happen, and what to write instead.
func Sharing(pid int, s *event.Sharing) string {
	more := ""
	if s.More {
		more = " or more"
	}
	line := fmt.Sprintf("a DataLoader in process %d sends %s%s tensors to workers started by %s, each by itself in shared memory (sharing strategy %s)",
		pid, text.Digits(uint64(s.Tensors)), more, s.Method, s.Strategy)
	for _, need := range sharingNeeds(s) {
		line += "; " + need
	}
	return line + `: set_start_method("fork") before CUDA is used, or multiprocessing_context="fork" of the DataLoader, or one large tensor or numpy array in the place of the list`
}

// sharingNeeds tells of each limit that is ahead how much of it will be needed.
func sharingNeeds(s *event.Sharing) (needs []string) {
	more := ""
	if s.More {
		more = "at least "
	}
	if s.MaxMaps > 0 && 2*s.Maps >= s.MaxMaps {
		needs = append(needs, fmt.Sprintf("that takes %s%s memory mappings of the %s that vm.max_map_count allows", more, text.Digits(uint64(s.Maps)), text.Digits(uint64(s.MaxMaps))))
	}
	if s.MaxFDs > 0 && 2*s.FDs >= s.MaxFDs {
		line := fmt.Sprintf("that takes %s%s descriptors of the %s that ulimit -n allows", more, text.Digits(uint64(s.FDs)), text.Digits(uint64(s.MaxFDs)))
		if s.FDs > s.MaxFDs && s.HardFDs >= s.FDs {
			line += fmt.Sprintf(" (--nofile %d raises that)", s.FDs)
		}
		needs = append(needs, line)
	}
	if s.MaxSent > 0 && 2*s.Sent >= s.MaxSent {
		needs = append(needs, fmt.Sprintf("that sends %s%s descriptors to the fork server at once, which takes %s", more, text.Digits(uint64(s.Sent)), text.Digits(uint64(s.MaxSent))))
	}
	return needs
}

// Finding words a finding: what it is, what speaks for it, what to change.
func Finding(f *event.Diagnosis) string {
	line := string(f.Finding)
	if f.Confidence != event.Certain {
		line += ", " + string(f.Confidence)
	}
	if len(f.Evidence) > 0 {
		line += ": " + strings.Join(f.Evidence[:min(len(f.Evidence), mostWords)], "; ")
	}
	if len(f.Advice) > 0 {
		line += "; do: " + strings.Join(f.Advice[:min(len(f.Advice), mostWords)], "; or: ")
	}
	return line
}

// mostWords is how much of the evidence and of the advice a line has. The event
// has all.
const mostWords = 2

// Found names a finding: "copy-on-write, likely: 420 MiB in worker".
func Found(f event.Finding, c event.Confidence, size rss.Bytes, role rss.Role) string {
	line := fmt.Sprintf("%s, %s", f, c)
	if size > 0 {
		line += fmt.Sprintf(": %v", size)
		if role != "" && !strings.Contains(string(f), string(role)) {
			line += " in " + string(role)
		}
	}
	return text.Plain(line)
}

// Fill is what is used of a limit, with its share: "2996 of 3000 MiB (99.8 %)".
func Fill(n event.LimitName, used, size rss.Bytes) string {
	return fmt.Sprintf("%s (%s)", Use(n, used, size), text.Percent(used.Of(size)))
}
