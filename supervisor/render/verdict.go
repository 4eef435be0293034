package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// caseText writes what was found of one end.
type caseText struct {
	*analysis.Case
	zone *time.Location
	now  time.Time
}

// sentence is why the run ended, without a full stop; "probably" where it was not seen.
// What is unknown needs none.
func (q *caseText) sentence(f *analysis.Ending) string {
	text := q.ending(f)
	switch f.Slurm {
	case analysis.SlurmConfirms:
		text += "; " + q.word()
	case analysis.SlurmState:
		text += "; Slurm says the job is " + values.Plain(q.Said.State)
	case analysis.SlurmStepKill:
		text += ", and may have grown since; " + q.word()
	case analysis.SlurmYet:
		text += "; yet " + q.word()
	case analysis.SlurmOverrules:
		if f.Overruled != nil {
			text += "; the record alone would say: " + q.sentence(f.Overruled)
		}
	}
	if f.Certainty == analysis.Inferred && f.Cause != event.CauseUnknown {
		return "most likely " + text
	}
	return text
}

func (q *caseText) ending(f *analysis.Ending) string {
	switch b, d, died := f.Near, q.Death(), howDied(q.Death()); f.Kind {
	case analysis.EndRunning:
		return q.running()
	case analysis.EndFine:
		text := "ended with exit status 0 " + q.after()
		if b, ok := q.Highest(); ok {
			used, size := b.Max.Used, b.Max.Size
			if l := q.PeakOf(analysis.KeyOf(b.Limit)); l != nil {
				used, size = l.Used, l.Limit
			}
			return text + fmt.Sprintf("; nearest limit: %s at %s", b.Name.Called(), phrase.Fill(b.Name, used, size))
		}
		return text + "; no limit on memory is in the record"
	case analysis.EndDetached:
		return fmt.Sprintf("the watch ended at %s %s, what was watched ran on", q.clock(q.End), q.after())
	case analysis.EndHandedOver:
		h := q.Handing
		return fmt.Sprintf("the record ends at %s, where its watcher was gone; the watcher of %s went on from %s",
			q.clock(q.End), h.Next.Ranks.List[0].RankKey.String(), q.clockOf(h.At))
	case analysis.EndStopped:
		text := q.byRule("stopped by rsswarden", event.ActionStop)
		if q.Exit.Code != nil {
			text += fmt.Sprintf("; exit status %d", *q.Exit.Code)
		}
		return text
	case analysis.EndRequeued:
		text := q.byRule("put back into the queue by rsswarden", event.ActionRequeue)
		if e := q.Exit; e != nil && e.Outcome == event.RunRequeued && e.Next.Size > 0 {
			text += fmt.Sprintf("; it starts again with %v on each node", e.Next.Size)
		}
		return text
	case analysis.EndKernelKill:
		return q.kernelKill(f)
	case analysis.EndCgroupFull:
		text := "killed by the kernel: " + q.kernelText(b)
		switch {
		case q.Rank != nil:
			// The record counts the kills of its own rank, and of all of the job where
			// the kernel does.
		case d.Seen:
			text += ", though no OOM kill was counted"
		default:
			text += "; the watcher was killed as well, as memory.oom.group does"
		}
		return text
	case analysis.EndNodeFull:
		text := "killed by the kernel: " + q.nodeText(b)
		if d.Seen {
			text += ", though no OOM kill of this run was counted"
		}
		return text
	case analysis.EndStepKill:
		return q.stepKill(b)
	case analysis.EndJobKill:
		text := q.jobKill(b) + fmt.Sprintf("; SIGTERM reached it at %s from %s", q.clock(f.Signal.At), values.Plain(f.Signal.Comm))
		if d.Seen {
			text += "; it ended with " + died
		}
		return text
	case analysis.EndJobKillUnseen:
		return q.jobKill(b) + "; no SIGTERM came here, as where rsswarden was not started with exec"
	case analysis.EndAsked:
		return q.asked(f)
	case analysis.EndAskedDirectly:
		return fmt.Sprintf("asked to end from outside: %s %s, sent to the command and not to rsswarden", died, q.after())
	case analysis.EndTimeLimit:
		return q.timeLimitText()
	case analysis.EndSIGKILL:
		if d.Signal == "" {
			return fmt.Sprintf("ended with status %d at %s, as a shell does when a process inside it was killed; the kernel counted no OOM kill; %s", d.Code, q.clock(q.End), q.nearestText())
		}
		return fmt.Sprintf("killed by an external SIGKILL (%s) at %s; the kernel counted no OOM kill; %s", died, q.clock(q.End), q.nearestText())
	case analysis.EndSIGKILLSlurm:
		return fmt.Sprintf("killed by SIGKILL, watcher and all, at or after %s; %s; %s", q.clock(q.End), q.word(), q.nearestText())
	case analysis.EndCrash:
		return fmt.Sprintf("the command failed: %s %s; %s", died, q.after(), q.nearestText())
	case analysis.EndCrashSlurm:
		return fmt.Sprintf("the job failed after the record ends at %s; %s; %s", q.clock(q.End), q.word(), q.nearestText())
	case analysis.EndStepKillSlurm:
		return fmt.Sprintf("killed by slurmstepd (OverMemoryKill): Slurm saw %v (MaxRSS) where %s was asked for; the record ends at %s and does not show it",
			rss.Bytes(q.Step.MaxRSS), askedFor(q.Said), q.clock(q.End))
	case analysis.EndHolderKilled:
		return fmt.Sprintf("an external SIGKILL ended rsswarden's holder at %s, and the watch with it: whether the command was killed too or ran on unwatched is not in the record; %s", q.clock(q.End), q.nearestText())
	case analysis.EndAbrupt:
		how := ""
		if q.Run.Meta.Job != nil {
			how = " (as by scancel where rsswarden was not started with exec)"
		}
		return fmt.Sprintf("the record ends abruptly at %s: everything was killed at once%s, or rsswarden's watcher alone, or the node failed; %s",
			q.clock(q.End), how, q.nearestText())
	case analysis.EndSHM:
		return fmt.Sprintf("/dev/shm was full: %s was used %s; the command ended with %s", phrase.Use(b.Name, b.Used, b.Limit.Limit), q.when(b.At), died)
	case analysis.EndCount:
		return q.countText(f)
	case analysis.EndUsedUp:
		return q.usedUp(f)
	case analysis.EndSending:
		what := "memory mappings"
		if f.Cause == event.CauseFDs {
			what = "descriptors"
		}
		return fmt.Sprintf("out of %s %s: %s; the command ended with %s", what, q.when(q.Sharing.At), values.Plain(phrase.Sharing(q.Sharing.PID, q.Sharing.Sharing)), died)
	}
	return q.slurmText(f)
}

// byRule names the rule that ended the run.
func (q *caseText) byRule(who string, a event.Action) string {
	if d := q.Actions.Last; d != nil && d.Action == a {
		return fmt.Sprintf("%s's rule %s %s: %s was at %s", who, values.Plain(d.Rule), q.after(), d.Limit.Called(), phrase.Fill(d.Limit, d.Used, d.LimitSize))
	}
	return who + " " + q.after()
}

func (q *caseText) running() string {
	text := fmt.Sprintf("still running %s after its start", values.Span(max(q.now.Sub(q.Run.Meta.Start), 0).Round(time.Second)))
	if b, ok := q.Highest(); ok {
		ago := values.Span(max(q.now.Sub(q.Wall(b.LastAt)), 0))
		text += fmt.Sprintf("; limit %s: %s, as recorded %s ago", b.Name.Called(), phrase.Fill(b.Name, b.Last.Used, b.Last.Size), ago)
	}
	return text
}

func (q *caseText) kernelKill(f *analysis.Ending) string {
	why := "no limit of a cgroup is in the record, so it is not known which was full"
	switch {
	case f.Cause == event.CauseNodeOOM:
		why = q.nodeText(f.Near)
	case f.Limit >= 0:
		why = q.kernelText(f.Near)
	}
	if q.Death().By("SIGKILL", 9) {
		return "killed by the kernel: " + why
	}
	victims := "one of its processes"
	if n := q.KernelKills(); n > 1 {
		victims = values.Digits(n) + " of its processes"
	}
	text := fmt.Sprintf("the kernel's OOM killer ended %s: %s; the command then ended with %s", victims, why, howDied(q.Death()))
	if q.Death().OK() && q.Run.Meta.Job != nil {
		text += ", but Slurm calls a job with such a kill OUT_OF_MEMORY"
	}
	return text
}

// kernelText is which cgroup was full: "cgroup /…/job_12 (the job's --mem,
// 3000M) was full: 2990 of 3000 MiB could not be reclaimed at 14:03:22,
// 0.4 s before".
func (q *caseText) kernelText(b analysis.LimitState) string {
	where := "cgroup " + q.level(b)
	held := fmt.Sprintf("%s could not be reclaimed %s", phrase.Use(b.Name, b.Used, b.Limit.Limit), q.when(b.At))
	switch {
	case b.Ratio() >= analysis.NearFull:
		return where + " was full: " + held
	case b.Rate > 0:
		return where + " filled up: " + held + q.grew(b)
	}
	return fmt.Sprintf("%s is the limit that was nearest, and %s (%s): it grew faster than it was sampled, or another limit was full", where, held, values.Percent(b.Ratio()))
}

// grew tells a rate that was carried on beyond the last reading.
func (q *caseText) grew(b analysis.LimitState) string {
	return fmt.Sprintf(", and grew by %v a second, at which it was full soon after", rss.Bytes(b.Rate))
}

// level names a cgroup and whose limit it is.
func (q *caseText) level(b analysis.LimitState) string {
	text := short(values.Plain(b.Level))
	size := b.Limit.Limit
	switch b.Scope {
	case event.ScopeJob, event.ScopeStep:
		what := "limit"
		if q.Said != nil && analysis.Requested(q.Said) == size {
			what = "--mem"
		}
		value := memArg(size)
		if value == "" {
			value = size.String()
		}
		return strings.TrimSpace(fmt.Sprintf("%s (the %s's %s, %s)", text, b.Scope, what, value))
	}
	return text
}

func (q *caseText) stepKill(b analysis.LimitState) string {
	what, _, _ := strings.Cut(b.Compared(), ",") // that it is the step's is shown in any case
	note := ""
	switch b.Accounting {
	case event.AccountingRSS:
		note = ", counting shared pages once for each process"
	case event.AccountingPSS:
		note = ", shared pages divided among those that map them"
	case event.AccountingVirtual:
		note = ", which VSizeFactor limits"
	}
	text := fmt.Sprintf("killed by %s: the %s of %s was %s %s%s", overMemory("slurmstepd", b), what, q.whose(b), phrase.Use(b.Name, b.Used, b.Limit.Limit), q.when(b.At), note)
	if b.Rate > 0 {
		text += q.grew(b)
	}
	return text
}

// overMemory is who kills by OverMemoryKill.
func overMemory(who string, b analysis.LimitState) string {
	if strings.Contains(b.Enforcer, "perhaps") {
		return who + ", which here may use OverMemoryKill"
	}
	return who + " (OverMemoryKill)"
}

// whose names the step or job that slurmstepd sums.
func (q *caseText) whose(b analysis.LimitState) string {
	if b.Level != "" {
		return "step " + values.Plain(b.Level)
	}
	if j := q.Run.Meta.Job; j != nil && j.Step != "" {
		return "step " + values.Plain(j.ID+"."+j.Step)
	}
	return "the step"
}

func (q *caseText) nodeText(b analysis.LimitState) string {
	text := fmt.Sprintf("the node had no memory left: %s was used (MemTotal less MemAvailable, everything on the node) %s",
		phrase.Use(b.Name, b.Used, b.Limit.Limit), q.when(b.At))
	if b.Ratio() < analysis.NearFull {
		text += q.grew(b)
	}
	return text
}

func (q *caseText) jobKill(b analysis.LimitState) string {
	text := fmt.Sprintf("cancelled by %s: the steps of the job on this node had %s together %s (%s)", overMemory("slurmd", b), phrase.Use(b.Name, b.Used, b.Limit.Limit), q.when(b.At), b.Compared())
	if b.Rate > 0 {
		text += q.grew(b)
	}
	return text
}

func (q *caseText) asked(f *analysis.Ending) string {
	s, d := f.Signal, q.Death()
	at := q.Wall(s.At)
	from := ""
	if s.Comm != "" {
		from = fmt.Sprintf(" from %s (process %d)", values.Plain(s.Comm), s.Sender)
	}
	told := fmt.Sprintf("%s reached it at %s%s", s.Signal.Signal, q.clock(s.At), from)
	then := "; it ended with " + howDied(d)
	if later := q.End - s.At; later >= 50*time.Millisecond {
		then += ", " + values.Span(later) + " later"
	} else {
		then += " at once"
	}
	if !d.Seen {
		then = fmt.Sprintf("; the record ends %s later, as SIGKILL for all of it does after KillWait", values.Span(q.End-s.At))
		if q.Run.JournalOnly && q.End-s.At < time.Second {
			then = "; the journal has nothing after it, as SIGKILL for all of it leaves it after KillWait"
		}
	}
	switch {
	case q.Run.Meta.Job == nil:
		return "asked to end: " + told + then
	case q.JobEnd.IsZero():
		return "cancelled, or ended at its time limit, the record does not know the job's end: " + told + then
	case at.Before(q.JobEnd.Add(-analysis.EndSlack)):
		return fmt.Sprintf("cancelled: %s, %s before the job's end%s", told, values.Span(q.JobEnd.Sub(at)), then)
	default:
		return fmt.Sprintf("ended by Slurm at the job's time limit: %s, the job's end was %s%s", told, q.clockOf(q.JobEnd), then)
	}
}

// timeLimitText is a SIGKILL at the job's end with no signal before it.
func (q *caseText) timeLimitText() string {
	d := q.Death()
	last := "the record goes on until " + q.clock(q.End)
	if d.Seen {
		last = "it ended with " + howDied(d) + " at " + q.clock(q.End)
	}
	if !d.Seen && !q.TimeUp() {
		last = "the last that the journal has is of " + q.clock(q.End) + " and it had nothing to tell for a while"
	}
	return fmt.Sprintf("ended by Slurm at the job's time limit: the job's end was %s, %s, and no SIGTERM came here before", q.clockOf(q.JobEnd), last)
}

// nearestText says how near the nearest limit was: that none was full is part of an
// answer, in the numbers of the headline. --limit kills nothing, and is named where it was nearest.
func (q *caseText) nearestText() string {
	b, ok := q.Fullest()
	user, own := q.Fullest(event.LimitUser)
	if ok && b.Name == event.LimitNode && b.Ratio() < event.NearShare {
		// Others fill it too: what is the job's own is nearer, as in the summary.
		if c, has := q.Fullest(event.LimitCgroup, event.LimitSlurm); has || own {
			b, ok = c, has
		}
	}
	if own && (!ok || user.Ratio() > b.Ratio()) && (!ok || b.Ratio() < analysis.MayBe) {
		b, ok = user, false
	}
	switch {
	case !ok && !own:
		return "no limit is in the record"
	case ok && b.Ratio() >= analysis.MayBe:
		return fmt.Sprintf("the nearest limit, %s, was %s: it may have been that", b.Name.Called(), q.describeUse(b))
	}
	use := q.describeUse(b)
	if e := q.Exit; e != nil && e.Binding != nil && e.Binding.ID() == b.ID() && e.Binding.Used > b.Used && e.Binding.Ratio() < analysis.MayBe {
		b.Used = e.Binding.Used
		use = "at " + phrase.Fill(b.Name, b.Used, b.Limit.Limit) + " at its highest"
	}
	switch {
	case b.Name == event.LimitUser && b.Ratio() > 1:
		return "no limit that kills was near; it went over --limit, which kills nothing"
	case b.Ratio() >= event.TightShare:
		return fmt.Sprintf("no limit was full: the nearest limit, %s, was %s", b.Name.Called(), use)
	}
	return fmt.Sprintf("no limit was near: the nearest limit, %s, was %s", b.Name.Called(), use)
}

func (q *caseText) describeUse(b analysis.LimitState) string {
	return fmt.Sprintf("at %s %s", phrase.Fill(b.Name, b.Used, b.Limit.Limit), q.when(b.At))
}

func (q *caseText) countText(f *analysis.Ending) string {
	c := f.Count
	what, where := "memory mappings", "vm.max_map_count"
	if f.Cause == event.CauseFDs {
		what, where = "descriptors", "RLIMIT_NOFILE"
	}
	text := fmt.Sprintf("out of %s: %s had %s of the %s that %s allows it %s", what, q.process(c), values.Digits(c.V), values.Digits(c.Size), where, q.when(c.At))
	if c.Rate > 0 {
		text += fmt.Sprintf(", and got %s more a second, at which none was left soon after", values.Digits(uint64(c.Rate)))
	}
	text += fmt.Sprintf("; the command ended with %s%s", howDied(q.Death()), q.instead())
	return text
}

func (q *caseText) process(c analysis.CountUse) string {
	if c.Proc < 0 {
		return "a process"
	}
	p := &q.Run.Procs[c.Proc]
	return fmt.Sprintf("process %d (%s)", p.ID.PID, values.Plain(p.Comm))
}

// usedUp is a fork, a thread or a mapping that was refused.
func (q *caseText) usedUp(f *analysis.Ending) string {
	b := f.Near
	what, then := "tasks", "fork(2) and a new thread fail with EAGAIN then"
	if f.Cause == event.CauseAS {
		what, then = "address space", "malloc(3) and mmap(2) fail with ENOMEM then, in Python with MemoryError"
	}
	text := fmt.Sprintf("out of %s: %s %s", what, phrase.Fill(b.Name, b.Used, b.Limit.Limit), q.when(b.At))
	if b.LimitSource != "" {
		text += ", limit from " + values.Plain(b.Place())
	}
	if b.Rate > 0 {
		text += fmt.Sprintf(", and grew by %s a second, at which it was full soon after", b.Name.Amount(rss.Bytes(b.Rate)))
	}
	text += fmt.Sprintf("; %s; the command ended with %s; instead: %s", then, howDied(q.Death()), b.Name.Cure())
	return text
}

// instead is what to write instead, for the end of a sentence; empty where
// nothing says that tensors were sent.
func (q *caseText) instead() string {
	const method = "set_start_method("
	if t := q.Findings.Of(event.FindingSpawn); t != nil {
		for _, a := range t.Advice {
			if strings.Contains(a, method) {
				return "; instead: " + values.Plain(a)
			}
		}
	}
	if q.Sharing == nil {
		return ""
	}
	return "; instead: " + method + `"fork")`
}

func (q *caseText) word() string {
	if q.Step != nil {
		text := fmt.Sprintf("Slurm says step %s %s %s", q.Step.ID, q.Step.State, q.Step.ExitCode)
		if q.Step.State != q.Said.State {
			text += ", job " + q.Said.State
		}
		return values.Plain(text)
	}
	return values.Plain(strings.TrimSpace("Slurm says " + q.Said.State + " " + q.Said.ExitCode))
}

// slurmText is the sentence on a cause that Slurm names and the record does not.
func (q *caseText) slurmText(f *analysis.Ending) string {
	word := q.word()
	switch f.Cause {
	case event.CauseKernelOOM:
		text := "the kernel's OOM killer ended a process of the step: " + word
		if f.Near.Name != "" {
			text += "; " + q.kernelText(f.Near)
		}
		return text
	case event.CauseTimeLimit:
		text := "ended by Slurm at the job's time limit"
		if q.Said.TimeLimit != "" {
			text += " of " + values.Plain(q.Said.TimeLimit)
		}
		return text + ": " + word
	case event.CauseCancelled:
		text := "cancelled"
		if q.Said.State == "PREEMPTED" {
			text = "ended by Slurm for another job (preempted)"
		} else if q.Said.By != "" {
			text += " by " + values.Plain(user(q.Said.By))
		}
		return text + ": " + word + q.breaksOff()
	case event.CauseNodeLost:
		return "the node failed: " + word + q.breaksOff()
	case event.CauseEnded:
		return "ended well as Slurm knows it: " + word + q.breaksOff()
	}
	return word
}

func (q *caseText) breaksOff() string {
	if q.Exit != nil {
		return ""
	}
	return "; the record ends at " + q.clock(q.End)
}

// howDied is how the command ended: "SIGKILL", "exit status 1".
func howDied(d analysis.Death) string {
	switch {
	case !d.Seen:
		return "unknown exit status"
	case d.Signal != "":
		return d.Signal
	case d.Code > 128 && d.Code < 128+65:
		return fmt.Sprintf("exit status %d, a shell's for signal %d", d.Code, d.Code-128)
	}
	return fmt.Sprintf("exit status %d", d.Code)
}

// clock is a moment of the run in the reader's zone, with its day where that is
// not the one on which the run ended.
func (q *caseText) clock(at time.Duration) string {
	return q.clockOf(q.Wall(at))
}

func (q *caseText) clockOf(t time.Time) string {
	t = t.In(q.zone)
	end := q.Wall(q.End).In(q.zone)
	if t.Format(time.DateOnly) != end.Format(time.DateOnly) {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// when is a moment near the end, negative for between two samples, and how near: "at 14:03:22, 400 ms before".
func (q *caseText) when(at time.Duration) string {
	text := "at " + q.clock(at)
	switch left := q.End - at; {
	case at < 0:
		return "at its highest"
	case q.Exit == nil && left < 100*time.Millisecond:
		return text + ", the last that was recorded"
	case q.Exit == nil:
		return text + ", " + values.Span(left) + " before the record ends"
	case left < 50*time.Millisecond:
		return text + ", as it ended"
	}
	return text + ", " + values.Span(q.End-at) + " before"
}

// after is how long the run was, for the end of a sentence.
func (q *caseText) after() string { return "after " + values.Span(q.End) }

// slurmSays is all that Slurm says, for the evidence.
func slurmSays(s *analysis.SlurmSays, step *analysis.StepSays) string {
	text := fmt.Sprintf("Slurm (%s) says: job %s", s.Source, s.State)
	if s.By != "" {
		text += " by " + user(s.By)
	}
	if s.ExitCode != "" {
		text += ", exit code " + s.ExitCode
	}
	if s.Reason != "" {
		text += ", reason " + s.Reason
	}
	if s.ReqMem != "" {
		text += ", memory asked for " + askedFor(s)
	}
	if step == nil {
		return values.Plain(text)
	}
	text += fmt.Sprintf("; step %s %s", step.ID, step.State)
	if step.By != "" {
		text += " by " + user(step.By)
	}
	text += ", exit code " + step.ExitCode
	if step.MaxRSS > 0 {
		text += fmt.Sprintf(", MaxRSS %v, as slurmstepd saw when it looked", rss.Bytes(step.MaxRSS))
	}
	return values.Plain(text)
}

// askedFor is the memory that was asked for, as --mem takes it.
func askedFor(s *analysis.SlurmSays) string {
	if b := analysis.Requested(s); b != 0 {
		if arg := memArg(b); arg != "" {
			return arg
		}
	}
	return s.ReqMem
}

// user is an id of Slurm's in words.
func user(id string) string {
	if id == "0" {
		return "root (Slurm itself or an administrator)"
	}
	return "user " + id
}

// short is a cgroup directory in a sentence: "/…/job_12".
func short(dir string) string {
	names := strings.Split(strings.Trim(dir, "/"), "/")
	n := len(names) - 1
	for n > 0 && (names[n] == "user" || strings.HasPrefix(names[n], "task_") || strings.HasPrefix(names[n], "step_")) {
		n--
	}
	if n == 0 {
		return dir
	}
	return "/…/" + strings.Join(names[n:], "/")
}

// memArg writes a size as --mem takes it, empty where that takes no such size.
func memArg(b rss.Bytes) string {
	if b == 0 || b%rss.MiB != 0 {
		return ""
	}
	return policy.MemArg(b)
}
