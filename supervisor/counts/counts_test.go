package counts

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// look plays full looks, one a second of a clock of its own, until ok holds.
func (r *Counts) look(t *testing.T, now *time.Duration, procs []rss.Proc, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		*now += time.Second
		r.Read(*now, procs, 0, false)
		if r.processes.Busy() {
			if !r.processes.Wait(20 * time.Second) {
				t.Fatal("no count within 20 s")
			}
			r.takeCounts()
		}
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v of looks: %+v", *now, r.ofProcesses(*now))
		}
	}
}

// TestCountsOfRealProcesses: 60,000 mappings and 500 descriptors are found, with their
// processes.
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
	r, now := &Counts{processes: newProcessReader(new(probe.Set), "/proc")}, time.Duration(0)
	few := func() bool {
		m, f := r.Of(procs[0].ID)
		m2, f2 := r.Of(procs[1].ID)
		return m > 0 && m < 5000 && f > 0 && f < 100 && m2 > 0 && f2 > 0
	}
	r.look(t, &now, procs, few)
	if !maps.Maps(60000) || !fds.Descriptors(500) {
		t.Fatal("an eater has ended")
	}
	read() // VmSize has grown: the next count does not wait for 30 s
	began := now
	r.look(t, &now, procs, func() bool {
		m, _ := r.Of(procs[0].ID)
		_, f := r.Of(procs[1].ID)
		return m > 60000 && f > 500
	})
	if now-began > 25*time.Second {
		t.Errorf("it took %v of looks", now-began)
	}
	var soft unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &soft); err != nil {
		t.Fatal(err)
	}
	worst := r.ofProcesses(now)
	if len(worst) < 2 {
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
	r.Read(now+time.Second, procs[1:], 0, false)
	if m, f := r.Of(procs[0].ID); m != 0 || f != 0 || len(r.ofProcesses(now)) != len(worst) {
		t.Errorf("of one that is gone %d, %d; worst %+v", m, f, r.ofProcesses(now))
	}
}

// TestCountsNeverBlockTheLoop: where nothing can be read, or the reader hangs.
func TestCountsNeverBlockTheLoop(t *testing.T) {
	fs := rsstest.Empty(t)
	procs := []rss.Proc{process(4242, rss.RoleWorker, rss.GiB, rss.GiB)}
	r, now := &Counts{processes: newProcessReader(new(probe.Set), fs.Proc)}, time.Duration(0)
	for range 200 {
		now += time.Second
		r.Read(now, procs, 0, false)
	}
	if m, f := r.Of(procs[0].ID); m != 0 || f != 0 || r.ofProcesses(now) != nil {
		t.Errorf("counted %d, %d, worst %+v", m, f, r.ofProcesses(now))
	}

	fs = rsstest.Empty(t)
	fs.Write(fmt.Sprintf("proc/%d/stat", 4242), "")
	fifo := fmt.Sprintf("%s/%d/maps", fs.Proc, 4242)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, now = &Counts{processes: newProcessReader(new(probe.Set), fs.Proc)}, 0
	for range 200 {
		now += time.Second
		r.Read(now, procs, 0, false)
	}
	if !r.processes.Busy() {
		t.Error("a pipe without a writer was counted")
	}
	if f, err := os.OpenFile(fifo, os.O_WRONLY, 0); err == nil {
		f.Close() // the reader goes on
	}

	var none Counts
	if m, f := none.Of(procs[0].ID); m != 0 || f != 0 || none.Read(0, procs, 1, false) != nil {
		t.Error("the zero value counts")
	}
	none.Ask(0)
	if _, ok := none.Next(0); ok {
		t.Error("the zero value is to be asked again")
	}
}
