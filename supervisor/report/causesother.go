package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// This file holds the sentences on all that is not memory: signals, time, the
// command itself, and what nobody knows.

// onSignal tells of a run that was asked to end.
func (q *inquest) onSignal(s lookSignal, d death) finding {
	if f, ok := q.bySlurmd(s, d); ok {
		return f
	}
	at := q.wall(s.at)
	f := finding{cause: event.CauseCancelled, certainty: Seen, limit: -1}
	from := ""
	if s.Comm != "" {
		from = fmt.Sprintf(" from %s (process %d)", clean(s.Comm), s.Sender)
	}
	told := fmt.Sprintf("%s reached it at %s%s", s.Signal.Signal, q.clock(s.at), from)
	then := "; it ended with " + d.String()
	if later := q.end - s.at; later >= 50*time.Millisecond {
		then += ", " + values.Span(later) + " later"
	} else {
		then += " at once"
	}
	if !d.seen {
		f.certainty = Inferred
		then = fmt.Sprintf("; the record breaks off %s later, as SIGKILL for all of it does after KillWait", values.Span(q.end-s.at))
		if q.run.JournalOnly && q.end-s.at < time.Second {
			then = "; the journal has nothing after it, as SIGKILL for all of it leaves it after KillWait"
		}
	}
	switch {
	case q.run.Meta.Job == nil:
		f.text = "asked to end: " + told + then
	case q.jobEnd.IsZero():
		f.certainty = Inferred
		f.text = "cancelled, or ended at its time limit, the record does not know the job's end: " + told + then
	case at.Before(q.jobEnd.Add(-endSlack)):
		f.text = fmt.Sprintf("cancelled: %s, %s before the job's end%s", told, values.Span(q.jobEnd.Sub(at)), then)
	default:
		f.cause = event.CauseTimeLimit
		f.text = fmt.Sprintf("ended by Slurm at the job's time limit: %s, the job's end was %s%s", told, q.clockOf(q.jobEnd), then)
	}
	return f
}

// bySlurmd tells of a job that slurmd had cancelled because its steps had more than its
// memory together: slurmstepd sends SIGTERM, as it does for scancel.
func (q *inquest) bySlurmd(s lookSignal, d death) (f finding, ok bool) {
	if s.Signal.Signal != "SIGTERM" || !strings.HasPrefix(s.Comm, "slurmstepd") ||
		!q.jobEnd.IsZero() && !q.wall(s.at).Before(q.jobEnd.Add(-endSlack)) {
		return f, false
	}
	b, ok := q.jobSum()
	if !ok {
		return f, false
	}
	if b.used <= b.size && b.rate == 0 {
		// A checkpoint after SIGTERM takes up to KillWait: the watcher saw it before.
		if q.exit == nil || q.exit.Verdict != event.VerdictKilled || d.by("SIGKILL", 9) {
			return f, false
		}
		max := q.limits[b.i].max
		b.used, b.size, b.ratio, b.at = uint64(max.Used), uint64(max.Size), max.Ratio(), -1
	}
	f = q.overJobMemory(b)
	f.text += fmt.Sprintf("; SIGTERM reached it at %s from %s", q.clock(s.at), clean(s.Comm))
	if d.seen {
		f.text += "; it ended with " + d.String()
	}
	return f, true
}

// unheardOfSlurmd tells of the same where the record breaks off without a SIGTERM: a batch
// script that does not start rsswarden by exec dies of it, and all the rest by SIGKILL.
func (q *inquest) unheardOfSlurmd() (f finding, ok bool) {
	b, ok := q.jobSum()
	step, _ := q.fullest(event.LimitSlurm)
	if !ok || b.used <= b.size || step.ratio >= 1 || q.timeUp() {
		return f, false // slurmstepd kills a step that has more than its limit, and looks more often
	}
	f = q.overJobMemory(b)
	f.text += "; no SIGTERM came here, as where rsswarden was not started with exec"
	return f, true
}

// jobSum is how near slurmd's limit on all steps of the job was at the end. Who knows that
// a user had the job cancelled knows better.
func (q *inquest) jobSum() (b brink, ok bool) {
	i := slices.IndexFunc(q.limits, func(l lookLimit) bool { return l.seen && l.ByJobSum() })
	if i < 0 || q.said != nil && q.said.By != "" && q.said.By != "0" {
		return b, false
	}
	return q.brink(i)
}

func (q *inquest) overJobMemory(b brink) finding {
	who, when := "slurmd (OverMemoryKill)", "at its highest"
	if strings.Contains(b.Enforcer, "perhaps") {
		who = "slurmd, which here may use OverMemoryKill"
	}
	if b.at >= 0 {
		when = q.when(b.at)
	}
	f := finding{cause: event.CauseOverKill, certainty: Inferred, limit: b.i}
	f.text = fmt.Sprintf("cancelled by %s: the steps of the job on this node had %v of %v together %s (%s)", who, rss.Bytes(b.used), rss.Bytes(b.size), when, b.Compared())
	if b.rate > 0 {
		f.text += q.grew(b)
	}
	return f
}

// timeLimit tells of a SIGKILL at the job's end with no signal before it: a
// batch script between Slurm and rsswarden keeps SIGTERM to itself.
func (q *inquest) timeLimit(d death) finding {
	f := finding{cause: event.CauseTimeLimit, certainty: Inferred, limit: -1}
	last := "the record goes on until " + q.clock(q.end)
	if d.seen {
		last = "it ended with " + d.String() + " at " + q.clock(q.end)
	}
	if !d.seen && !q.timeUp() {
		last = "the last that the journal has is of " + q.clock(q.end) + " and it had nothing to tell for a while"
	}
	f.text = fmt.Sprintf("ended by Slurm at the job's time limit: the job's end was %s, %s, and no SIGTERM came here before", q.clockOf(q.jobEnd), last)
	return f
}

// bySIGTERM tells of a SIGTERM that the holder did not get.
func (q *inquest) bySIGTERM(d death) finding {
	if q.timeUp() {
		return q.timeLimit(d)
	}
	return finding{
		cause: event.CauseCancelled, certainty: Inferred, limit: -1,
		text: fmt.Sprintf("asked to end by somebody: %s %s, sent to the command and not to rsswarden", d, q.after()),
	}
}

// killed tells of a SIGKILL that nothing in the record explains.
func (q *inquest) killed(d death) finding {
	return finding{
		cause: event.CauseKilled, certainty: Seen, limit: -1,
		text: fmt.Sprintf("killed by somebody's SIGKILL (%s) at %s; the kernel counted no OOM kill; %s", d, q.clock(q.end), q.nearest()),
	}
}

// crash tells of a failure of the command's own.
func (q *inquest) crash(d death) finding {
	return finding{
		cause: event.CauseCrash, certainty: Seen, limit: -1,
		text: fmt.Sprintf("the command failed by itself: %s %s; %s", d, q.after(), q.nearest()),
	}
}

// holderKilled tells of a watcher that outlived what told it of the command. The
// command may have outlived it as well.
func (q *inquest) holderKilled() finding {
	return finding{
		cause: event.CauseKilled, certainty: Inferred, limit: -1,
		text: fmt.Sprintf("somebody's SIGKILL ended rsswarden's holder at %s, and the watch with it: whether the command was killed too or ran on unwatched is not in the record; %s", q.clock(q.end), q.nearest()),
	}
}

// withoutAWord tells of a record that breaks off with nothing near.
func (q *inquest) withoutAWord() finding {
	how := ""
	if q.run.Meta.Job != nil {
		how = " (as by scancel where rsswarden was not started with exec)"
	}
	return finding{
		cause: event.CauseUnknown, certainty: Inferred, limit: -1,
		text: fmt.Sprintf("the record breaks off at %s without a word: all of it was killed at once%s, or rsswarden's watcher alone, or the node failed; which of them is not known; %s",
			q.clock(q.end), how, q.nearest()),
	}
}

// nearest says how near the nearest limit was: that none was near is part of an
// answer. That of --limit ends nobody, and is told where it was nearest.
func (q *inquest) nearest() string {
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
func (q *inquest) stood(b brink) string {
	return fmt.Sprintf("at %s %s", fill(b.Name, rss.Bytes(b.used), rss.Bytes(b.size)), q.when(b.at))
}

// fine tells of a run that ended well.
func (q *inquest) fine() finding {
	f := finding{cause: event.CauseEnded, certainty: Seen, limit: -1, text: "ended with exit status 0 " + q.after()}
	b, ok := q.highest()
	if !ok {
		f.text += "; no limit on memory is in the record"
		return f
	}
	f.text += fmt.Sprintf("; its fullest limit, %s, was at %s", b.Name, fill(b.Name, b.max.Used, b.max.Size))
	return f
}

// highest is the memory limit that came nearest over the whole run. The node is
// everybody's: it is no measure of this run unless there is no other.
func (k *look) highest() (best *lookLimit, ok bool) {
	for _, node := range []bool{false, true} {
		for i := range k.limits {
			l := &k.limits[i]
			if !l.seen || l.max.Size == 0 || l.max.Used == 0 || !l.Name.Row().Amount || l.Name == event.LimitThrottle || (l.Name == event.LimitNode) != node {
				continue
			}
			if best == nil || l.max.Ratio() > best.max.Ratio() {
				best = l
			}
		}
		if best != nil {
			return best, true
		}
	}
	return nil, false
}

// requeued says that a rule put the job back into the queue: what ended the run
// then was Slurm, because of it.
func (q *inquest) requeued() bool {
	a := q.deeds.kinds[event.ActionRequeue]
	return q.exit != nil && q.exit.Verdict == event.VerdictRequeued || a != nil && a.Worked > 0
}

// putBack tells of it.
func (q *inquest) putBack() finding {
	f := finding{cause: event.CauseRequeued, certainty: Seen, limit: -1, text: "put back into the queue by rsswarden " + q.after()}
	if d := q.deeds.last; d != nil && d.Action == event.ActionRequeue {
		f.text = fmt.Sprintf("put back into the queue by rsswarden's rule %s %s: %s was at %s", clean(d.Rule), q.after(), d.Limit, fill(d.Limit, d.Used, d.LimitSize))
	}
	if e := q.exit; e != nil && e.Verdict == event.VerdictRequeued && e.Advice > 0 {
		f.text += fmt.Sprintf("; it starts again with %v on each node", e.Advice)
	}
	return f
}

// stopped tells of our own stop.
func (q *inquest) stopped() finding {
	f := finding{cause: event.CauseStopped, certainty: Seen, limit: -1, text: "stopped by rsswarden " + q.after()}
	if d := q.deeds.last; d != nil && d.Action == event.ActionStop {
		f.text = fmt.Sprintf("stopped by rsswarden's rule %s %s: %s was at %s", clean(d.Rule), q.after(), d.Limit, fill(d.Limit, d.Used, d.LimitSize))
	}
	if q.exit.Code != nil {
		f.text += fmt.Sprintf("; exit status %d", *q.exit.Code)
	}
	return f
}

func (q *inquest) detached() finding {
	return finding{
		cause: event.CauseDetached, certainty: Seen, limit: -1,
		text: fmt.Sprintf("the watch ended at %s %s, what was watched runs on", q.clock(q.end), q.after()),
	}
}

func (q *inquest) running() finding {
	f := finding{cause: event.CauseRunning, certainty: Seen, limit: -1}
	f.text = fmt.Sprintf("still running %s after its start", values.Span(max(q.now.Sub(q.run.Meta.Start), 0).Round(time.Second)))
	if b, ok := q.highest(); ok {
		f.text += fmt.Sprintf("; the limit %s stands at %s, as recorded %s", b.Name, fill(b.Name, b.last.Used, b.last.Size), soFar(q.now, q.wall(b.lastAt)))
	}
	return f
}
