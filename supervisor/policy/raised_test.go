package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// raised names the rungs that are crossed, and since when.
func raised(s *State, limits []event.Limit) (all []string) {
	for _, r := range s.Raised(limits) {
		read := ""
		if r.Limit == nil {
			read = ", not read"
		}
		all = append(all, fmt.Sprintf("%s since %v%s", r.Rule, r.Since, read))
	}
	return all
}

// TestRaised: a rung is raised from its crossing until it was left, whether or not its
// rule says or does something each time.
func TestRaised(t *testing.T) {
	s := New(rules(t, "80%:warn\n90%:recycle\n97%:warn"), Options{})
	for i, step := range []struct {
		percent float64
		can     bool
		want    []string
	}{
		{50, true, nil},
		{81, true, []string{"80%:warn since 10s"}},
		{76, true, []string{"80%:warn since 10s"}}, // not left by enough
		{74, true, nil},
		{81, true, []string{"80%:warn since 40s"}}, // its warning is too soon after the last
		{91, false, []string{"80%:warn since 40s"}},
		{91, true, []string{"80%:warn since 40s", "90%:recycle since 1m0s"}},
		{98, true, []string{"80%:warn since 40s", "90%:recycle since 1m0s", "97%:warn since 1m10s"}},
		{60, true, nil},
	} {
		now := time.Duration(i) * 10 * time.Second
		can := func(event.Rule, *event.Limit) Help {
			return Help{OK: step.can, Gain: rss.GiB, Reason: map[bool]event.Reason{false: event.ReasonNoWorker}[step.can]}
		}
		res := s.Step(Input{Now: now, Limits: []event.Limit{slurm(step.percent)}, Can: can})
		if got := raised(s, res.Limits); !slices.Equal(got, step.want) {
			t.Errorf("at %v %%: %q, want %q", step.percent, got, step.want)
		}
		for _, d := range res.Decisions {
			s.Done(event.Outcome{Decision: d.ID, OK: true, Reason: event.ReasonDone, Before: d.Used, After: d.Used, Freed: rss.GiB})
		}
	}
}

// TestRaisedHandedOver: who takes over has raised what was.
func TestRaisedHandedOver(t *testing.T) {
	s := New(rules(t, "80%:warn"), Options{})
	s.Step(Input{Now: 5 * time.Second, Limits: []event.Limit{slurm(85)}, Can: canAll})
	m := s.Snapshot(10*time.Second, 100*time.Second, 0)
	m.Step = "0"
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseMemory(data)
	if err != nil || read.Step != "0" {
		t.Fatalf("%+v, %v", read, err)
	}
	next := New(rules(t, "80%:warn"), Options{})
	next.Restore(read, 20*time.Second, 130*time.Second, nil)
	if got, want := raised(next, nil), []string{"80%:warn since -15s, not read"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRaisedNotAhead: what a rule did before its rung was crossed is no alert.
func TestRaisedNotAhead(t *testing.T) {
	s := New(rules(t, "85%:trim"), Options{})
	res := s.Step(Input{
		Now: 0, Limits: []event.Limit{slurm(76)}, Can: canAll,
		Lead: func(event.Rule, *event.Limit) rss.Bytes { return 300 * rss.MiB },
	})
	if len(res.Decisions) != 1 || len(s.Raised(res.Limits)) != 0 {
		t.Errorf("%d decisions, %q", len(res.Decisions), raised(s, res.Limits))
	}
}
