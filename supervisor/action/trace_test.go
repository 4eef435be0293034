package action

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// fakeTracer notes what it is asked. Every process gives back 100 MiB in all.
type fakeTracer struct {
	planned []int // PIDs
	taken   []int // index of each piece
	over    []Tracee
	err     error
	joins   int // how many pieces one request is for, 1 where 0
}

func (f *fakeTracer) Plan(id rss.ProcID) { f.planned = append(f.planned, id.PID) }
func (f *fakeTracer) Take(pieces []trim.Piece) (uint64, int, error) {
	f.taken = append(f.taken, int(pieces[0].Lo))
	return uint64(len(f.taken)), max(f.joins, 1), f.err
}
func (f *fakeTracer) Over(t Tracee) rss.Bytes {
	f.over = append(f.over, t)
	return 100 * rss.MiB
}
func (f *fakeTracer) Lost(rss.ProcID) {}

func pid(n int) rss.ProcID { return rss.ProcID{PID: n, Start: 1} }

func tracees(pids ...int) []*Tracee {
	var all []*Tracee
	for _, n := range pids {
		all = append(all, &Tracee{ID: pid(n), Share: 1})
	}
	return all
}

func planOf(n int, resident ...rss.Bytes) []Planned {
	p := Planned{ID: pid(n)}
	for i, r := range resident {
		p.Pieces = append(p.Pieces, trim.Piece{Lo: uint64(i), Resident: r})
	}
	return []Planned{p}
}

func refusal(reason event.Reason) Refused {
	passing := []event.Reason{event.ReasonTraced, event.ReasonNoSleeper, event.ReasonChanged}
	return Refused{Reason: reason, Passing: slices.Contains(passing, reason)}
}

func noPlan(n int, reason event.Reason) []Planned {
	return []Planned{{ID: pid(n), Refused: refusal(reason)}}
}

// gave is the answer to a request, after so many milliseconds of standing still.
func gave(request uint64, ms int) []Taken {
	return []Taken{{Request: request, Stopped: time.Duration(ms) * time.Millisecond}}
}

// read is a sample in which 11 to 19 all live, with the use of the limit.
func read(seq uint64, used rss.Bytes) World {
	s := tree(11, 12, 13, 14, 15)
	s.Seq = seq
	return World{Sample: s, Used: used}
}

// with is a world with something in it that came since.
func (w World) with(now time.Duration, p []Planned, t []Taken) World {
	w.Now, w.Planned, w.Taken = now, p, t
	return w
}

const mib = rss.MiB

var goal = Goal{Used: 900 * mib, Below: 800 * mib}

// traced is a trace of these processes that has asked for the first plan.
func traced(t *testing.T, pids ...int) (*fakeTracer, Running) {
	t.Helper()
	f := &fakeTracer{}
	a := Trace(f, tracees(pids...), goal, 0)
	follow(t, a, []look{{w: read(1, goal.Used)}})
	return f, a
}

func TestTraceStopsAtTheGoal(t *testing.T) {
	const ms = time.Millisecond
	f, a := traced(t, 11, 12)
	before := read(1, 900*mib)
	follow(t, a, []look{
		{w: before.with(0, planOf(12, mib), nil)},            // was not asked for
		{w: before.with(0, planOf(11, 60*mib, 60*mib), nil)}, // asks for the first piece
		{w: before.with(0, nil, gave(9, 0))},                 // was not asked for
		{w: before.with(2*ms, nil, gave(1, 1))},
	})
	if at := Wakes(a); at != 3*ms || len(f.taken) != 1 {
		t.Fatalf("goes on at %v after %d pieces, want that the process runs for as long as it was stopped", at, len(f.taken))
	}
	follow(t, a, []look{
		{w: before.with(3*ms, nil, nil)},
		{w: before.with(5*ms, nil, gave(2, 3))}, // 780 by now, as far as that can be told
	})
	if !Awaits(a) || Wakes(a) != 0 {
		t.Fatal("no reading is asked for that shows what was given back")
	}
	follow(t, a, []look{{w: before.with(6*ms, nil, nil)}})
	// Others have grown meanwhile: on to the next.
	grown := read(2, 850*mib)
	follow(t, a, []look{
		{w: grown.with(9*ms, nil, nil)},
		{w: grown.with(9*ms, planOf(12, 64*mib, 64*mib, 64*mib), nil)},
		{w: grown.with(9*ms, nil, gave(3, 2))},
	})
	if !Awaits(a) {
		t.Fatal("no reading is asked for a second time")
	}
	r := follow(t, a, []look{{w: read(3, 790*mib).with(10*ms, nil, nil), done: true, want: event.ReasonDone}})
	if !slices.Equal(f.planned, []int{11, 12}) || !slices.Equal(f.taken, []int{0, 1, 0}) {
		t.Errorf("plans of %v, pieces %v", f.planned, f.taken)
	}
	if !r.OK || r.Stopped != 3*ms || r.Detail != "2 processes gave back 200 MiB of mapped pages, stopped for 3.0 ms at most" {
		t.Errorf("result %+v", r)
	}
	if len(f.over) != 2 || !f.over[0].Whole || f.over[1].Whole || f.over[1].Pieces != 1 {
		t.Errorf("over %+v", f.over)
	}
}

// TestTraceJoins: one stop may take several pieces, and all of them count.
func TestTraceJoins(t *testing.T) {
	f := &fakeTracer{joins: 2}
	a := Trace(f, tracees(11), Goal{Used: 900 * mib, Below: 800 * mib}, 0)
	w := read(1, 900*mib)
	follow(t, a, []look{
		{w: w},
		{w: w.with(0, planOf(11, 60*mib, 60*mib, 60*mib, 60*mib), nil)},
		{w: w.with(0, nil, gave(1, 0))}, // 780 by now
	})
	if !Awaits(a) {
		t.Fatal("no reading is asked for that shows what was given back")
	}
	follow(t, a, []look{
		{w: read(2, 880*mib)}, // others have grown
		{w: read(2, 880*mib).with(0, nil, gave(2, 0))},
	})
	if !slices.Equal(f.taken, []int{0, 2}) || len(f.over) != 0 && !f.over[0].Whole {
		t.Errorf("pieces %v, over %+v", f.taken, f.over)
	}
}

// TestTraceCountsWhereReadingsLag: PSS is read seconds later, and what is given
// back counts a part of what was resident.
func TestTraceCountsWhereReadingsLag(t *testing.T) {
	f := &fakeTracer{}
	a := Trace(f, []*Tracee{{ID: pid(11), Share: 0.25}}, Goal{Used: 900 * mib, Below: 880 * mib, Lags: true}, 0)
	w := read(1, 950*mib) // at most
	follow(t, a, []look{
		{w: w},
		{w: w.with(0, planOf(11, 64*mib, 64*mib, 64*mib), nil)},
		{w: w.with(0, nil, gave(1, 0))}, // 884
	})
	r := follow(t, a, []look{{w: w.with(0, nil, gave(2, 0)), done: true, want: event.ReasonDone}})
	if !r.OK || len(f.taken) != 2 {
		t.Errorf("result %+v after %d pieces", r, len(f.taken))
	}
}

func TestTraceTakesAllWhereNoAmountIsEnough(t *testing.T) {
	f := &fakeTracer{}
	a := Trace(f, tracees(11), Goal{Used: 900 * mib}, 0)
	w := read(1, 900*mib)
	r := follow(t, a, []look{
		{w: w},
		{w: w.with(0, planOf(11, 500*mib, 500*mib), nil)},
		{w: w.with(0, nil, gave(1, 0))},
		{w: w.with(0, nil, gave(2, 0)), done: true, want: event.ReasonDone},
	})
	if !r.OK || len(f.over) != 1 || !f.over[0].Whole {
		t.Errorf("%+v, over %+v", r, f.over)
	}
}

func TestTraceNotNeeded(t *testing.T) {
	f := &fakeTracer{}
	r := follow(t, Trace(f, tracees(11), goal, 0), []look{{w: read(1, 700*mib), done: true, want: event.ReasonRecovered}})
	if r.OK || len(f.planned) > 0 {
		t.Errorf("%+v, planned %v", r, f.planned)
	}
}

func TestTracePassesOverTheDead(t *testing.T) {
	if f, _ := traced(t, 99, 12); !slices.Equal(f.planned, []int{12}) {
		t.Errorf("planned %v", f.planned)
	}
}

func TestTraceDeadlines(t *testing.T) {
	w := read(1, 900*mib)
	t.Run("all", func(t *testing.T) {
		f, a := traced(t, 11, 12)
		r := follow(t, a, []look{
			{w: w.with(0, planOf(11, mib, mib, mib), nil)},
			// One that is on its way is waited for.
			{w: w.with(TakeDeadline-1, nil, gave(1, 0))},
			{w: w.with(TrimDeadline-2, nil, nil)},
			{w: w.with(TrimDeadline, nil, gave(2, 0)), done: true, want: event.ReasonDone},
		})
		if !r.OK || len(f.taken) != 2 || f.over[0].Whole {
			t.Errorf("%+v, %d pieces, over %+v", r, len(f.taken), f.over)
		}
	})
	t.Run("a holder that takes nothing", func(t *testing.T) {
		f := &fakeTracer{err: errors.New("no link")}
		r := follow(t, Trace(f, tracees(11), goal, 0), []look{
			{w: w},
			{w: w.with(0, planOf(11, mib), nil), done: true, want: event.ReasonError},
		})
		if !strings.Contains(r.Detail, "no link") {
			t.Errorf("%+v", r)
		}
	})
}

func TestTraceRefusals(t *testing.T) {
	w := read(1, 900*mib)
	t.Run("passing", func(t *testing.T) {
		f, a := traced(t, 11, 12)
		follow(t, a, []look{
			{w: w.with(0, noPlan(11, event.ReasonTraced), nil)},
			{w: w.with(0, planOf(12, mib), nil)},
			{w: w.with(0, nil, gave(1, 0))}, // only the process that was just asked is left
			{w: w.with(TracePause-1, nil, nil)},
		})
		if !slices.Equal(f.planned, []int{11, 12}) {
			t.Fatalf("planned %v before the pause was over", f.planned)
		}
		r := follow(t, a, []look{
			{w: w.with(TracePause, nil, nil)},
			{w: w.with(TracePause, noPlan(11, event.ReasonTraced), nil)},
			{w: w.with(2*TracePause, nil, nil)},
			{w: w.with(2*TracePause, noPlan(11, event.ReasonTraced), nil), done: true, want: event.ReasonDone},
		})
		if !slices.Equal(f.planned, []int{11, 12, 11, 11}) {
			t.Errorf("planned %v, want three tries of the first", f.planned)
		}
		if want := "1 process gave back 100 MiB of mapped pages, stopped for 0.0 ms at most; 1 refused (traced already)"; r.Detail != want {
			t.Errorf("detail %q, want %q", r.Detail, want)
		}
	})
	t.Run("in the middle", func(t *testing.T) {
		f, a := traced(t, 11)
		follow(t, a, []look{
			{w: w.with(0, planOf(11, mib, mib, mib), nil)},
			{w: w.with(0, nil, gave(1, 0))},
			{w: w.with(0, nil, []Taken{{Request: 2, Refused: refusal(event.ReasonChanged)}})}, // others may be as they were
			{w: w.with(0, nil, []Taken{{Request: 3, Refused: refusal(event.ReasonUndumpable)}}), done: true, want: event.ReasonDone},
		})
		if len(f.over) != 1 || f.over[0].Pieces != 1 || f.over[0].Whole || f.over[0].Refused.Reason != event.ReasonUndumpable {
			t.Errorf("over %+v", f.over)
		}
	})
	t.Run("of all pieces", func(t *testing.T) {
		f, a := traced(t, 11)
		follow(t, a, []look{
			{w: w.with(0, planOf(11, mib), nil)},
			{w: w.with(0, nil, []Taken{{Request: 1, Refused: refusal(event.ReasonChanged)}})}, // again after the pause
		})
		if len(f.over) != 1 || f.over[0].Refused.Reason != event.ReasonChanged {
			t.Errorf("over %+v", f.over)
		}
	})
}

// TestTraceRetriesAtBriefBadMoments: a worker sleeps now and then, and is asked
// again before the others have their turn.
func TestTraceRetriesAtBriefBadMoments(t *testing.T) {
	w := read(1, 900*mib)
	busy := Refused{Reason: event.ReasonNoSleeper, Passing: true, Brief: true}
	t.Run("a piece", func(t *testing.T) {
		f, a := traced(t, 11, 12)
		follow(t, a, []look{
			{w: w.with(0, planOf(11, mib), nil)},
			{w: w.with(0, nil, []Taken{{Request: 1, Refused: busy}})},
		})
		if Wakes(a) != traceRetry || len(f.taken) != 1 || len(f.over) > 0 {
			t.Fatalf("goes on at %v, taken %v, over %v", Wakes(a), f.taken, f.over)
		}
		follow(t, a, []look{
			{w: w.with(traceRetry, nil, nil)},
			{w: w.with(traceRetry, nil, gave(2, 0))},
		})
		if !slices.Equal(f.taken, []int{0, 0}) || len(f.over) != 1 || f.over[0].Pieces != 1 || !slices.Equal(f.planned, []int{11, 12}) {
			t.Errorf("taken %v, over %v, planned %v", f.taken, f.over, f.planned)
		}
	})
	t.Run("a plan", func(t *testing.T) {
		f, a := traced(t, 11, 12)
		refused := []Planned{{ID: pid(11), Refused: busy}}
		follow(t, a, []look{
			{w: w.with(0, refused, nil)},
			{w: w.with(traceRetry-1, nil, nil)},
		})
		if Wakes(a) != traceRetry || !slices.Equal(f.planned, []int{11}) {
			t.Fatalf("goes on at %v, planned %v", Wakes(a), f.planned)
		}
		now := traceRetry
		for len(f.over) == 0 && now < time.Second {
			follow(t, a, []look{{w: w.with(now, nil, nil)}, {w: w.with(now, refused, nil)}})
			now += traceRetry
		}
		if now-traceRetry != tracePatience || f.planned[len(f.planned)-1] != 12 {
			t.Errorf("left after %v, planned %v", now-traceRetry, f.planned)
		}
	})
}
