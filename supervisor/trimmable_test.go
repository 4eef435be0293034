package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// TestTrimmable holds that what a trim could not take is not counted on again:
// libraries, and private mappings where those are to be left alone.
func TestTrimmable(t *testing.T) {
	f := newWorkforce("/proc")
	last := &rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 11, Start: 1}, State: 'S', File: 900 * rss.MiB, Shmem: 50 * rss.MiB}}}
	m := policy.Worker{ID: last.Procs[0].ID, Mapped: 900 * rss.MiB, CountedMapped: 900 * rss.MiB}
	half := m
	half.CountedMapped = 450 * rss.MiB // as PSS has it, shared by two
	if got := f.trimmable(m); got != 900*rss.MiB-trimFloor {
		t.Errorf("before any trim: %v", got)
	}
	s := loader.Said{After: 850 * rss.MiB}
	s.What, s.PID, s.Worker = event.LoaderTrimmed, 11, 11
	f.trimmed(&s, last)
	if got := f.trimmable(m); got != 100*rss.MiB {
		t.Errorf("after one that left 800 MiB: %v", got)
	}
	if got := f.trimmable(half); got != 50*rss.MiB {
		t.Errorf("in PSS: %v", got)
	}
	s.After = 2 * rss.GiB
	f.trimmed(&s, last)
	if got := f.trimmable(m); got != 0 {
		t.Errorf("nothing can be taken: %v", got)
	}
	s.Worker, s.After = 12, rss.MiB
	f.trimmed(&s, last) // not in the sample
	f.mark(&rss.Sample{}, nil, nil)
	if len(f.left) != 0 {
		t.Errorf("kept of processes that ended: %v", f.left)
	}
}
