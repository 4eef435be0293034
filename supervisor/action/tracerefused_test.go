package action

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestTraceRefusals(t *testing.T) {
	goal := Goal{Used: 900 * mib, Below: 800 * mib}
	w := read(1, 900*mib)
	t.Run("lasting", func(t *testing.T) {
		f := &fakeTracer{}
		a := Trace(f, mappers(11, 12), goal, 0)
		r := follow(t, a, []look{
			{w: w},
			{w: w.with(0, noPlan(11, event.ReasonDevice), nil)},
			{w: w.with(0, noPlan(12, event.ReasonDevice), nil), done: true, want: event.ReasonDevice},
		})
		if r.OK || r.Detail != "2 refused (has a GPU or InfiniBand device open)" || !slices.Equal(f.planned, []int{11, 12}) {
			t.Errorf("%+v, planned %v", r, f.planned)
		}
	})
	t.Run("passing", func(t *testing.T) {
		f := &fakeTracer{}
		a := Trace(f, mappers(11, 12), goal, 0)
		follow(t, a, []look{
			{w: w},
			{w: w.with(0, noPlan(11, event.ReasonTraced), nil)},
			{w: w.with(0, planOf(12, mib), nil)},
			{w: w.with(0, nil, gave(1, 0))}, // nobody is left but who has just been asked
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
		f := &fakeTracer{}
		a := Trace(f, mappers(11), goal, 0)
		follow(t, a, []look{
			{w: w},
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
		f := &fakeTracer{}
		a := Trace(f, mappers(11), goal, 0)
		follow(t, a, []look{
			{w: w},
			{w: w.with(0, planOf(11, mib), nil)},
			{w: w.with(0, nil, []Taken{{Request: 1, Refused: refusal(event.ReasonChanged)}})}, // again after the pause
		})
		if len(f.over) != 1 || f.over[0].Refused.Reason != event.ReasonChanged {
			t.Errorf("over %+v", f.over)
		}
	})
	t.Run("of everybody", func(t *testing.T) {
		f := &fakeTracer{}
		a := Trace(f, mappers(11, 12, 13), goal, 0)
		follow(t, a, []look{
			{w: w},
			{w: w.with(0, []Planned{{ID: pid(11), Refused: Refused{Reason: event.ReasonYama, All: true}}}, nil), done: true, want: event.ReasonYama},
		})
		if len(f.planned) != 1 {
			t.Errorf("planned %v", f.planned)
		}
	})
}

// TestTraceRetriesAtBriefBadMoments: a worker sleeps now and then, and is asked
// again before the others have their turn.
func TestTraceRetriesAtBriefBadMoments(t *testing.T) {
	goal := Goal{Used: 900 * mib, Below: 800 * mib}
	w := read(1, 900*mib)
	busy := Refused{Reason: event.ReasonNoSleeper, Passing: true, Brief: true}
	t.Run("a piece", func(t *testing.T) {
		f := &fakeTracer{}
		a := Trace(f, mappers(11, 12), goal, 0)
		follow(t, a, []look{
			{w: w},
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
		f := &fakeTracer{}
		a := Trace(f, mappers(11, 12), goal, 0)
		refused := []Planned{{ID: pid(11), Refused: busy}}
		follow(t, a, []look{
			{w: w},
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
