package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestRecall: the ladder judges by a forecast that it is given, also by none.
func TestRecall(t *testing.T) {
	s := New(rules(t, "eta<10m:warn"), Options{})
	l := slurm(70)
	step := func(now, eta time.Duration, ok bool) Result {
		s.Recall(now, &l, eta, ok)
		return s.Step(Input{Now: now, Limits: []event.Limit{l}})
	}
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		l.Used += l.Limit / 4000 // by itself the ladder would forecast
		if res := step(now, 0, false); len(res.Decisions) > 0 || res.Limits[0].ETA != nil {
			t.Fatalf("after %v: %+v", now, res)
		}
	}
	if res := step(10*time.Minute, 11*time.Minute, true); len(res.Decisions) > 0 || *res.Limits[0].ETA != 660 {
		t.Errorf("11 minutes: %+v", res)
	}
	if res := step(10*time.Minute+time.Second, 9*time.Minute, true); len(res.Decisions) != 1 || *res.Decisions[0].ETA != 540 {
		t.Errorf("9 minutes: %+v", res)
	}
	l = slurm(40)
	if res := step(11*time.Minute, time.Minute, true); res.Limits[0].ETA != nil {
		t.Errorf("below half: %+v", res.Limits)
	}
}

// TestMoves: a step that changes what the ladder remembers is told before it.
func TestMoves(t *testing.T) {
	c := newScript(t, "80%:warn\n85%:trim\n90%:signal=USR2")
	moves := func(percent float64, want bool) {
		t.Helper()
		if got := c.s.Moves([]event.Limit{slurm(percent)}); got != want {
			t.Fatalf("at %v, %v %%: moves %v", c.now, percent, got)
		}
	}
	moves(50, false)
	c.want(c.at(second, slurm(86)), "80%:warn", "85%:trim")
	moves(86, false)
	moves(90, true) // begins to wait
	c.want(c.at(second, slurm(90)))
	moves(90, false)
	moves(70, true) // is left
	c.done(true, event.ReasonDone, 86, 82)
	moves(82, true) // has ended
	c.want(c.at(second, slurm(82)))
	moves(82, false)
	moves(79, true) // the trim is left, the warning not
	c.want(c.at(second, slurm(79)))
	moves(79, false)
	moves(74, true)
}
