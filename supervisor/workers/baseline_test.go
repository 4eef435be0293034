package workers

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestNeeds: what a worker reaches and keeps is needed, what comes with each batch is a
// leak, and each loader's workers have needs of their own.
func TestNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		own  func(batches int) rss.Bytes // MiB
		want rss.Bytes                   // the need that is learned, MiB
	}{
		"three batches": {func(n int) rss.Bytes { return rss.Bytes(min(n, 3)) * 8 }, 24},
		"a leak":        {func(n int) rss.Bytes { return rss.Bytes(n) * 5 }, 0},
		"leaks as well": {func(n int) rss.Bytes { return 20 + rss.Bytes(n)*5 }, 20},
		"a cache":       {func(n int) rss.Bytes { return rss.Bytes(min(n, 50)) }, 50},
		"nothing":       {func(int) rss.Bytes { return 0 }, 0},
		"gave it back":  {func(n int) rss.Bytes { return rss.Bytes(100 - min(n, 60)) }, 92},
	} {
		t.Run(name, func(t *testing.T) {
			f := staffed(11)
			f.see(proc(1, rss.GiB, 0), proc(11, rss.GiB, 0))
			e := f.staff[11]
			if !f.learning(e) {
				t.Error("it may report for a minute")
			}
			f.last.Mono = learnFor
			if f.learning(e) {
				t.Error("after that it will not")
			}
			for n := 8; n <= 128; n *= 2 {
				f.Grown(f.trainers[0].ID, 11, n, c.own(n/2)*rss.MiB, c.own(n)*rss.MiB)
			}
			f.last.Mono = 0
			if got, known := f.baselines.need(e.of); got != c.want*rss.MiB || !known || !f.NeedKnown(11) || f.learning(e) {
				t.Errorf("needs %v, want %v; learning: %v", got, c.want*rss.MiB, f.learning(e))
			}
			if got, _ := f.baselines.need(loaderKey{f.trainers[0].ID, 2}); got != c.want*rss.MiB {
				t.Errorf("a loader of which nothing is known needs %v, want as much as another of that trainer", got)
			}
			if got, known := f.baselines.need(loaderKey{}); got != 0 || known {
				t.Errorf("a pool's worker needs %v", got)
			}
		})
	}
}

// TestGrownBeforeTheFirstLook: what workers reported before they were ever seen is learned
// from: a watcher that was started again reads it together with whose they are, and the
// next report may be hours away.
func TestGrownBeforeTheFirstLook(t *testing.T) {
	f := staffed(11)
	for n := 8; n <= 8192; n *= 2 {
		f.Grown(f.trainers[0].ID, 11, n, 20*rss.MiB, 20*rss.MiB)
	}
	f.see(proc(1, 200*rss.MiB, 0), proc(11, 220*rss.MiB, 0))
	if own, known := f.baselines.need(f.staff[11].of); !known || own != 20*rss.MiB {
		t.Errorf("it needs %v, known: %v", own, known)
	}
}

// TestGrownUnknown: a report about no worker, or of no batches, changes nothing.
func TestGrownUnknown(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, rss.GiB, 0), proc(11, rss.GiB, 0))
	for _, c := range []struct {
		trainer, worker, batches int
	}{{1, 12, 8}, {2, 11, 8}, {1, 11, 0}} {
		f.Grown(rss.ProcID{PID: c.trainer, Start: 1}, c.worker, c.batches, 0, rss.GiB)
		if len(f.baselines) > 0 {
			t.Errorf("learned %v from %+v", f.baselines, c)
		}
	}
}
