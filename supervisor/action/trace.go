package action

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Trace takes the mapped file pages of these processes, one after the other and
// piece by piece, until the goal is reached, nothing is left, or at its deadline.
func Trace(t Stopper, all []*Tracee, goal Goal, now time.Duration) Running {
	return &trace{t: t, goal: goal, used: goal.Used, deadline: now + TrimDeadline, all: all, queue: slices.Clone(all)}
}

// Tracee is a process with mapped file pages to give back, and what came of the last try.
type Tracee struct {
	ID rss.ProcID
	// Share is which part of what it gives back the limit counts: 1 for RSS.
	Share float64

	Pieces  int           // taken
	Whole   bool          // there was no other
	Stopped time.Duration // how long it was stopped at most
	Refused Refused

	tries   int
	trimmed bool          // in any of them
	from    time.Duration // nothing is asked for before
	waited  time.Duration // at brief bad moments that followed each other
	planned bool
	again   bool // the plan is to be asked for again
	plan    []trim.Piece
	next    int    // index of the first that was not asked for
	asked   int    // how many the request in flight is for, those before it
	request uint64 // in flight, 0 for none
	askedAt time.Duration
}

// trace is the state of [Trace]: of cur is either a plan awaited, or a piece, or
// neither while a new sample is, or the next moment.
type trace struct {
	t        Stopper
	goal     Goal
	deadline time.Duration
	all      []*Tracee
	queue    []*Tracee // those whose turn is to come
	cur      *Tracee   // nil between two
	awaits   bool      // a sample, which is to show what was freed in all

	used         rss.Bytes // as last read
	seq          uint64    // of that sample
	since, given rss.Bytes // given back since then, and in all, as the limit counts

	freed   rss.Bytes
	stopped time.Duration
}

func (a *trace) Awaits() bool { return a.awaits }

func (a *trace) Wakes() time.Duration {
	if e := a.cur; e != nil && e.request == 0 && !a.awaits && (e.planned || e.again) {
		return e.from
	}
	return 0
}

func (a *trace) Step(w World) (Result, bool) {
	if w.Sample != nil && w.Sample.Seq != a.seq {
		a.seq, a.used, a.since, a.awaits = w.Sample.Seq, w.Used, 0, false
	}
	for _, p := range w.Planned {
		a.takePlan(p, w.Now)
	}
	for _, p := range w.Taken {
		a.answer(p, w.Now)
	}
	for {
		e := a.cur
		switch late := w.Now >= a.deadline; {
		case e != nil && e.request != 0:
			if w.Now < e.askedAt+TakeDeadline {
				return Result{}, false
			}
			a.t.Lost(e.ID)
			a.over(Refused{Reason: event.ReasonTimeout}, w.Now)
			r := a.result(event.ReasonTimeout)
			r.OK, r.Reason = false, event.ReasonTimeout
			return r, true
		case e != nil && !e.planned && late:
			a.over(Refused{Reason: event.ReasonTimeout, Passing: e.again}, w.Now)
		case e != nil && e.again && w.Now >= e.from:
			e.again = false
			a.t.Plan(e.ID)
		case e != nil && !e.planned:
			return Result{}, false
		case a.enough():
			a.leave(w.Now)
			r := a.result(event.ReasonDone)
			if !r.OK {
				r.Reason = event.ReasonRecovered
			}
			return r, true
		case late:
			a.leave(w.Now)
			return a.result(event.ReasonTimeout), true
		case a.awaits:
			return Result{}, false
		case e != nil && e.next < len(e.plan) && w.Now < e.from:
			return Result{}, false
		case e != nil && e.next < len(e.plan):
			a.take(w.Now)
		case e != nil:
			a.leave(w.Now)
		case len(a.queue) == 0:
			return a.result(event.ReasonNothing), true
		case !a.begin(w):
			return Result{}, false // all that are left had a bad moment just now
		}
	}
}

// enough says that the limit is below the goal, which a reading must show
// where one can.
func (a *trace) enough() bool {
	projected := a.used.Sub(a.since)
	if a.goal.Lags {
		projected = min(a.used, a.goal.Used.Sub(a.given))
	}
	if projected >= a.goal.Below {
		return false
	}
	if a.goal.Lags || a.since == 0 {
		return true
	}
	a.awaits = true
	return false
}

// begin turns to the first process whose time has come. Those that have ended
// are passed over.
func (a *trace) begin(w World) bool {
	for i, e := range a.queue {
		if w.Now < e.from {
			continue
		}
		a.queue = slices.Delete(a.queue, i, i+1)
		if w.lives(e.ID) {
			*e = Tracee{ID: e.ID, Share: e.Share, tries: e.tries + 1, trimmed: e.trimmed}
			a.cur = e
			a.t.Plan(e.ID)
		}
		return true
	}
	return false
}

func (w *World) lives(id rss.ProcID) bool {
	if w.Sample == nil {
		return true
	}
	p := w.Sample.Find(id.PID)
	return p != nil && p.ID == id
}

func (a *trace) takePlan(p Planned, now time.Duration) {
	e := a.cur
	if e == nil || e.planned || p.ID != e.ID {
		return // of an action that has ended
	}
	switch {
	case p.Refused.Reason == event.ReasonNone:
		e.planned, e.plan, e.waited = true, p.Pieces, 0
	case e.bear(p.Refused, now):
		e.again = true
	default:
		a.over(p.Refused, now)
	}
}

// bear says whether a refusal is worth another try in a moment.
func (e *Tracee) bear(r Refused, now time.Duration) bool {
	if !r.Brief || e.waited >= tracePatience {
		return false
	}
	e.waited += traceRetry
	e.from = now + traceRetry
	return true
}

func (a *trace) take(now time.Duration) {
	e := a.cur
	request, n, err := a.t.Take(e.plan[e.next:])
	if err != nil {
		a.over(Refused{Reason: event.ReasonError, Detail: err.Error()}, now)
		return
	}
	e.next += n
	e.request, e.asked, e.askedAt = request, n, now
}

func (a *trace) answer(p Taken, now time.Duration) {
	e := a.cur
	if e == nil || e.request == 0 || p.Request != e.request {
		return
	}
	e.request = 0
	e.Stopped = max(e.Stopped, p.Stopped)
	a.stopped = max(a.stopped, p.Stopped)
	switch why := p.Refused.Reason; {
	case why == event.ReasonNone:
		// A process with much to give back runs half of the time. On a busy node stops
		// are long, and waiting as long would help no process.
		e.from, e.waited = now+min(p.Stopped, traceGap), 0
		e.Pieces += e.asked
		for _, piece := range e.plan[e.next-e.asked : e.next] {
			given := piece.Resident.Scale(e.Share)
			a.since, a.given = a.since+given, a.given+given
		}
	case e.bear(p.Refused, now):
		e.next -= e.asked
	case why == event.ReasonChanged:
		// What was planned of this piece is not there any more; others may be.
	default:
		a.over(p.Refused, now)
	}
}

// leave is over for whatever process it has come to.
func (a *trace) leave(now time.Duration) {
	if a.cur != nil {
		a.cur.Whole = a.cur.Pieces == len(a.cur.plan)
		a.over(Refused{}, now)
	}
}

// over leaves the process that was traced, with the reason for it where that is
// none of ours. One at a bad moment has its turn again, after the others.
func (a *trace) over(why Refused, now time.Duration) {
	e := a.cur
	if why.Reason == event.ReasonNone && e.Pieces == 0 && len(e.plan) > 0 && e.next > 0 {
		why = Refused{Reason: event.ReasonChanged, Passing: true}
	}
	e.Refused = why
	freed := a.t.Over(*e)
	if e.Pieces > 0 {
		e.trimmed = true
		a.freed += freed
	}
	a.cur = nil
	switch {
	case why.All:
		a.queue = nil
	case why.Passing && e.tries < traceTries && now+TracePause < a.deadline:
		e.from = now + TracePause
		a.queue = append(a.queue, e)
	}
}

// Stopper stops processes for a moment and has them give mapped file pages back
// (ptrace), one piece of one process at a time. Nothing in it blocks: what comes
// of a call is in a later [World].
type Stopper interface {
	// Plan asks what a process has to give back: [World.Planned].
	Plan(id rss.ProcID)
	// Take asks for the first of these pieces of the last plan, and those after it that
	// can be had by the same stop. It returns the number that the answer carries
	// ([World.Taken]) and how many pieces were asked for.
	Take(pieces []trim.Piece) (request uint64, asked int, err error)
	// Over says that a process is left alone from now on, for this time, and
	// returns by how much its mapped file pages have fallen since Plan: measured.
	Over(Tracee) rss.Bytes
	// Lost says that a piece was not answered, and may never be.
	Lost(id rss.ProcID)
}

// Goal is the use of a limit, as it counts, that is enough.
type Goal struct {
	Used  rss.Bytes // its use then
	Below rss.Bytes // where it is to come; 0: as far as that goes
	// Lags says that readings of the limit do not tell in time what was given
	// back, as those of PSS: then that alone is counted.
	Lags bool
}

// Bounds of a trim by ptrace.
const (
	// TakeDeadline is when a piece counts as unanswered. A stop takes
	// milliseconds; the tracer bounds every wait of it.
	TakeDeadline = 5 * time.Second
	// TracePause is how long a process is left alone that was at a bad moment.
	TracePause = time.Second
	// traceRetry is the pause before a process is asked again that was at a
	// brief bad moment, tracePatience for how long that goes on: the next may
	// have more luck meanwhile.
	traceRetry    = 10 * time.Millisecond
	tracePatience = 250 * time.Millisecond
	// traceGap is the longest pause between two stops of one process.
	traceGap = 2 * time.Millisecond
	// traceTries is how often one process is asked in the same action: a worker
	// that never sleeps must not put off what follows on the ladder.
	traceTries = 3
)

// result tells what was done. Where nothing was, the reason is that of the first
// who was refused, else why.
func (a *trace) result(why event.Reason) Result {
	trimmed, refused := 0, 0
	var reasons []string
	for _, e := range a.all {
		if e.trimmed {
			trimmed++
		}
		if e.Refused.Reason == event.ReasonNone {
			continue
		}
		if refused++; refused == 1 {
			why = e.Refused.Reason
		}
		if word := join(string(e.Refused.Reason), e.Refused.Detail); !slices.Contains(reasons, word) {
			reasons = append(reasons, word)
		}
	}
	r := Result{OK: trimmed > 0, Reason: why, Stopped: a.stopped}
	if r.OK {
		r.Reason = event.ReasonDone
		r.Detail = fmt.Sprintf("%s gave back %v of mapped pages, stopped for %.1f ms at most", text.Count(trimmed, "process"), a.freed, a.stopped.Seconds()*1e3)
	}
	if refused > 0 {
		r.Detail = join(r.Detail, fmt.Sprintf("%d refused (%s)", refused, strings.Join(reasons, ", ")))
	}
	return r
}
