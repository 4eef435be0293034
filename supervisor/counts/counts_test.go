package supervisor

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// look plays full looks, one a second of a clock of its own, until ok holds.
func (r *countReader) look(t *testing.T, now *time.Duration, procs []rss.Proc, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		*now += time.Second
		r.update(*now, procs)
		if r.Busy() {
			if !r.Wait(20 * time.Second) {
				t.Fatal("no count within 20 s")
			}
			r.taken()
		}
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v of looks: %+v", *now, r.readings(*now))
		}
	}
}

// TestCountsOfRealProcesses: 60,000 mappings and 500 descriptors are found, and
// who has them.
func TestCountsOfRealProcesses(t *testing.T) {
	limit, err := proctree.MapLimit("/proc")
	if err != nil || limit < 64000 || limit > 70000 {
		t.Skipf("vm.max_map_count is %d (%v), not the kernel's 65530", limit, err)
	}
	maps, fds := rsstest.StartEater(t), rsstest.StartEater(t)
	var procs []rss.Proc
	tree := proctree.New("/proc")
	read := func() {
		procs = procs[:0]
		for _, e := range []*rsstest.Eater{maps, fds} {
			p, err := tree.One(e.PID)
			if err != nil {
				t.Fatal(err)
			}
			p.Role = rss.RoleWorker
			procs = append(procs, p)
		}
	}
	read()
	r, now := newCountReader(new(probe.Set), "/proc"), time.Duration(0)
	few := func() bool {
		m, f := r.of(procs[0].ID)
		m2, f2 := r.of(procs[1].ID)
		return m > 0 && m < 5000 && f > 0 && f < 100 && m2 > 0 && f2 > 0
	}
	r.look(t, &now, procs, few)
	if !maps.Maps(60000) || !fds.Descriptors(500) {
		t.Fatal("an eater has ended")
	}
	read() // VmSize has grown: nobody waits for 30 s
	began := now
	r.look(t, &now, procs, func() bool {
		m, _ := r.of(procs[0].ID)
		_, f := r.of(procs[1].ID)
		return m > 60000 && f > 500
	})
	if now-began > 25*time.Second {
		t.Errorf("it took %v of looks", now-began)
	}
	var soft unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &soft); err != nil {
		t.Fatal(err)
	}
	worst := r.readings(now)
	if len(worst) != 2 {
		t.Fatalf("worst %+v", worst)
	}
	if w := worst[0]; w.Name != event.LimitMaps || w.PID != maps.PID || w.Used < 60000 || w.Limit != rss.Bytes(limit) || w.Age > 60 {
		t.Errorf("of mappings %+v", w)
	}
	if w := worst[1]; w.Name != event.LimitFDs || w.PID != fds.PID || w.Used < 500 || w.Limit == 0 {
		t.Errorf("of descriptors %+v", w)
	}
	l := worst[0]
	if l.Name != event.LimitMaps || l.Scope != event.ScopeProcess || l.Role != rss.RoleWorker || l.Ratio() < 0.9 || l.LimitSource != "vm.max_map_count" {
		t.Errorf("reading %+v", l)
	}
	r.update(now+time.Second, procs[1:])
	if m, f := r.of(procs[0].ID); m != 0 || f != 0 || len(r.readings(now)) != 2 {
		t.Errorf("of one that is gone %d, %d; worst %+v", m, f, r.readings(now))
	}
}

// TestCountsNeverBlockTheLoop: where nothing can be read, or the reader hangs.
func TestCountsNeverBlockTheLoop(t *testing.T) {
	fs := rsstest.Empty(t)
	procs := []rss.Proc{process(worker1, rss.RoleWorker, rss.GiB, rss.GiB)}
	r, now := newCountReader(new(probe.Set), fs.Proc), time.Duration(0)
	for range 200 {
		now += time.Second
		r.update(now, procs)
	}
	if m, f := r.of(procs[0].ID); m != 0 || f != 0 || r.readings(now) != nil {
		t.Errorf("counted %d, %d, worst %+v", m, f, r.readings(now))
	}

	fs = rsstest.Empty(t)
	fs.Write(fmt.Sprintf("proc/%d/stat", worker1), "")
	fifo := fmt.Sprintf("%s/%d/maps", fs.Proc, worker1)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, now = newCountReader(new(probe.Set), fs.Proc), 0
	for range 200 {
		now += time.Second
		r.update(now, procs)
	}
	if !r.Busy() {
		t.Error("a pipe that nobody writes was counted")
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
		f.Close() // the reader goes on
	}

	var none *countReader
	none.update(0, procs)
	if m, f := none.of(procs[0].ID); m != 0 || f != 0 || none.readings(0) != nil {
		t.Error("without a reader there are counts")
	}
}

// TestWatcherCounts: the watcher asks in a look and has the answer in a later one.
func TestWatcherCounts(t *testing.T) {
	s := newStand(t, nil)
	fs := s.fs
	fs.Write("proc/sys/vm/max_map_count", "1000\n")
	fs.Write(fmt.Sprintf("proc/%d/maps", theCommand), "a\nb\nc\n")
	s.open(s.holder.begin)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.full()
		if m, _ := s.counts.of(s.command); m == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("counts %+v", s.counts.readings(s.now()))
		}
	}
	if w := s.counts.readings(s.now()); len(w) != 1 || w[0].Limit != 1000 || w[0].Used != 3 {
		t.Errorf("worst %+v", w)
	}
}

// TestWarnedAheadOfTheNextCount: where mappings come so fast that the next count may
// be too late, the rung is met before its time, and the line says so; below half of
// the limit a burst is no news.
func TestWarnedAheadOfTheNextCount(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		rate float64
		want bool
	}{
		{"fast, near", 50_000, 23_000, true},
		{"fast, below half", 30_000, 23_000, false},
		{"slow, near", 52_000, 300, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, nil)
			s.fs.Write("proc/sys/vm/max_map_count", fmt.Sprintln(mostMaps))
			s.mappings(theCommand, c.n)
			s.open(s.holder.begin)
			s.settle()
			s.recount()
			for _, e := range s.counts.counting.entries {
				e.tallies[countMaps].rate = c.rate
			}
			s.full()
			all := decisions(s.events(), event.LimitMaps)
			if (len(all) > 0) != c.want {
				t.Fatalf("decisions %v", all)
			}
			if !c.want {
				return
			}
			if lead, _ := all[0]["lead"].(float64); lead == 0 || all[0]["lead_bytes"] != nil {
				t.Errorf("decision %v", all[0])
			}
			if !strings.Contains(strings.Join(s.lines.all, "\n"), "at this rate full within 4 s") {
				t.Errorf("said %q", s.lines.all)
			}
		})
	}
}
