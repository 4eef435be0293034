package limit_test

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// TestSidesOfThisNode: what this machine has, against what the kernel says
// elsewhere.
func TestSidesOfThisNode(t *testing.T) {
	s := limit.NewSides("/proc", "/sys", os.Getpid())
	defer s.Close()
	limits := s.Read(0, []int{os.Getpid()}, true)
	space, err := shm.Usage("/proc", os.Getpid())
	if err == nil && space.Tmpfs {
		l := scoped(t, limits, event.LimitSHM, event.ScopeNode)
		if l.Limit != space.Size || l.Used > l.Limit || l.Name.Counts() {
			t.Errorf("%+v, statfs %+v", l, space)
		}
	}
	l := scoped(t, limits, event.LimitTasks, event.ScopeNode)
	if l.Used < 10 || l.Limit < 1000 || !l.Name.Counts() {
		t.Errorf("%+v", l)
	}
}

// Committed memory is limited only where the kernel is told not to overcommit.
func TestCommit(t *testing.T) {
	for _, c := range []struct {
		mode string
		ok   bool
	}{{"0\n", false}, {"1\n", false}, {"2\n", true}, {"nonsense", false}, {"", false}} {
		fs := rsstest.Empty(t)
		fs.Write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 3072 kB\nCommitLimit: 2048 kB\nCommitted_AS: 1536 kB\n")
		if c.mode != "" {
			fs.Write("proc/sys/vm/overcommit_memory", c.mode)
		}
		s := limit.NewSides(fs.Proc, fs.Sys, 7)
		got := s.Read(0, nil, false)
		if !c.ok {
			if len(got) != 0 {
				t.Errorf("mode %q: %+v", c.mode, got)
			}
		} else if l := scoped(t, got, event.LimitCommit, event.ScopeNode); l.Used != 1536*rss.KiB || l.Limit != 2*rss.MiB {
			t.Errorf("mode %q: %+v", c.mode, l)
		}
		s.Close()
	}
}

// TestTasksOfAUser: RLIMIT_NPROC is compared with the tasks of one user, which
// are counted where there may be as many; it does not hold for root.
func TestTasksOfAUser(t *testing.T) {
	const limits = "Limit Soft Limit Hard Limit Units\nMax processes 40 40 processes\n"
	for _, c := range []struct {
		what   string
		uid    int
		total  string // of the node
		all    bool
		listed bool
	}{
		{"near", 1000, "1/30", false, true},
		{"far", 1000, "1/12", false, false},
		{"far, all are wanted", 1000, "1/12", true, true},
		{"root", 0, "1/30", true, false},
	} {
		fs := rsstest.Empty(t)
		fs.Put(rsstest.Process{PID: 7, Parent: 1, UID: c.uid, Threads: 20})
		fs.Put(rsstest.Process{PID: 8, Parent: 1, UID: c.uid, Threads: 5})
		fs.Put(rsstest.Process{PID: 9, Parent: 1, UID: 77, Threads: 5})
		fs.Write("proc/7/limits", limits)
		fs.Write("proc/7/uid_map", "0 0 4294967295\n")
		fs.Write("proc/loadavg", "0.1 0.1 0.1 "+c.total+" 99\n")
		fs.Write("proc/sys/kernel/threads-max", "1000\n")
		fs.Write("proc/sys/kernel/pid_max", "4194304\n")
		s := limit.NewSides(fs.Proc, fs.Sys, 7)
		found := false
		for _, l := range s.Read(0, nil, c.all) {
			if l.Scope != event.ScopeUser {
				continue
			}
			found = true
			if l.Used != 25 || l.Limit != 40 {
				t.Errorf("%s: %+v", c.what, l)
			}
		}
		// A text tree is no procfs, so the node's own number bounds nothing.
		if want := c.listed || c.what == "far"; found != want {
			t.Errorf("%s: listed %v", c.what, found)
		}
		s.Close()
	}
}

// TestLimitsOfOneProcess: which of them there are, and what they compare.
func TestLimitsOfOneProcess(t *testing.T) {
	p := &rss.Proc{ID: rss.ProcID{PID: 7}, Role: rss.RoleTrainer, Virtual: 3 * rss.GiB, Locked: rss.MiB, Pinned: 2 * rss.MiB}
	none := &proctree.ResourceLimits{AddressSpace: math.MaxUint64, LockedMemory: math.MaxUint64}
	some := &proctree.ResourceLimits{AddressSpace: 4 * rss.GiB, LockedMemory: 8 * rss.MiB}
	if _, ok := limit.AddressSpace(p, none); ok {
		t.Error("an unlimited address space is limited")
	}
	if _, ok := limit.LockedMemory(p, none); ok {
		t.Error("unlimited locked memory is limited")
	}
	if l, ok := limit.AddressSpace(p, some); !ok || l.Ratio() != 0.75 || l.PID != 7 || l.Role != rss.RoleTrainer {
		t.Errorf("%+v, %v", l, ok)
	}
	if l, ok := limit.LockedMemory(p, some); !ok || l.Used != 2*rss.MiB || l.UsedSource != "VmPin of /proc/PID/status" {
		t.Errorf("%+v, %v", l, ok)
	}
	if _, ok := limit.LockedMemory(&rss.Proc{}, some); ok {
		t.Error("who locks nothing is limited")
	}
}

// TestSidesGoneProcess: a process that has ended takes its limits with it.
func TestSidesGoneProcess(t *testing.T) {
	fs := rsstest.Empty(t)
	s := limit.NewSides(fs.Proc, fs.Sys, 7)
	defer s.Close()
	for now := time.Duration(0); now < time.Hour; now += time.Minute {
		if limits := s.Read(now, []int{7}, true); len(limits) > 0 {
			t.Fatalf("%+v", limits)
		}
	}
}
