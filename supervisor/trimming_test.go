package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestTrimByPtraceAheadOfGrowth: what grows fast is trimmed before its rung, by
// what it grows until that takes effect.
func TestTrimByPtraceAheadOfGrowth(t *testing.T) {
	s := tracedStand(t, 100*rss.MiB, 300*rss.MiB)
	s.open(s.holder.begin)
	l := &s.readings[0]
	if got := s.growthUntilTraced(l); got != 0 || s.flight != nil {
		t.Fatalf("nothing grows, and %v are expected; in flight %+v", got, s.flight)
	}
	if p := s.pause(s.now()); p > tracedPause {
		t.Errorf("the next look is in %v, want one in %v", p, tracedPause)
	}
	now := s.now()
	s.rate(l).Add(now+time.Second, l.Used+400*rss.MiB)
	s.later(time.Second)
	lead := s.growthUntilTraced(l)
	if lead < 100*rss.MiB || lead > 200*rss.MiB {
		t.Errorf("at 400 MiB a second %v are expected in half a second", lead)
	}
	s.tracer.times.add(50 * time.Millisecond)
	if got := s.growthUntilTraced(l); got < 20*rss.MiB || got > 40*rss.MiB {
		t.Errorf("%v are expected where the last trim took 50 ms", got)
	}
	s.tracer.times.add(10 * time.Second)
	if got := s.growthUntilTraced(l); got > l.Limit.Scale(mostLead) {
		t.Errorf("%v are expected, more than 15 points of %v", got, l.Limit)
	}
	for _, a := range []event.Action{event.ActionWarn, event.ActionRecycle} {
		if got := s.lead(event.Rule{Action: a}, l); got != 0 {
			t.Errorf("%s: %v", a, got)
		}
	}
	s.Settings.Trim = TrimHook
	if got := s.lead(event.Rule{Action: event.ActionTrim}, l); got != 0 {
		t.Errorf("by the hook, which has budgets: %v", got)
	}
}
