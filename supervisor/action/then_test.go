package action

import (
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ended is an action that has ended.
type ended Result

func (e ended) Step(World) (Result, bool) { return Result(e), true }

func TestThen(t *testing.T) {
	first := ended{OK: true, Reason: event.ReasonDone, Detail: "a", Paused: 3}
	for name, c := range map[string]struct {
		first ended
		next  Running
		want  Result
	}{
		"was enough":    {first, nil, Result(first)},
		"both":          {first, ended{OK: true, Reason: event.ReasonDone, Detail: "b", Stopped: 4}, Result{OK: true, Reason: event.ReasonDone, Detail: "a; b", Paused: 3, Stopped: 4}},
		"the second no": {first, ended{Reason: event.ReasonTraced, Detail: "b"}, Result{OK: true, Reason: event.ReasonDone, Detail: "a; b", Paused: 3}},
		"neither":       {ended{Reason: event.ReasonTimeout, Detail: "a"}, ended{Reason: event.ReasonTraced}, Result{Reason: event.ReasonTraced, Detail: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, done := Then(c.first, func(World) Running { return c.next }).Step(World{})
			if !done || r != c.want {
				t.Errorf("done %v, %+v; want %+v", done, r, c.want)
			}
		})
	}
	t.Run("one after the other", func(t *testing.T) {
		f := &fakeTracer{}
		a := Then(Trim(&fakeLoader{}, []int{14}, 0), func(World) Running {
			return Trace(f, mappers(11), Goal{Used: 900 * mib, Below: 850 * mib}, 0)
		})
		w := read(1, 900*mib)
		follow(t, a, []look{{w: w}})
		if len(f.planned) != 0 {
			t.Fatal("the second was begun before the first has ended")
		}
		answered := w
		answered.Said = []Said{said(event.LoaderTrimmed, 7, 14, 0)}
		follow(t, a, []look{
			{w: answered},
			{w: w.with(0, planOf(11, 60*mib), nil)},
			{w: w.with(0, nil, gave(1, 0))},
		})
		if !Awaits(a) {
			t.Error("no reading is asked for")
		}
		follow(t, a, []look{{w: read(2, 840*mib), done: true, want: event.ReasonDone}})
	})
}
