package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// teller writes what one inquest found.
type teller struct {
	*inquest
	zone *time.Location
	now  time.Time
}

// sentence is why the run ended, without a full stop; under a reserve where nobody saw
// it. What is not known needs none.
func (q *teller) sentence(f *ending) string {
	text := q.ending(f)
	switch f.slurm {
	case slurmConfirms:
		text += "; " + q.word()
	case slurmState:
		text += "; Slurm says the job is " + clean(q.said.State)
	case slurmStepKill:
		text += ", and may have grown since; " + q.word()
	case slurmYet:
		text += "; yet " + q.word()
	case slurmOverrules:
		if f.overruled != nil {
			text += "; the record alone would say: " + q.sentence(f.overruled)
		}
	}
	if f.certainty == Inferred && f.cause != event.CauseUnknown {
		return "most likely " + text
	}
	return text
}

// ending is the sentence on what happened.
func (q *teller) ending(f *ending) string {
	switch b, d, died := f.near, f.death, howDied(f.death); f.kind {
	case endRunning:
		return q.running()
	case endFine:
		text := "ended with exit status 0 " + q.after()
		if b, ok := q.highest(); ok {
			return text + fmt.Sprintf("; its fullest limit, %s, was at %s", b.Name, phrase.Fill(b.Name, b.max.Used, b.max.Size))
		}
		return text + "; no limit on memory is in the record"
	case endDetached:
		return fmt.Sprintf("the watch ended at %s %s, what was watched runs on", q.clock(q.end), q.after())
	case endHandedOver:
		h := q.ranks.handing
		return fmt.Sprintf("the record breaks off at %s, where its watcher was gone; the watcher of %s went on from %s",
			q.clock(q.end), h.next.ranks.list[0].rankKey.String(), q.clockOf(h.at))
	case endStopped:
		text := q.byRule("stopped by rsswarden", event.ActionStop)
		if q.exit.Code != nil {
			text += fmt.Sprintf("; exit status %d", *q.exit.Code)
		}
		return text
	case endRequeued:
		text := q.byRule("put back into the queue by rsswarden", event.ActionRequeue)
		if e := q.exit; e != nil && e.Verdict == event.VerdictRequeued && e.Advice > 0 {
			text += fmt.Sprintf("; it starts again with %v on each node", e.Advice)
		}
		return text
	case endKernelKill:
		return q.kernelKill(f)
	case endCgroupFull:
		text := "killed by the kernel: " + q.kernelText(b)
		switch {
		case q.rank != nil:
			// The record counts the kills of its own rank, and of all of the job where
			// the kernel does.
		case d.seen:
			text += ", though no OOM kill was counted"
		default:
			text += "; the watcher was killed as well, as memory.oom.group does"
		}
		return text
	case endNodeFull:
		text := "killed by the kernel: " + q.nodeText(b)
		if d.seen {
			text += ", though no OOM kill of this run was counted"
		}
		return text
	case endStepKill:
		return q.stepKill(b)
	case endJobKill:
		text := q.jobKill(b) + fmt.Sprintf("; SIGTERM reached it at %s from %s", q.clock(f.signal.at), clean(f.signal.Comm))
		if d.seen {
			text += "; it ended with " + died
		}
		return text
	case endJobKillUnseen:
		return q.jobKill(b) + "; no SIGTERM came here, as where rsswarden was not started with exec"
	case endAsked:
		return q.asked(f)
	case endAskedDirectly:
		return fmt.Sprintf("asked to end by somebody: %s %s, sent to the command and not to rsswarden", died, q.after())
	case endTimeLimit:
		return q.timeLimitText(d)
	case endSIGKILL:
		return fmt.Sprintf("killed by somebody's SIGKILL (%s) at %s; the kernel counted no OOM kill; %s", died, q.clock(q.end), q.nearestText())
	case endSIGKILLSlurm:
		return fmt.Sprintf("killed by SIGKILL, watcher and all, at or after %s; %s; %s", q.clock(q.end), q.word(), q.nearestText())
	case endCrash:
		return fmt.Sprintf("the command failed by itself: %s %s; %s", died, q.after(), q.nearestText())
	case endCrashSlurm:
		return fmt.Sprintf("the job failed after the record breaks off at %s; %s; %s", q.clock(q.end), q.word(), q.nearestText())
	case endStepKillSlurm:
		return fmt.Sprintf("killed by slurmstepd (OverMemoryKill): Slurm saw %v (MaxRSS) where %s was asked for; the record breaks off at %s and does not show it",
			q.step.MaxRSS, askedFor(q.said), q.clock(q.end))
	case endHolderKilled:
		return fmt.Sprintf("somebody's SIGKILL ended rsswarden's holder at %s, and the watch with it: whether the command was killed too or ran on unwatched is not in the record; %s", q.clock(q.end), q.nearestText())
	case endAbrupt:
		how := ""
		if q.run.Meta.Job != nil {
			how = " (as by scancel where rsswarden was not started with exec)"
		}
		return fmt.Sprintf("the record breaks off at %s without a word: all of it was killed at once%s, or rsswarden's watcher alone, or the node failed; which of them is not known; %s",
			q.clock(q.end), how, q.nearestText())
	case endSHM:
		return fmt.Sprintf("/dev/shm was full: %v of %v was used %s; the command ended with %s", rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at), died)
	case endCount:
		return q.countText(f)
	case endUsedUp:
		return q.usedUp(f)
	case endSending:
		what := "memory mappings"
		if f.cause == event.CauseFDs {
			what = "descriptors"
		}
		return fmt.Sprintf("out of %s: %s, begun %s; the command ended with %s%s", what, q.sending(q.sent), q.when(q.sent.at), died, q.instead())
	}
	return q.slurmText(f)
}

// byRule names the rule that ended the run.
func (q *teller) byRule(who string, a event.Action) string {
	if d := q.deeds.last; d != nil && d.Action == a {
		return fmt.Sprintf("%s's rule %s %s: %s was at %s", who, clean(d.Rule), q.after(), d.Limit, phrase.Fill(d.Limit, d.Used, d.LimitSize))
	}
	return who + " " + q.after()
}

func (q *teller) running() string {
	text := fmt.Sprintf("still running %s after its start", values.Span(max(q.now.Sub(q.run.Meta.Start), 0).Round(time.Second)))
	if b, ok := q.highest(); ok {
		ago := values.Span(max(q.now.Sub(q.wall(b.lastAt)), 0))
		text += fmt.Sprintf("; the limit %s stands at %s, as recorded %s ago", b.Name, phrase.Fill(b.Name, b.last.Used, b.last.Size), ago)
	}
	return text
}

// kernelKill is a kill that the kernel counted.
func (q *teller) kernelKill(f *ending) string {
	why := "no limit of a cgroup is in the record, so it is not known which was full"
	switch {
	case f.cause == event.CauseNodeOOM:
		why = q.nodeText(f.near)
	case f.limit >= 0:
		why = q.kernelText(f.near)
	}
	if f.death.by("SIGKILL", 9) {
		return "killed by the kernel: " + why
	}
	victims := "one of its processes"
	if n := q.kernelKills(); n > 1 {
		victims = values.Digits(n) + " of its processes"
	}
	text := fmt.Sprintf("the kernel's OOM killer ended %s: %s; the command then ended with %s", victims, why, howDied(f.death))
	if f.death.ok() && q.run.Meta.Job != nil {
		text += ", but Slurm calls a job with such a kill OUT_OF_MEMORY"
	}
	return text
}

// kernelText is which cgroup was full: "cgroup /…/job_12 (the job's --mem,
// 3000M) was full: 2.92 GiB of 2.93 GiB could not be reclaimed at 14:03:22,
// 0.4 s before".
func (q *teller) kernelText(b brink) string {
	where := "cgroup " + q.level(b)
	when := "at its highest"
	if b.at >= 0 {
		when = q.when(b.at)
	}
	held := fmt.Sprintf("%v of %v could not be reclaimed %s", rss.Bytes(b.used), rss.Bytes(b.size), when)
	switch {
	case b.ratio >= nearFull:
		return where + " was full: " + held
	case b.rate > 0:
		return where + " filled up: " + held + q.grew(b)
	}
	return fmt.Sprintf("%s is the limit that was nearest, and %s (%s): it grew faster than it was sampled, or another limit was full", where, held, values.Percent(b.ratio))
}

// grew tells a rate that was carried on beyond the last reading.
func (q *teller) grew(b brink) string {
	return fmt.Sprintf(", and grew by %v a second, at which it was full soon after", rss.Bytes(b.rate))
}

// level names a cgroup and whose limit it is.
func (q *teller) level(b brink) string {
	text := short(clean(b.Level))
	size := rss.Bytes(b.size)
	switch b.Scope {
	case event.ScopeJob, event.ScopeStep:
		what := "limit"
		if q.said != nil && q.said.requested() == size {
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

// stepKill is OverMemoryKill.
func (q *teller) stepKill(b brink) string {
	what, _, _ := strings.Cut(b.Compared(), ",") // that it is the step's is said in any case
	note := ""
	switch b.Accounting {
	case event.AccountingRSS:
		note = ", counting shared pages once for each process"
	case event.AccountingPSS:
		note = ", shared pages divided among those that map them"
	case event.AccountingVirtual:
		note = ", which VSizeFactor limits"
	}
	who := "slurmstepd (OverMemoryKill)"
	if strings.Contains(b.Enforcer, "perhaps") {
		who = "slurmstepd, which here may use OverMemoryKill"
	}
	text := fmt.Sprintf("killed by %s: the %s of %s was %v of %v %s%s", who, what, q.whose(b), rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at), note)
	if b.rate > 0 {
		text += q.grew(b)
	}
	return text
}

// whose names the step or job that slurmstepd sums.
func (q *teller) whose(b brink) string {
	if b.Level != "" {
		return "step " + clean(b.Level)
	}
	if j := q.run.Meta.Job; j != nil && j.Step != "" {
		return "step " + clean(j.ID+"."+j.Step)
	}
	return "the step"
}

func (q *teller) nodeText(b brink) string {
	text := fmt.Sprintf("the node had no memory left: %v of %v was used (MemTotal less MemAvailable, everything on the node) %s",
		rss.Bytes(b.used), rss.Bytes(b.size), q.when(b.at))
	if b.ratio < nearFull {
		text += q.grew(b)
	}
	return text
}

// jobKill is OverMemoryKill of all steps of the job.
func (q *teller) jobKill(b brink) string {
	who, when := "slurmd (OverMemoryKill)", "at its highest"
	if strings.Contains(b.Enforcer, "perhaps") {
		who = "slurmd, which here may use OverMemoryKill"
	}
	if b.at >= 0 {
		when = q.when(b.at)
	}
	text := fmt.Sprintf("cancelled by %s: the steps of the job on this node had %v of %v together %s (%s)", who, rss.Bytes(b.used), rss.Bytes(b.size), when, b.Compared())
	if b.rate > 0 {
		text += q.grew(b)
	}
	return text
}

// asked is a signal that asks for the end.
func (q *teller) asked(f *ending) string {
	s, d := f.signal, f.death
	at := q.wall(s.at)
	from := ""
	if s.Comm != "" {
		from = fmt.Sprintf(" from %s (process %d)", clean(s.Comm), s.Sender)
	}
	told := fmt.Sprintf("%s reached it at %s%s", s.Signal.Signal, q.clock(s.at), from)
	then := "; it ended with " + howDied(d)
	if later := q.end - s.at; later >= 50*time.Millisecond {
		then += ", " + values.Span(later) + " later"
	} else {
		then += " at once"
	}
	if !d.seen {
		then = fmt.Sprintf("; the record breaks off %s later, as SIGKILL for all of it does after KillWait", values.Span(q.end-s.at))
		if q.run.JournalOnly && q.end-s.at < time.Second {
			then = "; the journal has nothing after it, as SIGKILL for all of it leaves it after KillWait"
		}
	}
	switch {
	case q.run.Meta.Job == nil:
		return "asked to end: " + told + then
	case q.jobEnd.IsZero():
		return "cancelled, or ended at its time limit, the record does not know the job's end: " + told + then
	case at.Before(q.jobEnd.Add(-endSlack)):
		return fmt.Sprintf("cancelled: %s, %s before the job's end%s", told, values.Span(q.jobEnd.Sub(at)), then)
	default:
		return fmt.Sprintf("ended by Slurm at the job's time limit: %s, the job's end was %s%s", told, q.clockOf(q.jobEnd), then)
	}
}

// timeLimitText is a SIGKILL at the job's end with no signal before it.
func (q *teller) timeLimitText(d death) string {
	last := "the record goes on until " + q.clock(q.end)
	if d.seen {
		last = "it ended with " + howDied(d) + " at " + q.clock(q.end)
	}
	if !d.seen && !q.timeUp() {
		last = "the last that the journal has is of " + q.clock(q.end) + " and it had nothing to tell for a while"
	}
	return fmt.Sprintf("ended by Slurm at the job's time limit: the job's end was %s, %s, and no SIGTERM came here before", q.clockOf(q.jobEnd), last)
}

// nearestText says how near the nearest limit was: that none was near is part of an
// answer. That of --limit ends nobody, and is told where it was nearest.
func (q *teller) nearestText() string {
	b, ok := q.fullest()
	user, own := q.fullest(event.LimitUser)
	if own && (!ok || user.ratio > b.ratio) && (!ok || b.ratio < mayBe) {
		text := "the nearest limit, user, was " + q.stood(user)
		if user.ratio >= mayBe {
			return "no limit that somebody else enforces was near: " + text
		}
		return "no limit was near: " + text
	}
	if !ok {
		return "no limit is in the record"
	}
	text := fmt.Sprintf("the nearest limit, %s, was %s", b.Name, q.stood(b))
	if b.ratio >= mayBe {
		return text + ": it may have been that"
	}
	return "no limit was near: " + text
}

// stood is how full a limit was, and when.
func (q *teller) stood(b brink) string {
	return fmt.Sprintf("at %s %s", phrase.Fill(b.Name, rss.Bytes(b.used), rss.Bytes(b.size)), q.when(b.at))
}

// countText is a process that ran out of what is counted.
func (q *teller) countText(f *ending) string {
	c := f.count
	what, where := "memory mappings", "vm.max_map_count"
	if f.cause == event.CauseFDs {
		what, where = "descriptors", "RLIMIT_NOFILE"
	}
	text := fmt.Sprintf("out of %s: %s had %s of the %s that %s allows it %s", what, q.process(c), values.Digits(c.v), values.Digits(c.size), where, q.when(c.at))
	if c.rate > 0 {
		text += fmt.Sprintf(", and got %s more a second, at which none was left soon after", values.Digits(uint64(c.rate)))
	}
	text += fmt.Sprintf("; the command ended with %s%s", howDied(f.death), q.instead())
	return text
}

// process names the process of a count.
func (q *teller) process(c count) string {
	if c.proc < 0 {
		return "a process"
	}
	p := &q.run.Procs[c.proc]
	return fmt.Sprintf("process %d (%s)", p.ID.PID, clean(p.Comm))
}

// usedUp is a fork, a thread or a mapping that was refused.
func (q *teller) usedUp(f *ending) string {
	b := f.near
	what, then := "tasks", "fork(2) and a new thread fail with EAGAIN then"
	if f.cause == event.CauseAS {
		what, then = "address space", "malloc(3) and mmap(2) fail with ENOMEM then, in Python with MemoryError"
	}
	text := fmt.Sprintf("out of %s: %s %s", what, phrase.Fill(b.Name, rss.Bytes(b.used), rss.Bytes(b.size)), q.when(b.at))
	if b.LimitSource != "" {
		text += ", limit from " + clean(b.Place())
	}
	if b.rate > 0 {
		text += fmt.Sprintf(", and grew by %s a second, at which it was full soon after", b.Name.Amount(rss.Bytes(b.rate)))
	}
	text += fmt.Sprintf("; %s; the command ended with %s; instead: %s", then, howDied(f.death), b.Name.Cure())
	return text
}

// takes is what the sending takes of what there is not enough of; of what is
// nearest where all suffices.
func takes(s *lookSent) string {
	n := s.Sharing
	least := ""
	if n.More {
		least = "at least "
	}
	need, most, what := n.FDs, n.MaxFDs, "descriptors of the %s that RLIMIT_NOFILE allows"
	cause := s.tooMuch()
	switch {
	case cause == event.CauseFDs && n.FDs <= n.MaxFDs:
		need, most, what = n.Sent, n.MaxSent, "descriptors in one message, of the %s that Linux takes"
	case cause == event.CauseMaps, cause == "" && float64(n.Maps)*float64(n.MaxFDs) > float64(n.FDs)*float64(n.MaxMaps):
		need, most, what = n.Maps, n.MaxMaps, "memory mappings of the %s that vm.max_map_count allows"
	}
	return "takes " + least + digits(need) + " " + fmt.Sprintf(what, digits(most))
}

func digits(n int) string { return values.Digits(uint64(max(n, 0))) }

// sending words the warning.
func (q *teller) sending(s *lookSent) string {
	n := s.Sharing
	more := ""
	if n.More {
		more = " or more"
	}
	return fmt.Sprintf("to send the %s%s tensors of a data set from %s to %s started by %s (sharing strategy %s) %s",
		digits(n.Tensors), more, q.named(s.PID), values.Count(n.Workers, "worker"), clean(n.Method), clean(n.Strategy), takes(s))
}

// named is a process by its PID, with its name where the record has it.
func (q *teller) named(pid int) string {
	for i := range q.run.Procs {
		if q.run.Procs[i].ID.PID == pid {
			return q.process(count{proc: i})
		}
	}
	return fmt.Sprintf("process %d", pid)
}

// instead is what to write instead, for the end of a sentence; empty where
// nothing says that tensors were sent.
func (q *teller) instead() string {
	const method = "set_start_method("
	if t := q.grown.of(event.FindingSpawn); t != nil {
		for _, a := range t.Advice {
			if strings.Contains(a, method) {
				return "; instead: " + clean(a)
			}
		}
	}
	if q.sent == nil {
		return ""
	}
	return "; instead: " + method + `"fork")`
}

// word is Slurm's state as it stands in a sentence.
func (q *teller) word() string {
	if q.step != nil {
		text := fmt.Sprintf("Slurm says step %s %s %s", q.step.ID, q.step.State, q.step.ExitCode)
		if q.step.State != q.said.State {
			text += ", job " + q.said.State
		}
		return clean(text)
	}
	return clean(strings.TrimSpace("Slurm says " + q.said.State + " " + q.said.ExitCode))
}

// slurmText is the sentence on a cause that Slurm names and the record does not.
func (q *teller) slurmText(f *ending) string {
	word := q.word()
	switch f.cause {
	case event.CauseKernelOOM:
		text := "the kernel's OOM killer ended a process of the step: " + word
		if f.near.Limit != nil {
			text += "; " + q.kernelText(f.near)
		}
		return text
	case event.CauseTimeLimit:
		text := "ended by Slurm at the job's time limit"
		if q.said.TimeLimit != "" {
			text += " of " + clean(q.said.TimeLimit)
		}
		return text + ": " + word
	case event.CauseCancelled:
		text := "cancelled"
		if q.said.State == "PREEMPTED" {
			text = "ended by Slurm for another job (preempted)"
		} else if q.said.By != "" {
			text += " by " + clean(user(q.said.By))
		}
		return text + ": " + word + q.breaksOff()
	case event.CauseNodeLost:
		return "the node failed: " + word + q.breaksOff()
	case event.CauseEnded:
		return "ended well as Slurm knows it: " + word + q.breaksOff()
	}
	return word
}

func (q *teller) breaksOff() string {
	if q.exit != nil {
		return ""
	}
	return "; the record breaks off at " + q.clock(q.end)
}

// howDied is how the command ended: "SIGKILL", "exit status 1".
func howDied(d death) string {
	switch {
	case !d.seen:
		return "a status that nobody saw"
	case d.signal != "":
		return d.signal
	case d.code > 128 && d.code < 128+65:
		return fmt.Sprintf("exit status %d, with which a shell tells of signal %d", d.code, d.code-128)
	}
	return fmt.Sprintf("exit status %d", d.code)
}

// clock is a moment of the run in the reader's zone, with its day where that is
// not the one on which the run ended.
func (q *teller) clock(at time.Duration) string {
	return q.clockOf(q.wall(at))
}

func (q *teller) clockOf(t time.Time) string {
	t = t.In(q.zone)
	end := q.wall(q.end).In(q.zone)
	if t.Format(time.DateOnly) != end.Format(time.DateOnly) {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// when is a moment near the end, and how near: "at 14:03:22, 400 ms before".
func (q *teller) when(at time.Duration) string {
	text := "at " + q.clock(at)
	switch left := q.end - at; {
	case q.exit == nil && left < 100*time.Millisecond:
		return text + ", the last that was recorded"
	case q.exit == nil:
		return text + ", " + values.Span(left) + " before the record breaks off"
	case left < 50*time.Millisecond:
		return text + ", as it ended"
	}
	return text + ", " + values.Span(q.end-at) + " before"
}

// after is how long the run was, for the end of a sentence.
func (q *teller) after() string { return "after " + values.Span(q.end) }

// slurmSays is all that Slurm says, for the evidence.
func slurmSays(s *SlurmSays, step *StepSays) string {
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
		return clean(text)
	}
	text += fmt.Sprintf("; step %s %s", step.ID, step.State)
	if step.By != "" {
		text += " by " + user(step.By)
	}
	text += ", exit code " + step.ExitCode
	if step.MaxRSS > 0 {
		text += fmt.Sprintf(", MaxRSS %v, as slurmstepd saw when it looked", step.MaxRSS)
	}
	return clean(text)
}

// askedFor is the memory that was asked for, as --mem takes it.
func askedFor(s *SlurmSays) string {
	if b := s.requested(); b != 0 {
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
