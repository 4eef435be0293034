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
			Lead: func(r event.Rule, l *event.Limit) rss.Bytes {
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

// TestLeadInVain: a rule that fires before its rung is not tried again at every
// look where that brings nothing.
func TestLeadInVain(t *testing.T) {
	for name, test := range map[string]struct {
		done event.Outcome
		can  Help
		most int
	}{
		"in vain": {event.Outcome{OK: true, Reason: event.ReasonDone}, Help{OK: true}, 3},
		"dry run": {event.Outcome{Reason: event.ReasonDryRun}, Help{OK: true}, 3},
		"no help": {event.Outcome{}, Help{Reason: event.ReasonNoWorker}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(rules(t, "85%:trim"), Options{})
			decisions, skipped := 0, 0
			for now := time.Duration(0); now < time.Minute; now += 100 * time.Millisecond {
				res := s.Step(Input{
					Now: now, Limits: []event.Limit{slurm(70)}, Can: func(event.Rule, *event.Limit) Help { return test.can },
					Lead: func(event.Rule, *event.Limit) rss.Bytes { return 600 * rss.MiB },
				})
				decisions, skipped = decisions+len(res.Decisions), skipped+len(res.Skipped)
				for _, d := range res.Decisions {
					test.done.Decision, test.done.Before, test.done.After = d.ID, d.Used, d.Used
					s.Done(test.done)
				}
			}
			if decisions > test.most || skipped > 0 {
				t.Errorf("%d decisions and %d skipped in a minute, want %d at most and none", decisions, skipped, test.most)
			}
		})
	}
}
