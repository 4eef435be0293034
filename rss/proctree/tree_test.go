package proctree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// tree reads the tree of root and returns its PIDs in order.
func tree(t *testing.T, r *proctree.Reader, root int) ([]int, []rss.Proc, rss.Gaps) {
	t.Helper()
	procs, gaps, err := r.Tree(rss.ProcID{PID: root})
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{}
	for _, p := range procs {
		pids = append(pids, p.ID.PID)
	}
	return pids, procs, gaps
}

func reader(t *testing.T, proc string) *proctree.Reader {
	r := proctree.New(proc)
	t.Cleanup(r.Close)
	return r
}

func find(procs []rss.Proc, pid int) rss.Proc {
	for _, p := range procs {
		if p.ID.PID == pid {
			return p
		}
	}
	return rss.Proc{}
}

func TestTreeOfTraining(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	r := reader(t, fs.Proc)
	pids, procs, gaps := tree(t, r, rsstest.Trainer)
	if want := []int{4102, 4103, 4104, 4105, 4106}; !slices.Equal(pids, want) {
		t.Errorf("tree %v, want %v", pids, want)
	}
	if gaps != (rss.Gaps{}) {
		t.Errorf("gaps %+v", gaps)
	}
	var sum rss.Bytes
	managers := 0
	for _, p := range procs {
		if p.RSS != p.Anon+p.File+p.Shmem {
			t.Errorf("%d: RSS %v is not the sum of its parts", p.ID.PID, p.RSS)
		}
		if p.Orphan {
			t.Errorf("%d is no orphan", p.ID.PID)
		}
		if p.Role == rss.RoleShmManager {
			managers++
		}
		sum += p.RSS
	}
	if managers != 2 {
		t.Errorf("%d shared-memory managers, want 2", managers)
	}
	statm, err := r.SumRSS()
	if err != nil || statm < sum-2*rss.MiB || statm > sum+2*rss.MiB {
		t.Errorf("statm sums to %v, %v; status to %v", statm, err, sum)
	}
	if got, want := r.Below(rsstest.Slurmstepd), []int{4101, 4102, 4103, 4104, 4105, 4106}; !slices.Equal(got, want) {
		t.Errorf("below slurmstepd %v, want %v", got, want)
	}
	if pss, err := r.PSS(procs[0].ID); err != nil || pss.PSS == 0 || pss.PSS > pss.RSS || pss.Cost <= 0 {
		t.Errorf("PSS %+v, %v", pss, err)
	}
}

// A long chain listed in the wrong order: children come before their parents.
func TestChainOfNewProcesses(t *testing.T) {
	fs := rsstest.Empty(t)
	const n = 60
	for i := range n {
		fs.Put(rsstest.Process{PID: 1000 - i, Parent: 1000 - i + 1, Start: uint64(i + 1), Comm: "link", Anon: rss.MiB})
	}
	fs.Put(rsstest.Process{PID: 1, Comm: "init"})
	fs.Put(rsstest.Process{PID: 50, Parent: 1, Comm: "foreign"})
	pids, _, _ := tree(t, reader(t, fs.Proc), 1000)
	if len(pids) != n || pids[0] != 1000 || pids[1] != 1000-n+1 {
		t.Errorf("got %v", pids)
	}
}

func TestOrphansStay(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 1, Comm: "init", Start: 1})
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "middle"})
	fs.Put(rsstest.Process{PID: 12, Parent: 11, Comm: "daemon", Anon: rss.MiB})
	r := reader(t, fs.Proc)
	tree(t, r, 10)

	fs.End(11)
	fs.Put(rsstest.Process{PID: 12, Parent: 1, Comm: "daemon", Anon: rss.MiB})
	fs.Put(rsstest.Process{PID: 13, Parent: 12, Comm: "child"})
	fs.Put(rsstest.Process{PID: 14, Parent: 1, Comm: "stranger"})
	pids, procs, _ := tree(t, r, 10)
	if want := []int{10, 12, 13}; !slices.Equal(pids, want) {
		t.Fatalf("tree %v, want %v", pids, want)
	}
	if p := find(procs, 12); !p.Orphan || p.Parent != 1 {
		t.Errorf("daemon %+v", p)
	}
	if find(procs, 13).Orphan {
		t.Error("the orphan's child has its parent")
	}

	t.Run("root ends", func(t *testing.T) {
		fs.End(10)
		pids, _, gaps := tree(t, r, 10)
		if want := []int{12, 13}; !slices.Equal(pids, want) || gaps.Vanished != 0 {
			t.Errorf("tree %v, want %v; gaps %+v", pids, want, gaps)
		}
	})
	t.Run("a new root forgets", func(t *testing.T) {
		pids, _, _ := tree(t, r, 14)
		if want := []int{14}; !slices.Equal(pids, want) {
			t.Errorf("tree %v, want %v", pids, want)
		}
	})
}

// A process forked and orphaned between two readings still shows its dead
// parent while it is read: it belongs to the tree.
func TestParentEndsWhileRead(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "middle"})
	r := reader(t, fs.Proc)
	tree(t, r, 10)
	fs.End(11)
	fs.Put(rsstest.Process{PID: 12, Parent: 11, Comm: "late"})
	if pids, _, _ := tree(t, r, 10); !slices.Equal(pids, []int{10, 12}) {
		t.Errorf("tree %v", pids)
	}
}

func TestReusedPID(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Start: 100})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker", Start: 110})
	r := reader(t, fs.Proc)
	tree(t, r, 10)

	t.Run("by a stranger", func(t *testing.T) {
		fs.Put(rsstest.Process{PID: 11, Parent: 1, Comm: "stranger", Start: 500, Anon: rss.GiB})
		pids, _, gaps := tree(t, r, 10)
		if !slices.Equal(pids, []int{10}) || gaps.Vanished != 1 {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
	})
	t.Run("by a new worker", func(t *testing.T) {
		fs.End(11)
		tree(t, r, 10)
		fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker", Start: 600})
		if pids, procs, _ := tree(t, r, 10); !slices.Equal(pids, []int{10, 11}) || procs[1].ID.Start != 600 {
			t.Errorf("tree %v", procs)
		}
	})
	t.Run("of a stranger by a worker, unseen", func(t *testing.T) {
		fs.Put(rsstest.Process{PID: 12, Parent: 1, Comm: "stranger", Start: 10})
		tree(t, r, 10)
		fs.Put(rsstest.Process{PID: 12, Parent: 10, Comm: "worker", Start: 700})
		for range 40 {
			if pids, _, _ := tree(t, r, 10); slices.Contains(pids, 12) {
				return
			}
		}
		t.Error("not found within 40 readings")
	})
	t.Run("of the command", func(t *testing.T) {
		fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "stranger", Start: 900})
		tree(t, r, 10)
		pids, procs, _ := tree(t, r, 10)
		if slices.Contains(pids, 10) || !find(procs, 11).Orphan {
			t.Errorf("tree %v", procs)
		}
	})
}

func TestVanishAtAnyPoint(t *testing.T) {
	for _, file := range []string{"stat", "status", ""} {
		t.Run("before "+file, func(t *testing.T) {
			fs := rsstest.Empty(t)
			fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
			fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker"})
			r := reader(t, fs.Proc)
			tree(t, r, 10)
			fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker", Anon: rss.MiB})
			fs.Remove("proc/11/" + file)
			pids, _, gaps := tree(t, r, 10)
			vanished := 1
			if file == "" {
				vanished = 0
			}
			if !slices.Equal(pids, []int{10}) || gaps != (rss.Gaps{Vanished: vanished}) {
				t.Errorf("tree %v, gaps %+v", pids, gaps)
			}
		})
	}
	t.Run("new and gone", func(t *testing.T) {
		fs := rsstest.Empty(t)
		fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
		fs.Write("proc/11/cmdline", "")
		if pids, _, gaps := tree(t, reader(t, fs.Proc), 10); !slices.Equal(pids, []int{10}) || gaps != (rss.Gaps{}) {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
	})
}

func TestMalformedIsCounted(t *testing.T) {
	for _, file := range []string{"stat", "status"} {
		fs := rsstest.Empty(t)
		fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
		fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker"})
		r := reader(t, fs.Proc)
		tree(t, r, 10)
		fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker", Anon: rss.MiB})
		fs.Write("proc/11/"+file, "")
		if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10}) || gaps != (rss.Gaps{Malformed: 1}) {
			t.Errorf("%s: tree %v, gaps %+v", file, pids, gaps)
		}
	}
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: rss.MiB})
	r := reader(t, fs.Proc)
	tree(t, r, 10)
	fs.Write("proc/10/statm", "")
	if _, err := r.SumRSS(); err == nil {
		t.Error("an empty statm is an error")
	}
	fs.End(10)
	if sum, err := r.SumRSS(); err != nil || sum != 0 {
		t.Errorf("after the end %v, %v", sum, err)
	}
}

// Under hidepid a stranger's files are denied; that is no gap. A process of
// the tree that becomes another user's is one.
func TestDenied(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command"})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "setuid"})
	fs.Put(rsstest.Process{PID: 20, Parent: 1, Comm: "foreign"})
	deny := func(pid int) {
		for _, file := range []string{"stat", "status", "statm"} {
			if err := os.Chmod(fs.Path(fmt.Sprintf("proc/%d/%s", pid, file)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	deny(20)
	// testing makes its directory for its own user alone.
	for _, dir := range []string{filepath.Dir(fs.Dir), fs.Dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := reader(t, fs.Proc)
	asNobody(t, func() {
		if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10, 11}) || gaps != (rss.Gaps{}) {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
	})
	deny(11)
	asNobody(t, func() {
		if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10}) || gaps != (rss.Gaps{Denied: 1}) {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
		if procs, gaps, err := r.Group([]int{10, 20, 99}); err != nil || len(procs) != 1 || gaps != (rss.Gaps{Denied: 1, Vanished: 1}) {
			t.Errorf("group %v, gaps %+v", procs, gaps)
		}
		if _, err := r.One(20); !proctree.Denied(err) || proctree.Vanished(err) {
			t.Errorf("got %v", err)
		}
	})
}

// asNobody runs f on a thread that has no privilege over files.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Skip("cannot set the file system user:", err)
		}
		defer unix.Setfsuid(0)
	}
	f()
}

func TestZombies(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: rss.MiB})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "dead", State: 'Z'})
	fs.Put(rsstest.Process{PID: 12, Parent: 10, Comm: "threads", State: 'Z', Threads: 2})
	fs.Write("proc/12/task/12/status", fs.Read("proc/12/status"))
	fs.Write("proc/12/task/15/status", "VmRSS:\t 4096 kB\nRssAnon:\t 4096 kB\nThreads:\t2\n")
	_, procs, gaps := tree(t, reader(t, fs.Proc), 10)
	if gaps != (rss.Gaps{}) {
		t.Errorf("gaps %+v", gaps)
	}
	if p := find(procs, 11); p.State != 'Z' || p.RSS != 0 {
		t.Errorf("zombie %+v", p)
	}
	if p := find(procs, 12); p.State != 'Z' || p.RSS != 4*rss.MiB {
		t.Errorf("main thread ended, another lives: %+v", p)
	}
}

func TestHostileNameInTree(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "a) R 1 (\n", Anon: rss.MiB})
	fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: ""})
	_, procs, _ := tree(t, reader(t, fs.Proc), 10)
	if len(procs) != 2 || procs[0].Comm != "a) R 1 (\n" || procs[1].Comm != "" || procs[0].RSS != rss.MiB {
		t.Errorf("got %+v", procs)
	}
}

// A change of the sum is seen at once; one that keeps the sum, soon.
func TestSizesAreReadAgain(t *testing.T) {
	fs := rsstest.Empty(t)
	put := func(anon, file rss.Bytes) {
		fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: anon, File: file})
	}
	put(3*rss.MiB, 0)
	r := reader(t, fs.Proc)
	tree(t, r, 10)
	put(3*rss.MiB+rss.Bytes(os.Getpagesize()), 0)
	if _, procs, _ := tree(t, r, 10); procs[0].RSS != 3*rss.MiB+rss.Bytes(os.Getpagesize()) {
		t.Errorf("got %+v", procs)
	}
	put(rss.MiB, 2*rss.MiB+rss.Bytes(os.Getpagesize()))
	for range 8 {
		if _, procs, _ := tree(t, r, 10); procs[0].File > 0 {
			return
		}
	}
	t.Error("not seen within 8 readings")
}

// Samples are never changed after they were made.
func TestSampleIsNotTouched(t *testing.T) {
	fs := rsstest.Unpack(t, "torch")
	r := reader(t, fs.Proc)
	_, procs, _ := tree(t, r, rsstest.Trainer)
	was := slices.Clone(procs)
	fs.End(rsstest.Worker1)
	fs.Replace("proc/4102/status", "VmRSS:", "VmOld:")
	tree(t, r, rsstest.Trainer)
	if d := cmp.Diff(was, procs); d != "" {
		t.Error(d)
	}
}

func TestNoProc(t *testing.T) {
	r := reader(t, t.TempDir()+"/none")
	if _, _, err := r.Tree(rss.ProcID{PID: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := proctree.StartTime("/proc", 1<<22+1); !proctree.Vanished(err) {
		t.Errorf("got %v", err)
	}
}
