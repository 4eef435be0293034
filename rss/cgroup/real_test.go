package cgroup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// between reports whether b lies in [low, high] MiB.
func between(b rss.Bytes, low, high rss.Bytes) bool { return b >= low*rss.MiB && b <= high*rss.MiB }

// level opens the cgroup of a process and returns the level at dir.
func level(t *testing.T, pid int, dir string) *cgroup.Level {
	t.Helper()
	p, err := cgroup.Open("/proc", "/sys", pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Levels {
		t.Cleanup(l.Close)
		if l.Dir == dir {
			return l
		}
	}
	t.Fatalf("no level at %s", dir)
	return nil
}

func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		t.Skip("the temporary directory is in memory")
	}
	return filepath.Join(dir, "data")
}

// On a real kernel: the limit stands above the process, page cache fills the
// charge up to it and stays reclaimable, tmpfs and anonymous memory do not.
func TestRealCgroup(t *testing.T) {
	g := rsstest.NewGroup(t, 128*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)
	l := level(t, e.PID, g.Dir)

	lim, err := l.Limits()
	if err != nil || lim.Max != 128*rss.MiB {
		t.Fatalf("limits %+v, %v", lim, err)
	}
	if own, err := level(t, e.PID, leaf.Dir).Limits(); err != nil || own.Max != cgroup.Unlimited {
		t.Errorf("the leaf: %+v, %v", own, err)
	}
	pids, err := l.Procs()
	if err != nil || !slices.Equal(pids, []int{e.PID}) {
		t.Errorf("processes %v, %v", pids, err)
	}
	e.Anon(rss.MiB) // from here on its runtime is up and charged here
	before, err := l.Memory()
	if err != nil {
		t.Fatal(err)
	}

	e.Anon(20 * rss.MiB)
	m, err := l.Memory()
	if err != nil || !between(m.Unreclaimable.Sub(before.Unreclaimable), 19, 24) || !between(m.Anon.Sub(before.Anon), 19, 22) {
		t.Errorf("20 MiB of anonymous memory: %+v, before %+v, %v", m, before, err)
	}

	e.File(300*rss.MiB, onDisk(t))
	cached, err := l.Memory()
	if err != nil || cached.Charged < 110*rss.MiB {
		t.Errorf("page cache at the limit: %+v, %v", cached, err)
	}
	if grown := cached.Unreclaimable.Sub(m.Unreclaimable); grown > 8*rss.MiB {
		t.Errorf("page cache counts %v as unreclaimable: %+v", grown, cached)
	}
	usage, err := l.Usage()
	if err != nil || usage < 110*rss.MiB || usage > 128*rss.MiB {
		t.Errorf("usage %v, %v", usage, err)
	}
	events, err := l.Events()
	if err != nil || events.Hit == 0 || events.OOMKill != 0 {
		t.Errorf("events %+v, %v", events, err)
	}
	if peak, err := l.Peak(); err == nil && peak < usage {
		t.Errorf("peak %v below usage %v", peak, usage)
	}

	name := fmt.Sprintf("/dev/shm/rsswarden-test-%d", os.Getpid())
	t.Cleanup(func() { os.Remove(name) })
	e.File(30*rss.MiB, name)
	shm, err := l.Memory()
	if err != nil || !between(shm.Unreclaimable.Sub(cached.Unreclaimable), 24, 36) || !between(shm.Shmem, 29, 32) {
		t.Errorf("30 MiB of tmpfs: %+v, before %+v, %v", shm, cached, err)
	}
}

// The OOM killer strikes for the limit above; the kill is seen there.
func TestRealOOMKill(t *testing.T) {
	g := rsstest.NewGroup(t, 64*rss.MiB)
	leaf := g.Sub("task_0")
	e := rsstest.StartEater(t)
	leaf.Join(e.PID)
	l := level(t, e.PID, g.Dir)
	if ev, err := l.Events(); err != nil || ev.OOMKill != 0 {
		t.Fatalf("events %+v, %v", ev, err)
	}
	if e.Anon(256 * rss.MiB) {
		t.Skip("256 MiB fit under a limit of 64 MiB: there is swap")
	}
	if ev, err := l.Events(); err != nil || ev.OOMKill == 0 || ev.Hit == 0 {
		t.Errorf("events %+v, %v", ev, err)
	}
}

func BenchmarkLevel(b *testing.B) {
	p, err := cgroup.Open("/proc", "/sys", os.Getpid())
	if err != nil {
		b.Skip(err)
	}
	l := p.Levels[0]
	defer l.Close()
	b.Run("Usage", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Usage(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Memory(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
