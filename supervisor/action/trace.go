package action

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Trace takes the mapped file pages of these processes, one after the other and
// piece by piece, until the goal is reached, nothing is left, or at its deadline.
func Trace(t Stopper, mappers []Mapper, goal Goal, now time.Duration) Running {
	a := &trace{t: t, goal: goal, used: goal.Used, deadline: now + TrimDeadline}
	for _, m := range mappers {
		a.queue = append(a.queue, tracee{Mapper: m})
	}
	return a
}

// Awaits says that an action needs a new sample to go on, and nothing else.
func Awaits(r Running) bool {
	a, ok := r.(interface{ Awaits() bool })
	return ok && a.Awaits()
}

// Wakes is when an action has to be looked at again although nothing has come
// for it, 0 where samples are often enough.
func Wakes(r Running) time.Duration {
	if a, ok := r.(interface{ Wakes() time.Duration }); ok {
		return a.Wakes()
	}
	return 0
}

// tracee is a process that is, or waits, to be traced.
type tracee struct {
	Mapper
	tries int
	from  time.Duration // not before
}

// trace is the state of [Trace]: of cur is either a plan awaited, or a piece, or
// neither while a new sample is, or the next moment.
type trace struct {
	t        Stopper
	goal     Goal
	deadline time.Duration
	queue    []tracee

	cur     *tracee // nil between two
	traced  Traced
	planned bool
	pieces  []trim.Piece // of cur
	next    int          // index of the first that was not asked for
	asked   int          // how many the request in flight is for, those before it
	request uint64       // in flight, 0 for none
	askedAt time.Duration
	from    time.Duration // nothing is asked for before
	waited  time.Duration // at brief bad moments that followed each other
	again   bool          // the plan is to be asked for again
	awaits  bool          // a sample, which is to show what was freed in all

	used         rss.Bytes // as last read
	seq          uint64    // of that sample
	since, given rss.Bytes // given back since then, and in all, as the limit counts

	trimmed map[rss.ProcID]bool
	freed   rss.Bytes
	refused []Traced // the last refusal of each that has one
	stopped time.Duration
}

func (a *trace) Awaits() bool { return a.awaits }

func (a *trace) Wakes() time.Duration {
	if a.cur == nil || a.request != 0 || a.awaits || !a.planned && !a.again {
		return 0
	}
	return a.from
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
		switch late := w.Now >= a.deadline; {
		case a.request != 0:
			if w.Now < a.askedAt+TakeDeadline {
				return Result{}, false
			}
			a.t.Lost(a.cur.ID)
			a.over(Refused{Reason: event.ReasonTimeout}, w.Now)
			r := a.result(event.ReasonTimeout)
			r.OK, r.Reason = false, event.ReasonTimeout
			return r, true
		case a.cur != nil && !a.planned && late:
			a.over(Refused{Reason: event.ReasonTimeout, Passing: a.again}, w.Now)
		case a.again && w.Now >= a.from:
			a.again = false
			a.t.Plan(a.cur.ID)
		case a.cur != nil && !a.planned:
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
		case a.next < len(a.pieces) && w.Now < a.from:
			return Result{}, false
		case a.next < len(a.pieces):
			a.take(w.Now)
		case a.cur != nil:
			a.traced.Whole = a.traced.Pieces == len(a.pieces)
			a.over(Refused{}, w.Now)
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
	for i := range a.queue {
		e := a.queue[i]
		if w.Now < e.from {
			continue
		}
		a.queue = slices.Delete(a.queue, i, i+1)
		if !w.lives(e.ID) {
			return true
		}
		a.cur, a.traced, a.planned, a.from, a.waited = &e, Traced{ID: e.ID}, false, 0, 0
		a.cur.tries++
		a.t.Plan(e.ID)
		return true
	}
	return false
}

// lives says whether a process is still in the sample.
func (w *World) lives(id rss.ProcID) bool {
	if w.Sample == nil {
		return true
	}
	p := w.Sample.Find(id.PID)
	return p != nil && p.ID == id
}

func (a *trace) takePlan(p Planned, now time.Duration) {
	if a.cur == nil || a.planned || p.ID != a.cur.ID {
		return // of an action that has ended
	}
	switch {
	case p.Refused.Reason == event.ReasonNone:
		a.planned, a.pieces, a.waited = true, p.Pieces, 0
	case a.bear(p.Refused, now):
		a.again = true
	default:
		a.over(p.Refused, now)
	}
}

// bear says whether a refusal is worth another try in a moment.
func (a *trace) bear(r Refused, now time.Duration) bool {
	if !r.Brief || a.waited >= tracePatience {
		return false
	}
	a.waited += traceRetry
	a.from = now + traceRetry
	return true
}

func (a *trace) take(now time.Duration) {
	request, n, err := a.t.Take(a.pieces[a.next:])
	if err != nil {
		a.over(Refused{Reason: event.ReasonError, Detail: err.Error()}, now)
		return
	}
	a.next += n
	a.request, a.asked, a.askedAt = request, n, now
}

func (a *trace) answer(p Taken, now time.Duration) {
	if a.request == 0 || p.Request != a.request {
		return
	}
	a.request = 0
	a.traced.Stopped = max(a.traced.Stopped, p.Stopped)
	a.stopped = max(a.stopped, p.Stopped)
	switch why := p.Refused.Reason; {
	case why == event.ReasonNone:
		// A process with much to give back runs half of the time. On a busy node stops
		// are long, and waiting as long would help no process.
		a.from, a.waited = now+min(p.Stopped, traceGap), 0
		a.traced.Pieces += a.asked
		for _, piece := range a.pieces[a.next-a.asked : a.next] {
			given := piece.Resident.Scale(a.cur.Share)
			a.since, a.given = a.since+given, a.given+given
		}
	case a.bear(p.Refused, now):
		a.next -= a.asked
	case why == event.ReasonChanged:
		// What was planned of this piece is not there any more; others may be.
	default:
		a.over(p.Refused, now)
	}
}

// leave is over for whatever process it has come to.
func (a *trace) leave(now time.Duration) {
	if a.cur != nil {
		a.traced.Whole = a.traced.Pieces == len(a.pieces)
		a.over(Refused{}, now)
	}
}

// over leaves the process that was traced, with the reason for it where that is
// none of ours. One at a bad moment has its turn again, after the others.
func (a *trace) over(why Refused, now time.Duration) {
	e := *a.cur
	if why.Reason == event.ReasonNone && a.traced.Pieces == 0 && len(a.pieces) > 0 && a.next > 0 {
		why = Refused{Reason: event.ReasonChanged, Passing: true}
	}
	a.traced.Refused = why
	freed := a.t.Over(a.traced)
	if a.traced.Pieces > 0 {
		if a.trimmed == nil {
			a.trimmed = map[rss.ProcID]bool{}
		}
		a.trimmed[e.ID] = true
		a.freed += freed
	}
	a.refused = slices.DeleteFunc(a.refused, func(t Traced) bool { return t.ID == e.ID })
	if why.Reason != event.ReasonNone {
		a.refused = append(a.refused, a.traced)
	}
	a.cur, a.pieces, a.next, a.request, a.again = nil, nil, 0, 0, false
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
	Over(Traced) rss.Bytes
	// Lost says that a piece was not answered, and may never be.
	Lost(id rss.ProcID)
}

// Mapper is a process with mapped file pages to give back.
type Mapper struct {
	ID rss.ProcID
	// Share is which part of what it gives back the limit counts: 1 for RSS.
	Share float64
}

// Planned is what a process has to give back.
type Planned struct {
	ID      rss.ProcID
	Pieces  []trim.Piece // in the order in which they are to be taken
	Refused Refused
}

// Taken is the answer to one piece.
type Taken struct {
	Request uint64
	Refused Refused
	Stopped time.Duration // how long the process was stopped
}

// Refused says why a process is not touched; the zero value that it is.
type Refused struct {
	Reason event.Reason
	Detail string
	// Passing says that it was only at a bad moment, and Brief that moments
	// change within milliseconds.
	Passing, Brief bool
	// All says that no other process can be touched either.
	All bool
}

// Traced is what came of one process.
type Traced struct {
	ID      rss.ProcID
	Pieces  int           // taken
	Whole   bool          // there was no other
	Stopped time.Duration // how long it was stopped at most
	Refused Refused
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
	r := Result{OK: len(a.trimmed) > 0, Reason: event.ReasonDone, Stopped: a.stopped}
	if !r.OK {
		r.Reason = why
		if len(a.refused) > 0 {
			r.Reason = a.refused[0].Refused.Reason
		}
	}
	if n := len(a.trimmed); n > 0 {
		plural := "es"
		if n == 1 {
			plural = ""
		}
		r.Detail = fmt.Sprintf("%d process%s gave back %v of mapped pages, stopped for %.1f ms at most", n, plural, a.freed, a.stopped.Seconds()*1e3)
	}
	var reasons []string
	for _, t := range a.refused {
		text := join(string(t.Refused.Reason), t.Refused.Detail)
		if !slices.Contains(reasons, text) {
			reasons = append(reasons, text)
		}
	}
	if n := len(a.refused); n > 0 {
		r.Detail = join(r.Detail, fmt.Sprintf("%d refused (%s)", n, strings.Join(reasons, ", ")))
	}
	return r
}
