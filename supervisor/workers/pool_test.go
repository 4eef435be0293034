package workers

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestRespawns: the workers of a pool that lacks one are left alone, and for good
// where none takes its place in time.
func TestRespawns(t *testing.T) {
	const owner, other = 2, 3
	f := New(Options{Proc: t.TempDir()})
	f.Pools = *madeUpPools(nil, "")
	told := 0
	look := func(at time.Duration, pids ...int) []int {
		s := &rss.Sample{Mono: at, Procs: []rss.Proc{{ID: rss.ProcID{PID: 1, Start: 1}}}}
		for _, pid := range append([]int{owner, other}, pids...) {
			p := proc(pid, 10, 0)
			p.Parent = 1
			if pid > 10 {
				p.Parent = pid / 10
			}
			f.Pools.says(&p, pid > 10)
			f.readEnviron(t, &p, "")
			s.Procs = append(s.Procs, p)
		}
		told += len(f.Update(s, nil))
		var able []int
		for _, u := range f.Recyclable(event.AccountingRSS) {
			able = append(able, u.ID.PID)
		}
		return able
	}
	const late = time.Minute
	signalled := func(pid, size int) {
		f.Pools.Signalled(rss.ProcID{PID: pid / 10, Start: 1}, rss.ProcID{PID: pid, Start: 1}, size, late)
	}
	check := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v can be signalled, want %v", what, got, want)
		}
	}
	check("all", look(0, 21, 22, 31), 21, 22, 31)
	signalled(21, 2)
	check("it lives", look(time.Second, 21, 22, 31), 21, 22, 31)
	check("it has ended", look(2*time.Second, 22, 31), 31)
	check("it was replaced", look(3*time.Second, 22, 23, 31), 22, 23, 31)
	check("another leaves by itself", look(4*time.Second, 22, 31), 22, 31)
	signalled(22, 1)
	check("it ends late", look(9*late, 22, 31), 22, 31)
	check("it has", look(10*late, 31), 31)
	check("it is missing", look(11*late-1, 31), 31)
	if told != 0 {
		t.Errorf("told %d times too early", told)
	}
	check("no replacement in time", look(11*late, 31), 31)
	check("replacements too late", look(12*late, 23, 24, 31), 31)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0)}}
	if f.Update(s, nil); len(f.Pools.pending) != 0 {
		t.Errorf("of an owner that has ended, %v is known", f.Pools.pending)
	}
}
