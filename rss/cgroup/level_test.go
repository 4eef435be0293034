package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// between reports whether b lies in [low, high] MiB.
func between(b rss.Bytes, low, high rss.Bytes) bool { return b >= low*rss.MiB && b <= high*rss.MiB }

// level opens the cgroup of a process and returns the level at dir.
func level(t *testing.T, pid int, dir string) *Level {
	t.Helper()
	p, err := Open("/proc", "/sys", pid)
	must(t, err)
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
	must(t, unix.Statfs(dir, &s))
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC {
		t.Skip("the temporary directory is in memory")
	}
	return filepath.Join(dir, "data")
}

// On a real kernel: the limit is above the process, page cache fills the
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
	if own, err := level(t, e.PID, leaf.Dir).Limits(); err != nil || own.Max != Unlimited {
		t.Errorf("the leaf: %+v, %v", own, err)
	}
	pids, err := l.Procs()
	if err != nil || !slices.Equal(pids, []int{e.PID}) {
		t.Errorf("processes %v, %v", pids, err)
	}
	e.Anon(rss.MiB) // from here on its runtime is up and charged here
	before, err := l.Memory()
	must(t, err)

	// memory.stat lags behind by what each processor has counted for itself.
	read := func(met func(Memory) bool) (m Memory, err error) {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if m, err = l.Memory(); err != nil || met(m) || time.Now().After(end) {
				return m, err
			}
		}
	}
	e.Anon(20 * rss.MiB)
	m, err := read(func(m Memory) bool { return between(m.Anon.Sub(before.Anon), 19, 22) })
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

	name := fmt.Sprintf("/dev/shm/rsswarden-test-%d", os.Getpid())
	t.Cleanup(func() { os.Remove(name) })
	e.File(30*rss.MiB, name)
	shm, err := read(func(m Memory) bool { return between(m.Shmem, 29, 32) })
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

// TestLimitsChange: limits are read again each time, and a missing file is no limit.
func TestLimitsChange(t *testing.T) {
	fs := rsstest.Unpack(t, "torch", "slurm-v1")
	job := open(t, fs, rsstest.Trainer).Levels[2]
	if lim, err := job.Limits(); err != nil || lim.Max != 700*rss.MiB || lim.Swap != Unlimited || !lim.Swappable {
		t.Errorf("got %+v, %v", lim, err)
	}
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.limit_in_bytes", "104857600\n")
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.memsw.limit_in_bytes", "209715200\n")
	if lim, err := job.Limits(); err != nil || lim.Max != 100*rss.MiB || lim.Swap != 200*rss.MiB {
		t.Errorf("got %+v, %v", lim, err)
	}
	job = open(t, fs, rsstest.Trainer).Levels[2]
	fs.Remove("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.memsw.limit_in_bytes")
	fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.swappiness", "0\n")
	lim, err := job.Limits()
	if err != nil || lim.Max != 100*rss.MiB || lim.Swap != Unlimited || lim.Swappable {
		t.Errorf("got %+v, %v", lim, err)
	}

	t.Run("without hierarchy", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.use_hierarchy", "0\n")
		job := open(t, fs, rsstest.Trainer).Levels[2]
		if lim, err := job.Limits(); err != nil || lim.Max != Unlimited {
			t.Errorf("got %+v, %v", lim, err)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		fs.Write("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7/memory.limit_in_bytes", "\n")
		if lim, err := job.Limits(); err == nil || lim.Max != Unlimited {
			t.Errorf("got %+v, %v", lim, err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		job := open(t, fs, rsstest.Trainer).Levels[2]
		fs.Remove("sys/fs/cgroup/memory/slurm_n1/uid_1000/job_7")
		if _, err := job.Limits(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Usage(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Procs(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := job.Events(); err == nil {
			t.Error("no error")
		}
	})
}

// TestNoDescriptorLeft: what cannot be read for want of one is neither absent, nor no
// limit, nor empty, and is read when there is one again.
func TestNoDescriptorLeft(t *testing.T) {
	for version, files := range map[int]map[string]string{
		1: {
			"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "2000", "memory.soft_limit_in_bytes": "500", "memory.swappiness": "0",
			"memory.use_hierarchy": "1", "memory.failcnt": "3", "memory.oom_control": "oom_kill 0", "cgroup.procs": "1", "below/memory.oom_control": "oom_kill 2", "below/cgroup.procs": "2",
		},
		2: {"memory.max": "1000", "memory.swap.max": "2000", "memory.high": "900", "memory.events": "oom_kill 2", "cgroup.procs": "1", "below/cgroup.procs": "2"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644))
		}
		l := &Level{Version: version, Dir: dir}
		t.Cleanup(l.Close)
		if _, err := l.Max(); err != nil { // its descriptor is kept
			t.Fatal(err)
		}
		rsstest.WithoutDescriptors(t, func() {
			_, limits := l.Limits()
			_, events := l.Events()
			_, procs := l.Procs()
			for what, err := range map[string]error{"limits": limits, "events": events, "processes": procs} {
				if !errors.Is(err, unix.EMFILE) {
					t.Errorf("v%d: %s: %v", version, what, err)
				}
			}
		})
		lim, err := l.Limits()
		if err != nil || lim.Max != 1000 || lim.Swap != 2000 || lim.Swappable != (version == 2) {
			t.Errorf("v%d: then %+v, %v", version, lim, err)
		}
		if e, err := l.Events(); err != nil || e.OOMKill != 2 {
			t.Errorf("v%d: then %+v, %v", version, e, err)
		}
		if pids, err := l.Procs(); err != nil || len(pids) != 2 {
			t.Errorf("v%d: then %v, %v", version, pids, err)
		}
	}
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
