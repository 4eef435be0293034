package cgroup_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// guarded is a real group with a limit, a holder in it, and a guard with an
// eater in it.
type guarded struct {
	task   rsstest.Group
	guard  *cgroup.Guard
	holder *rsstest.Eater
	eater  *rsstest.Eater
}

func newGuarded(t *testing.T) guarded {
	t.Helper()
	g := rsstest.NewGroup(t, 512*rss.MiB)
	if g.Version != 1 {
		t.Skip("the memory controller is cgroup v2")
	}
	s := guarded{task: g.Sub("task_0")}
	// Behind the end of the eaters, before that of the groups.
	t.Cleanup(func() {
		if err := os.Remove(filepath.Join(s.task.Dir, "guard")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	s.holder, s.eater = rsstest.StartEater(t), rsstest.StartEater(t)
	s.task.Join(s.holder.PID)
	s.task.Join(s.eater.PID)
	var err error
	if s.guard, err = cgroup.MakeGuard("/proc", "/sys", s.holder.PID, "guard"); err != nil {
		t.Fatal(err)
	}
	if err := s.guard.Add(s.eater.PID); err != nil {
		t.Fatal(err)
	}
	s.eater.Anon(rss.MiB) // from here on its runtime is up and charged here
	return s
}

// inside is the memory cgroup of a process.
func inside(t *testing.T, pid int) string {
	t.Helper()
	p, err := cgroup.Open("/proc", "/sys", pid)
	if err != nil {
		t.Fatal(err)
	}
	return p.Levels[0].Dir
}

func TestRealGuard(t *testing.T) {
	s := newGuarded(t)
	if pids, err := s.guard.Procs(); err != nil || !slices.Equal(pids, []int{s.eater.PID}) {
		t.Errorf("in the guard: %v, %v", pids, err)
	}
	if dir := inside(t, s.eater.PID); dir != filepath.Join(s.task.Dir, "guard") {
		t.Errorf("the eater is in %s", dir)
	}
	// The levels above are those that the holder has.
	p, err := cgroup.Open("/proc", "/sys", s.eater.PID)
	if err != nil || p.Levels[1].Dir != s.task.Dir || inside(t, s.holder.PID) != s.task.Dir {
		t.Errorf("levels %+v, %v", p, err)
	}
	again, err := cgroup.MakeGuard("/proc", "/sys", s.holder.PID, "guard")
	if err != nil || again.Dir != s.guard.Dir {
		t.Errorf("made again: %+v, %v", again, err)
	}
	if err := s.guard.Add(1<<22 + 1); err != nil { // above the greatest PID
		t.Errorf("a process that is not there: %v", err)
	}
	if err := cgroup.RemoveGuard("/proc", "/sys", s.holder.PID, "guard"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed with a process in it: %v", err)
	}
	// Root may move it back.
	if err := s.guard.Remove(10 * time.Second); err != nil {
		t.Error(err)
	}
	if dir := inside(t, s.eater.PID); dir != s.task.Dir {
		t.Errorf("afterwards the eater is in %s", dir)
	}
	if err := cgroup.RemoveGuard("/proc", "/sys", s.holder.PID, "guard"); err != nil {
		t.Errorf("removed again: %v", err)
	}
}

func TestRealThreshold(t *testing.T) {
	s := newGuarded(t)
	th, err := s.guard.NewThreshold()
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 100)
	go func() {
		for {
			err := th.Wait()
			told <- err
			if err != nil {
				return
			}
		}
	}()
	wait := func(what string) {
		t.Helper()
		select {
		case err := <-told:
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: nothing was told", what)
		}
	}
	usage, err := s.guard.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if err := th.Arm(usage + 16*rss.MiB); err != nil {
		t.Fatal(err)
	}
	if err := th.Arm(usage + 64*rss.MiB); err != nil { // the first no longer counts
		t.Fatal(err)
	}
	s.eater.Anon(32 * rss.MiB)
	select {
	case err := <-told:
		t.Errorf("told of 32 MiB with 64 armed: %v", err)
	default:
	}
	s.eater.Anon(40 * rss.MiB)
	wait("passed")
	if now, err := s.guard.Usage(); err != nil || now < usage+64*rss.MiB {
		t.Errorf("usage %v, %v", now, err)
	}
	if err := th.Arm(usage); err != nil {
		t.Fatal(err)
	}
	wait("armed below the charge")
	th.Close()
	for err := range told {
		if errors.Is(err, cgroup.ErrClosed) {
			break
		}
	}
}

// Where a guard would change what holds for a process there is none.
func TestGuardRefused(t *testing.T) {
	for name, test := range map[string]struct {
		cgroup, mount, procs, hierarchy string
		want                            string
	}{
		"v2":                {"0::/task", "cgroup2 cgroup2 rw", "7\n", "", "cgroup v2"},
		"other controllers": {"4:cpu,memory:/task", "cgroup cgroup rw,cpu,memory", "7\n", "1\n", "other controllers too (cpu, memory)"},
		"elsewhere":         {"4:memory:/task", "cgroup cgroup rw,memory", "8\n", "1\n", "process 7 is not in it"},
		"flat":              {"4:memory:/task", "cgroup cgroup rw,memory", "7\n", "0\n", "memory.use_hierarchy is 0"},
		"accounts nothing":  {"4:memory:/task", "cgroup cgroup rw,memory", "7\n", "1\n", "accounts no memory"},
		"none":              {"4:cpu:/task", "cgroup cgroup rw,cpu", "7\n", "", "no memory cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			f := rsstest.Empty(t)
			f.Write("proc/7/cgroup", test.cgroup+"\n")
			f.Write("proc/self/mountinfo", fmt.Sprintf("30 20 0:30 / /sys/fs/cgroup/memory rw - %s\n", test.mount))
			const dir = "sys/fs/cgroup/memory/task/"
			f.Write(dir+"memory.usage_in_bytes", "4096\n")
			f.Write(dir+"memory.current", "4096\n")
			f.Write(dir+"cgroup.procs", test.procs)
			if test.hierarchy != "" {
				f.Write(dir+"memory.use_hierarchy", test.hierarchy)
			}
			_, err := cgroup.MakeGuard(f.Proc, f.Sys, 7, "guard")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Stat(filepath.Join(f.Sys, "fs/cgroup/memory/task/guard")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was made: %v", err)
			}
		})
	}
}
