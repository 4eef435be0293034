package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestLead: where growth goes on until an action takes effect, its rule fires
// before the rung, by as much, and says so.
func TestLead(t *testing.T) {
	lead := 300 * rss.MiB // 10 points
	s := New(rules(t, "80%:warn\n85%:trim\n90%:recycle"), Options{})
	step := func(now time.Duration, percent float64) []event.Decision {
		return s.Step(Input{
			Now: now, Limits: []event.Limit{slurm(percent)}, Can: canAll,
			Lead: func(r Rule, l *event.Limit) rss.Bytes {
				if r.Action != event.ActionTrim {
					return 0
				}
				return lead
			},
		}).Decisions
	}
	if d := step(0, 74); len(d) != 0 {
		t.Fatalf("at 74 %%: %+v", d)
	}
	d := step(time.Second, 76)
	if len(d) != 1 || d[0].Rule != "85%:trim" || d[0].Lead != lead || d[0].Used >= d[0].Threshold {
		t.Fatalf("at 76 %%: %+v, want the trim alone", d)
	}
	// One at a time.
	if d := step(2*time.Second, 78); len(d) != 0 {
		t.Fatalf("in flight: %+v", d)
	}
	s.Done(event.Outcome{Decision: d[0].ID, OK: true, Reason: event.ReasonDone, Before: d[0].Used, After: (3000 * rss.MiB).Scale(0.5), Freed: rss.GiB})
	if d := step(3*time.Second, 60); len(d) != 0 {
		t.Fatalf("at 60 %%: %+v", d)
	}
	if d := step(6*time.Second, 76); len(d) != 1 || d[0].Lead != lead {
		t.Fatalf("at 76 %% again: %+v", d)
	}
	s.Done(event.Outcome{Decision: s.InFlight(), Reason: event.ReasonNothing})
	// Beyond the rung nothing is ahead of it.
	d = step(40*time.Second, 86)
	for _, d := range d {
		if d.Lead != 0 {
			t.Errorf("at 86 %%: %+v", d)
		}
	}
	if len(d) == 0 {
		t.Error("at 86 %: nothing")
	}
}
