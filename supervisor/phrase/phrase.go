// Package phrase has the sentences that people read about limits, decisions and outcomes.
// A line of the live log says one fact in 60 columns; who enforces a limit stands in the
// line that introduces it.
package phrase

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Source says where a limit comes from, what counts in it, and who kills at it:
// "--limit, summed RSS", "cgroup, the kernel kills at it".
func Source(l *event.Limit) string {
	switch l.Name {
	case event.LimitUser:
		return "--limit, " + l.Compared()
	case event.LimitCgroup:
		return "cgroup, the kernel kills at it"
	case event.LimitNode:
		return "node, the kernel kills at it"
	case event.LimitThrottle:
		return "memory.high, the kernel slows the job at it"
	case event.LimitSlurm:
		does := "kills at "
		if l.ByJobSum() {
			does = "cancels the job at "
		}
		return "slurm, Slurm " + does + l.Compared()
	}
	return l.Place() + ", " + l.Enforcer
}

// Introduce is the line about a limit that has its source: "limit 900 MiB, 1 % used:
// --limit, summed RSS".
func Introduce(l *event.Limit) string {
	return fmt.Sprintf("limit %s, %s used: %s", l.Limit.Typed(), Percent(l), Source(l))
}

// Percent is how full a limit is: "84 %", or "84 to 91 %" where PSS was not read just now.
func Percent(l *event.Limit) string {
	least := text.Percent(l.Ratio())
	if most := text.Percent(l.UsedMax.Of(l.Limit)); l.Accounting == event.AccountingPSS && l.UsedMax > l.Used && most != least {
		return strings.TrimSuffix(least, " %") + " to " + most
	}
	return least
}

// Size is a limit as a user types it: "1100 MiB", "65,530".
func Size(l *event.Limit) string {
	if l.Name.Counts() {
		return l.Name.Amount(l.Limit)
	}
	return l.Limit.Typed()
}

// Share is the front of a line about a limit: "84 %", with the name of the limit where
// another was introduced first.
func Share(l *event.Limit, named bool) string {
	switch {
	case !l.Name.Memory():
		return l.Name.Thing() + " " + Percent(l)
	case l.Name == event.LimitSlurm && l.Level != "":
		return "slurm step " + l.Level + " " + Percent(l)
	case named:
		return l.Name.Called() + " " + Percent(l)
	}
	return Percent(l)
}

// Near says that a limit is near: "84 % of 360 MiB", "memory mappings 81 % of 65,530 in
// trainer 4711".
func Near(l *event.Limit, named bool) string {
	line := Share(l, named) + " of " + Size(l)
	switch {
	case l.PID != 0 && l.Role != "" && l.Role != rss.RoleOther:
		line += fmt.Sprintf(" in %s %d", l.Role, l.PID)
	case l.PID != 0:
		line += fmt.Sprintf(" in process %d", l.PID)
	case l.Scope == event.ScopeNode && !l.Name.Memory():
		line += " of the node"
	case l.Scope == event.ScopeUser:
		line += ", all your processes on the node"
	}
	return line
}

// Occasion is what a decision is about, for who sees no other line: "memory 91 % of 1100 MiB
// (--limit, summed RSS)". l is the limit, which the job's end is not read as.
func Occasion(d *event.Decision, l *event.Limit) string {
	switch {
	case d.Limit == event.LimitTime && d.ETA != nil:
		return JobEnds(*d.ETA)
	case l == nil:
		l = &event.Limit{Name: d.Limit, Used: d.Used, Limit: d.LimitSize}
	}
	front := ""
	if l.Name.Memory() {
		front = "memory "
	}
	return front + Near(l, false) + " (" + Source(l) + ")"
}

// JobEnds says when Slurm ends the job.
func JobEnds(seconds float64) string { return "the job's time ends in " + text.About(seconds) }

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
	return fmt.Sprintf(", full within %.0f s", within.Seconds())
}

// Leap says why a rule fired before its rung: a spike as was seen before would leap over it.
func Leap(d *event.Decision) string {
	switch {
	case d.Spike == nil:
		return ""
	case d.Spike.PID == 0:
		return ", spikes by " + Roughly(d.Spike.Bytes)
	}
	return fmt.Sprintf(", %s %d spikes by %s", d.Spike.Role, d.Spike.PID, Roughly(d.Spike.Bytes))
}

// Forecast says when a limit will be reached, as a range, or at what growth flattens
// before.
func Forecast(d *event.Decision) string {
	switch {
	case d.Limit == event.LimitTime:
		return ""
	case d.Flattens > 0:
		return ", flattens at about " + d.Limit.Amount(d.Flattens) + ", below the limit"
	case d.ETA == nil:
		return ""
	}
	return ", full in " + text.About(*d.ETA) + Range(d.ETALow, d.ETAHigh)
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

// width is the columns of a line behind "rsswarden: 15:04:05 ", so that it has 80.
const width = 60

// Watching is the first line: what is watched.
func Watching(command []string, pid int) string {
	who := fmt.Sprintf(" (%d)", pid)
	return "watching " + text.Command(command, width-len("watching ")-len(who)) + who
}

// WatchingJob is the first line of an attach to a job, of which steps names those here.
func WatchingJob(job, steps string, processes int) string {
	return fmt.Sprintf("watching job %s here: %s, %s", job, steps, text.Count(processes, "process"))
}

// Room introduces the limit that leaves the least room. Which one is nearest in proportion
// means nothing before the command has grown.
func Room(limits []event.Limit) (line string, of event.LimitID) {
	var least *event.Limit
	ofJob := false
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 || l.Name == event.LimitThrottle || !l.Name.Memory() {
			continue
		}
		ofJob = ofJob || l.Name != event.LimitNode
		if least == nil || l.Headroom() < least.Headroom() {
			least = l
		}
	}
	switch {
	case least == nil:
		return "no memory limit found", of
	case !ofJob:
		return fmt.Sprintf("no job limit found; node %s, %s used", least.Limit.Typed(), Percent(least)), least.ID()
	}
	return Introduce(least), least.ID()
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

// TaskEnded is the front of the last lines about a task of Slurm's that was watched from beside.
func TaskEnded(stopped bool, watched time.Duration) string {
	if stopped {
		return "task stopped by rsswarden after " + text.Span(watched)
	}
	return "task ended, Slurm has its exit status; watched for " + text.Span(watched)
}

// Nested says that two runs watch one command. loaders says whether this one talks to
// loaders.
func Nested(outer int, loaders bool) string {
	line := fmt.Sprintf("rsswarden run %d watches this command too; each acts by its own rules", outer)
	if loaders {
		line += ", workers obey this one"
	}
	return line + "; RSSWARDEN=off turns this one off"
}

// SrunInside says that the tasks of a srun within the command are not watched.
func SrunInside(pid int) string {
	return fmt.Sprintf("process %d is srun: its tasks are not watched; write srun [OPTIONS] rsswarden run -- COMMAND", pid)
}

// NoExec warns that signals of Slurm will not arrive: slurmstepd sends them to
// its own child, which is a shell that waits for us.
func NoExec(job slurm.Job, ok bool, parent string) string {
	// A parent that cannot be read may be slurmstepd.
	if !ok || job.StepID != slurm.StepBatch || parent == "" || strings.HasPrefix(parent, "slurmstepd") {
		return ""
	}
	return "signals from Slurm (scancel, --signal, time limit) stop at the batch script; write exec rsswarden run -- COMMAND as its last line"
}

// Outcome says the outcome of an action on so many processes, 0 where that is not known:
// "recycled worker 4711, freed 612 MiB, paused 0.01 s".
func Outcome(d *event.Decision, o *event.Outcome, procs int) string {
	name := string(d.Action)
	if d.Arg != "" {
		name += "=" + text.Cut(text.Plain(d.Arg), 40)
	}
	row := d.Action.Row()
	worker := ""
	if o.PID != 0 && row.Single {
		worker = fmt.Sprintf(" worker %d", o.PID)
	}
	switch {
	case o.Reason == event.ReasonDryRun:
		return "would " + name + worker + " (dry run)"
	case o.OK && o.Detail != "" && row.DidTo != nil:
		return row.DidTo(name, d.Arg, o.Detail)
	case o.Reason.PutOff():
		return name + worker + ": " + o.Reason.Says()
	case !o.OK:
		why := o.Reason.With(o.Detail)
		if d.Action == event.ActionExec && o.Reason == event.ReasonVanished && o.Detail != "" {
			why = o.Detail // what is watched has ended, it says
		}
		return name + strings.Replace(worker, " ", " of ", 1) + " failed: " + why
	case d.Action == event.ActionStop && o.Detail != "":
		return "stopped " + o.Detail
	}
	line := row.Did
	if worker != "" {
		line = "recycled" + worker
	}
	if row.Trims && procs > 0 {
		who := "worker"
		if o.Stopped > 0 {
			who = "process"
		}
		line = "trimmed " + text.Count(procs, who)
	}
	if !d.Action.Frees() {
		return line
	}
	if d.Lead > 0 {
		line += " early"
	}
	if line += ", freed " + freed(o.Freed); o.Paused > 0 {
		line += fmt.Sprintf(", paused %.2f s", o.Paused)
	}
	if o.Stopped > 0 {
		line += fmt.Sprintf(", each stopped for %.1f ms", o.Stopped*1e3)
	}
	return line
}

// Revived says that a dead worker was replaced: "worker 4711 died (SIGKILL), another does its
// 2 unfinished batches again".
func Revived(s *event.LoaderSaid) string {
	return fmt.Sprintf("worker %d died (%s), another does its %s again", s.Worker, text.Plain(s.Reason), text.Count(s.Count, "unfinished batch"))
}

func freed(b rss.Bytes) string {
	if b == 0 {
		return "nothing"
	}
	return Roughly(b)
}

// Rising is how fast a limit fills: ", +300 MiB/s", empty below 1 MiB/s.
func Rising(perSecond float64) string {
	if perSecond < float64(rss.MiB) {
		return ""
	}
	return ", +" + Rate(rss.Bytes(perSecond))
}

// SkippedRule says that a rule was crossed when its action could not help: "trim skipped: no
// DataLoader or pool workers found".
func SkippedRule(r *event.Rule, of event.LimitName, reason event.Reason, detail string) string {
	line := r.Action.Skipped(r.Arg)
	if of.Thing() != "" {
		line += " for " + of.Thing()
	}
	return line + ": " + reason.With(detail)
}

// Sharing says what is about to happen, and what to write instead.
func Sharing(pid int, s *event.Sharing) string {
	more := ""
	if s.More {
		more = " or more"
	}
	line := fmt.Sprintf("a DataLoader in process %d sends %s%s tensors to workers by %s (%s)",
		pid, text.Digits(uint64(s.Tensors)), more, s.Method, s.Strategy)
	for _, need := range sharingNeeds(s) {
		line += "; " + need
	}
	return line + `; use set_start_method("fork"), or one large tensor`
}

// sharingNeeds tells of each limit that is ahead how much of it will be needed.
func sharingNeeds(s *event.Sharing) (needs []string) {
	more := ""
	if s.More {
		more = "at least "
	}
	if s.MaxMaps > 0 && 2*s.Maps >= s.MaxMaps {
		needs = append(needs, fmt.Sprintf("needs %s%s memory mappings of the %s in vm.max_map_count", more, text.Digits(uint64(s.Maps)), text.Digits(uint64(s.MaxMaps))))
	}
	if s.MaxFDs > 0 && 2*s.FDs >= s.MaxFDs {
		line := fmt.Sprintf("needs %s%s descriptors of the %s in ulimit -n", more, text.Digits(uint64(s.FDs)), text.Digits(uint64(s.MaxFDs)))
		if s.FDs > s.MaxFDs && s.HardFDs >= s.FDs {
			line += fmt.Sprintf(" (--nofile %d)", s.FDs)
		}
		needs = append(needs, line)
	}
	if s.MaxSent > 0 && 2*s.Sent >= s.MaxSent {
		needs = append(needs, fmt.Sprintf("sends %s%s descriptors to the fork server, which takes %s", more, text.Digits(uint64(s.Sent)), text.Digits(uint64(s.MaxSent))))
	}
	return needs
}

// Growth is the line about why memory grows: "growth: mapped file demo.lmdb, +61 MiB/s in
// 4 workers".
func Growth(d *event.Diagnosis) string {
	line := "growth: "
	if d.Confidence != event.Certain {
		line += string(d.Confidence) + " "
	}
	what := string(d.Finding)
	mapped := d.Finding == event.FindingMapped || d.Finding == event.FindingArrow
	switch {
	case mapped && d.File != "":
		what += " " + text.Middle(text.Plain(dataName(d.File)), 24)
	case d.Finding == event.FindingMapped:
		what += " pages"
	}
	line += what
	switch rate := Rising(d.Rate); {
	case rate != "":
		line += rate
	case mapped:
	case d.Bytes > 0:
		line += ", " + freed(d.Bytes)
	}
	switch {
	case d.Role == "" || d.Procs == 0:
	case strings.Contains(string(d.Finding), string(d.Role)) && d.Procs == 1:
	default:
		line += " in " + text.Count(d.Procs, string(d.Role))
	}
	if d.Finding == event.FindingMapped && d.Rate == 0 { // known by what trims gave back
		line += "; trims give them back"
	}
	return line
}

// dataName is what a user calls a data file: an LMDB database may be a directory.
func dataName(file string) string {
	if path.Base(file) == "data.mdb" {
		file = path.Dir(file)
	}
	return path.Base(file)
}

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

// Use is what is used of a limit: "1034 of 1100 MiB", "900 of 1,024"; see [rss.UsedOf].
func Use(n event.LimitName, used, limit rss.Bytes) string {
	if n.Counts() {
		return n.Amount(used) + " of " + n.Amount(limit)
	}
	return rss.UsedOf(used, limit)
}

// Rate is bytes a second: "66 MiB/s".
func Rate(perSecond rss.Bytes) string { return Roughly(perSecond) + "/s" }

// Roughly is an estimate, or a sum that needs no more digits: "66 MiB", "3.5 GiB".
func Roughly(b rss.Bytes) string {
	unit, name := rss.MiB, "MiB"
	switch {
	case b >= rss.GiB:
		unit, name = rss.GiB, "GiB"
	case b < rss.MiB:
		unit, name = rss.KiB, "KiB"
	}
	v := float64(b) / float64(unit)
	if v < 9.95 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + name
	}
	return fmt.Sprintf("%.0f %s", v, name)
}

// Skipped says which actions could not help, and why: "trim and recycle skipped: no DataLoader or
// pool workers found", "skipped: trim (no help for this limit), recycle (no workers)".
func Skipped(s *event.Saved) string {
	var whys []string
	by := map[string][]string{} // actions by why
	brief := map[string]string{}
	for i := range s.Actions {
		a := &s.Actions[i]
		if a.Worked > 0 || len(a.Reasons) == 0 || a.Action == event.ActionWarn {
			continue
		}
		most := event.Reason("")
		for r, n := range a.Reasons {
			if m := a.Reasons[most]; n > m || n == m && r < most {
				most = r
			}
		}
		why := a.Action.Why(most)
		if by[why] == nil {
			whys = append(whys, why)
			brief[why] = most.Brief()
		}
		by[why] = append(by[why], string(a.Action))
	}
	if len(whys) == 1 {
		return text.List(by[whys[0]], text.All) + " skipped: " + whys[0]
	}
	for i, why := range whys {
		whys[i] = fmt.Sprintf("%s (%s)", text.List(by[why], text.All), brief[why])
	}
	if len(whys) == 0 {
		return ""
	}
	return "skipped: " + strings.Join(whys, ", ")
}
