package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestRecycleMode(t *testing.T) {
	for _, c := range []struct {
		headroom, fresh rss.Bytes
		want            event.Mode
	}{
		{300 * rss.MiB, 150 * rss.MiB, event.Swap},
		{300*rss.MiB - 1, 150 * rss.MiB, event.Drain},
		{0, 150 * rss.MiB, event.Drain},
		{rss.TiB, 0, event.Drain}, // nobody knows
	} {
		if got := RecycleMode(c.headroom, c.fresh); got != c.want {
			t.Errorf("headroom %v, fresh %v: %s, want %s", c.headroom, c.fresh, got, c.want)
		}
	}
}

func TestForkPauseAndWaiting(t *testing.T) {
	if got := ForkPause(0); got != 15*time.Millisecond {
		t.Errorf("nothing to copy: %v", got)
	}
	if got := ForkPause(2560 * rss.MiB); got != 37500*time.Microsecond {
		t.Errorf("2.5 GiB: %v, want 37.5ms", got)
	}
	long := ForkPause(30 * rss.GiB)
	for _, c := range []struct {
		what                string
		pause, eta, toEpoch time.Duration
		want                bool
	}{
		{"short pause", 200 * time.Millisecond, 0, time.Hour, false},
		{"no forecast", long, 0, 0, true},
		{"the epoch ends first", long, time.Hour, time.Minute, true},
		{"the limit comes first", long, time.Minute, time.Hour, false},
		{"nobody knows when the epoch ends", long, time.Hour, 0, false},
	} {
		if got := WaitForEpoch(c.pause, c.eta, c.toEpoch); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestPickWorker(t *testing.T) {
	const fresh = 130 * rss.MiB
	w := func(mib rss.Bytes, ago time.Duration) Worker {
		return Worker{Counted: mib * rss.MiB, RecycledAgo: ago}
	}
	for _, c := range []struct {
		what    string
		workers []Worker
		index   int
		gain    rss.Bytes
		reason  event.Reason
	}{
		{"none", nil, -1, 0, event.ReasonNoWorker},
		{"the largest", []Worker{w(500, 0), w(900, 0), w(700, 0)}, 1, 770 * rss.MiB, ""},
		{"the first of equals", []Worker{w(500, 0), w(500, 0)}, 0, 370 * rss.MiB, ""},
		{"not the one just recycled", []Worker{w(500, 0), w(900, 29*time.Second)}, 0, 370 * rss.MiB, ""},
		{"again after 30 s", []Worker{w(500, 0), w(900, 30*time.Second)}, 1, 770 * rss.MiB, ""},
		{"all just recycled", []Worker{w(500, time.Second)}, -1, 0, event.ReasonRecent},
		{"as small as a fresh one", []Worker{w(130, 0), w(140, time.Second)}, -1, 0, event.ReasonNothing},
		{"below 16 MiB", []Worker{w(145, 0)}, -1, 0, event.ReasonNothing},
		{"16 MiB", []Worker{w(146, 0)}, 0, 16 * rss.MiB, ""},
	} {
		index, gain, reason := PickWorker(c.workers, fresh, 16*rss.MiB)
		if index != c.index || gain != c.gain || reason != c.reason {
			t.Errorf("%s: %d, %v, %q; want %d, %v, %q", c.what, index, gain, reason, c.index, c.gain, c.reason)
		}
	}
}

// TestRecycleInVain: a recycle that brought too little does not keep its rung from
// firing once use has grown by what a recycle may bring, and keeps it until then.
func TestRecycleInVain(t *testing.T) {
	for name, c := range map[string]struct {
		freed rss.Bytes
		then  float64 // use in percent of 3000 MiB, a second later
		again bool
	}{
		"use stands still":   {2 * rss.MiB, 91, false},
		"it grew a little":   {2 * rss.MiB, 91.4, false},
		"it grew by as much": {2 * rss.MiB, 91.6, true},
		"enough was freed":   {100 * rss.MiB, 91, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(rules(t, "90%:recycle"), Options{})
			in := Input{Limits: []event.Limit{slurm(91)}, Can: canAll}
			d := s.Step(in).Decisions
			if len(d) != 1 {
				t.Fatalf("%+v", d)
			}
			s.Done(event.Outcome{Decision: d[0].ID, OK: true, Reason: event.ReasonDone, Before: d[0].Used, After: d[0].Used, Freed: c.freed})
			in.Limits = []event.Limit{slurm(c.then)}
			decided := false
			for in.Now = time.Second; in.Now < 10*time.Second; in.Now += time.Second {
				decided = decided || len(s.Step(in).Decisions) > 0
			}
			if decided != c.again {
				t.Errorf("fires again: %v, want %v", decided, c.again)
			}
		})
	}
}

// TestRecycleOfOneOfMany: of forty workers that leaked alike none gives back 5 % of what
// is wanted, and all of them give back twice that.
func TestRecycleOfOneOfMany(t *testing.T) {
	s := New(rules(t, "85%:trim\n90%:recycle"), Options{CoolDown: time.Millisecond})
	small := func(event.Rule, *event.Limit) Help { return Help{OK: true, Gain: 20 * rss.MiB} }
	in := Input{Limits: []event.Limit{slurm(99)}, Can: small}
	in.Limits[0].Limit, in.Limits[0].Used = 30*rss.GiB, (30 * rss.GiB).Scale(0.99)
	for n := range 5 {
		in.Now = time.Duration(n) * time.Second
		d := s.Step(in).Decisions
		if len(d) != 1 || d[0].Action != event.ActionRecycle {
			t.Fatalf("%d: %+v, want a recycle", n, d)
		}
		s.Done(event.Outcome{Decision: d[0].ID, OK: true, Reason: event.ReasonDone, Before: d[0].Used, After: d[0].Used - 20*rss.MiB, Freed: 20 * rss.MiB})
		in.Limits[0].Used -= 20 * rss.MiB
	}
}

// TestMinRecycle: what is worth a recycle is less where the limit is small.
func TestMinRecycle(t *testing.T) {
	for limit, want := range map[rss.Bytes]rss.Bytes{400 * rss.MiB: 2 * rss.MiB, 2000 * rss.MiB: 10 * rss.MiB, 3200 * rss.MiB: 16 * rss.MiB, rss.TiB: 16 * rss.MiB} {
		if got := event.MinRecycle(&event.Limit{Limit: limit}); got != want {
			t.Errorf("of %v: %v, want %v", limit, got, want)
		}
	}
}

// TestWorthOfATrim: what is wanted may be much more than what is left, and of a trim as
// much is enough as that is.
func TestWorthOfATrim(t *testing.T) {
	r := rules(t, "85%:trim")[0]
	const size = 8000 * rss.MiB
	for _, c := range []struct{ used, most, want rss.Bytes }{ // in MiB
		{7000, 7000, 30}, // 5 % of what is wanted, down to 80 %
		{7600, 7600, 60},
		{7960, 7960, 40},
		{7600, 7990, 16}, // nobody knows better
		{7999, 7999, 16},
	} {
		l := event.Limit{Limit: size, Used: c.used * rss.MiB, UsedMax: c.most * rss.MiB}
		if got := r.Worth(&l); got != c.want*rss.MiB {
			t.Errorf("at %v, %v at most: %v, want %d MiB", l.Used, l.UsedMax, got, c.want)
		}
	}
}
