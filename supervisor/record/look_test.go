package record

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestForkStorm: of a job that starts thousands of processes a second for hours
// the record is bounded, and a look does not cost more for it.
func TestForkStorm(t *testing.T) {
	tab := NewSampler(1)
	var into Sample
	size, pid := 0, 1000
	workers := []rss.Proc{{ID: rss.ProcID{PID: 1}, Comm: "pt_data_worker", Role: rss.RoleWorker, Anon: rss.GiB, RSS: rss.GiB}}
	for n := range 1000 {
		l := &Look{At: time.Duration(n) * time.Second, Sample: &rss.Sample{Procs: slices.Clone(workers)}}
		for range 200 {
			pid++
			l.Sample.Procs = append(l.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: pid}, Comm: "sh", Role: rss.RoleOther, Anon: rss.MiB, RSS: rss.MiB})
		}
		tab.Sample(l, &into)
		for _, it := range tab.Take() {
			size += len(it.Value)
		}
		sum := rss.Bytes(0)
		for i := range into.Procs {
			sum += into.Procs[i].RSS()
		}
		var want rss.Bytes
		for i := range l.Sample.Procs {
			want += l.Sample.Procs[i].RSS
		}
		if sum != want {
			t.Fatalf("look %d: %v in all, want %v", n, sum, want)
		}
	}
	if size > 16<<20 || len(tab.procs) > 4096 {
		t.Errorf("%d bytes of processes, %d kept in mind", size, len(tab.procs))
	}
	l := &Look{Sample: &rss.Sample{}} // of 10,000 processes each keeps its name
	for pid := range 10_000 {
		l.Sample.Procs = append(l.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: 2 + pid}, Comm: "python", Anon: rss.MiB, RSS: rss.MiB})
	}
	tab.count = mostProcs - 10_000
	tab.Sample(l, &into)
	best := time.Hour // of some: the machine may be busy
	for range 20 {
		began := time.Now()
		tab.Sample(l, &into)
		best = min(best, time.Since(began))
	}
	if best > 20*time.Millisecond {
		t.Errorf("a look at 10,000 processes takes %v", best)
	}
}

var must = wardentest.NoError
