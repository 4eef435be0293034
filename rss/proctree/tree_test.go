package proctree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// tree reads the tree of root and returns its PIDs in order.
func tree(t *testing.T, r *Reader, root int) ([]int, []rss.Proc, rss.Gaps) {
	t.Helper()
	procs, gaps, err := r.Tree(rss.ProcID{PID: root})
	must(t, err)
	pids := []int{}
	for _, p := range procs {
		pids = append(pids, p.ID.PID)
	}
	return pids, procs, gaps
}

// put puts processes, each with its parent.
func put(fs rsstest.Tree, pairs ...int) {
	for i := 0; i < len(pairs); i += 2 {
		fs.Put(rsstest.Process{PID: pairs[i], Parent: pairs[i+1]})
	}
}

// same wants these PIDs.
func same(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func reader(t *testing.T, proc string) *Reader {
	r := New(proc)
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
	put(fs, 1, 0, 10, 1, 11, 10, 12, 11)
	r := reader(t, fs.Proc)
	tree(t, r, 10)
	fs.End(11)
	put(fs, 12, 1, 13, 12, 14, 1)
	pids, procs, _ := tree(t, r, 10)
	same(t, "without the one in the middle", pids, 10, 12, 13)
	if p := find(procs, 12); !p.Orphan || p.Parent != 1 || find(procs, 13).Orphan {
		t.Errorf("daemon %+v, its child %+v", p, find(procs, 13))
	}
	fs.End(10)
	pids, _, gaps := tree(t, r, 10)
	if same(t, "the root has ended", pids, 12, 13); gaps.Vanished != 0 {
		t.Errorf("gaps %+v", gaps)
	}
	pids, _, _ = tree(t, r, 14)
	same(t, "a new root forgets", pids, 14)
}

// A process forked and orphaned between two readings still shows its dead
// parent while it is read: it belongs to the tree.
func TestParentEndsWhileRead(t *testing.T) {
	fs := rsstest.Empty(t)
	put(fs, 10, 1, 11, 10)
	r := reader(t, fs.Proc)
	tree(t, r, 10)
	fs.End(11)
	put(fs, 12, 11)
	pids, _, _ := tree(t, r, 10)
	same(t, "tree", pids, 10, 12)
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

// TestFilesGoneOrMalformed: a process that vanishes or reads as nonsense while it is read is
// counted; one that has gone as a whole was not there.
func TestFilesGoneOrMalformed(t *testing.T) {
	for what, c := range map[string]struct {
		harm func(fs rsstest.Tree)
		want rss.Gaps
	}{
		"no stat":      {func(fs rsstest.Tree) { fs.Remove("proc/11/stat") }, rss.Gaps{Vanished: 1}},
		"no status":    {func(fs rsstest.Tree) { fs.Remove("proc/11/status") }, rss.Gaps{Vanished: 1}},
		"gone":         {func(fs rsstest.Tree) { fs.End(11) }, rss.Gaps{}},
		"empty stat":   {func(fs rsstest.Tree) { fs.Write("proc/11/stat", "") }, rss.Gaps{Malformed: 1}},
		"empty status": {func(fs rsstest.Tree) { fs.Write("proc/11/status", "") }, rss.Gaps{Malformed: 1}},
	} {
		t.Run(what, func(t *testing.T) {
			fs := rsstest.Empty(t)
			fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: rss.MiB})
			fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker"})
			fs.Write("proc/12/cmdline", "") // new and gone
			r := reader(t, fs.Proc)
			tree(t, r, 10)
			fs.Put(rsstest.Process{PID: 11, Parent: 10, Comm: "worker", Anon: rss.MiB})
			c.harm(fs)
			if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10}) || gaps != c.want {
				t.Errorf("tree %v, gaps %+v", pids, gaps)
			}
			fs.Write("proc/10/statm", "")
			if _, err := r.SumRSS(); err == nil {
				t.Error("an empty statm is an error")
			}
			fs.End(10)
			if sum, err := r.SumRSS(); err != nil || sum != 0 {
				t.Errorf("after the end %v, %v", sum, err)
			}
		})
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
			must(t, os.Chmod(fs.Path(fmt.Sprintf("proc/%d/%s", pid, file)), 0))
		}
	}
	deny(20)
	// testing makes its directory for its own user alone.
	for _, dir := range []string{filepath.Dir(fs.Dir), fs.Dir} {
		must(t, os.Chmod(dir, 0o755))
	}
	r := reader(t, fs.Proc)
	unprivileged(t, func() {
		if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10, 11}) || gaps != (rss.Gaps{}) {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
	})
	deny(11)
	unprivileged(t, func() {
		if pids, _, gaps := tree(t, r, 10); !slices.Equal(pids, []int{10}) || gaps != (rss.Gaps{Denied: 1}) {
			t.Errorf("tree %v, gaps %+v", pids, gaps)
		}
		if procs, gaps, err := r.Group([]int{10, 20, 99}); err != nil || len(procs) != 1 || gaps != (rss.Gaps{Denied: 1, Vanished: 1}) {
			t.Errorf("group %v, gaps %+v", procs, gaps)
		}
		if _, err := r.One(20); !Denied(err) || Vanished(err) {
			t.Errorf("got %v", err)
		}
	})
}

// unprivileged runs f on a thread that has no privilege over files.
func unprivileged(t *testing.T, f func()) {
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
	if _, err := StartTime("/proc", 1<<22+1); !Vanished(err) {
		t.Errorf("got %v", err)
	}
}

// trees reads the trees of roots and returns their PIDs in order.
func trees(t *testing.T, r *Reader, roots ...int) []int {
	t.Helper()
	var ids []rss.ProcID
	for _, pid := range roots {
		ids = append(ids, rss.ProcID{PID: pid, Start: 1000 + uint64(pid)})
	}
	procs, _, err := r.Trees(ids)
	must(t, err)
	var pids []int
	for _, p := range procs {
		pids = append(pids, p.ID.PID)
		if p.Orphan && slices.Contains(roots, p.ID.PID) {
			t.Errorf("root %d is an orphan", p.ID.PID)
		}
	}
	return pids
}

// TestTrees: several roots, one below another, that come and go.
func TestTrees(t *testing.T) {
	fs := rsstest.Empty(t)
	put(fs, 10, 1, 11, 10, 12, 11, 20, 1, 21, 20, 30, 1, 31, 30)
	r := reader(t, fs.Proc)
	same(t, "two, the first first", trees(t, r, 20, 10), 20, 10, 11, 12, 21)
	same(t, "one below another counts once", trees(t, r, 20, 10, 11), 20, 10, 11, 12, 21)
	// Seen at every reading so far as none of the tree, with a child.
	same(t, "a third that was there before", trees(t, r, 20, 30, 10), 20, 10, 11, 12, 21, 30, 31)
	put(fs, 13, 10, 32, 31)
	same(t, "children of them", trees(t, r, 20, 30, 10), 20, 10, 11, 12, 13, 21, 30, 31, 32)
	put(fs, 11, 1) // its parent has ended
	fs.End(10)
	same(t, "without its parent", trees(t, r, 20, 30), 20, 11, 12, 13, 21, 30, 31, 32)
	same(t, "others alone", trees(t, r, 12), 12)
	put(fs, 12, 1)
	same(t, "again", trees(t, r, 12), 12)
}

// TestTreesOfReusedPID: a root is a process, not a PID.
func TestTreesOfReusedPID(t *testing.T) {
	fs := rsstest.Empty(t)
	put(fs, 10, 1)
	fs.Put(rsstest.Process{PID: 20, Parent: 1, Start: 99})
	r := reader(t, fs.Proc)
	same(t, "with the start time of another process", trees(t, r, 10, 20), 10)
	put(fs, 20, 1)
	for range 40 { // a PID that was read is looked at again after some readings
		trees(t, r, 10, 20)
	}
	same(t, "once it is the one that was meant", trees(t, r, 10, 20), 10, 20)
}

// TestAdopted: what the subreaper above the root has adopted is of the tree, with its
// children, and what the subreaper has for other reasons is not.
func TestAdopted(t *testing.T) {
	fs := rsstest.Empty(t)
	// 5 is the subreaper: 8 came by exec, 10 is the root, 11 the subreaper's own with a child, 20
	// an orphan with a child; 30 is another's.
	put(fs, 5, 1, 8, 5, 10, 5, 11, 5, 12, 11, 20, 5, 21, 20, 30, 1)
	r := reader(t, fs.Proc)
	same(t, "without an adopter", trees(t, r, 10), 10)
	r = reader(t, fs.Proc)
	r.Adopt(Adopter{PID: 5, Root: rss.ProcID{PID: 10, Start: 1010}, Own: 11})
	same(t, "orphans that were there first", trees(t, r, 10), 10, 20, 21)
	put(fs, 40, 5, 41, 40)
	same(t, "orphans that come later", trees(t, r, 10), 10, 20, 21, 40, 41)
	put(fs, 12, 5) // 11 has ended
	fs.End(11)
	put(fs, 50, 5)
	for range 40 { // until every PID outside is read again
		put(fs, 60, 1)
		same(t, "what another left behind", trees(t, r, 10), 10, 20, 21, 40, 41, 50)
		fs.End(60)
	}
	put(fs, 41, 5)
	fs.End(40)
	same(t, "a member's child is adopted", trees(t, r, 10), 10, 20, 21, 41, 50)
	fs.End(10)
	same(t, "the root has ended", trees(t, r, 10), 20, 21, 41, 50)
}

// TestRSSFalls: what is read is what is resident now, and falls with it. VmHWM and
// ru_maxrss, which others read, never do.
//
// A9: a peak taken for the present.
func TestRSSFalls(t *testing.T) {
	r := reader(t, "/proc")
	resident := func() rss.Bytes {
		t.Helper()
		p, err := r.One(os.Getpid())
		must(t, err)
		return p.RSS
	}
	const size = 64 << 20
	before := resident()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	must(t, err)
	risen := resident()
	must(t, unix.Munmap(b))
	fallen := resident()
	var usage unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	const slack = 16 * rss.MiB // the runtime's own
	if risen < before+size-slack || fallen > risen-size+slack {
		t.Errorf("%v, with %v more %v, without %v", before, rss.Bytes(size), risen, fallen)
	}
	if peak := rss.Bytes(usage.Maxrss) << 10; peak < risen-slack {
		t.Errorf("ru_maxrss is %v and fell too", peak)
	}
}

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(m.Run())
}

// shell is a real process that runs lines of bash, each of which is to print one number.
func shell(t *testing.T) (c *rsstest.Child, do func(line string) int) {
	t.Helper()
	c = rsstest.StartChild(t, exec.Command("bash", "-c", `trap 'kill $(jobs -p)' EXIT; while read -r line; do eval "$line"; done`))
	return c, func(line string) int {
		t.Helper()
		fmt.Fprintln(c.In, line)
		said, err := c.Line()
		must(t, err)
		n, err := strconv.Atoi(said)
		must(t, err)
		return n
	}
}

// until reads the tree until ok holds.
func until(t *testing.T, r *Reader, root int, ok func([]rss.Proc) bool) []rss.Proc {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		procs, _, err := r.Tree(rss.ProcID{PID: root})
		must(t, err)
		if ok(procs) {
			return procs
		}
		if time.Now().After(deadline) {
			t.Fatalf("the tree stays %+v", procs)
		}
	}
}

func has(pid int) func([]rss.Proc) bool {
	return func(procs []rss.Proc) bool { return find(procs, pid).ID.PID == pid }
}

func TestRealTree(t *testing.T) {
	c, do := shell(t)
	root := c.PID
	r := reader(t, "/proc")
	until(t, r, root, has(root))
	for _, how := range []string{"", "setsid "} {
		pid := do(how + "sleep 1000 <&- >&- & echo $!")
		if p := find(until(t, r, root, has(pid)), pid); p.Parent != root || p.Orphan {
			t.Errorf("%q: %+v", how, p)
		}
	}

	t.Run("zombie", func(t *testing.T) {
		// A child of a process that does not wait for it.
		dead := do("bash -c 'sleep 1000 <&- >&- & echo $!; exec sleep 1000 <&- >&-' &")
		until(t, r, root, func(procs []rss.Proc) bool { return find(procs, find(procs, dead).Parent).Comm == "sleep" })
		must(t, unix.Kill(dead, unix.SIGKILL))
		procs := until(t, r, root, func(procs []rss.Proc) bool {
			p := find(procs, dead)
			return p.State == 'Z' && p.RSS == 0
		})
		p := find(procs, dead)
		if p.Orphan {
			t.Errorf("zombie %+v", p)
		}
		must(t, unix.Kill(p.Parent, unix.SIGKILL))
		until(t, r, root, func(procs []rss.Proc) bool { return !has(dead)(procs) })
	})

	t.Run("double fork", func(t *testing.T) {
		daemon := do("bash -c 'sleep 1000 <&- >&- & echo $!; wait' &")
		middle := find(until(t, r, root, has(daemon)), daemon).Parent
		must(t, unix.Kill(middle, unix.SIGKILL))
		procs := until(t, r, root, func(procs []rss.Proc) bool { return find(procs, daemon).Orphan })
		if p := find(procs, daemon); p.Parent == middle {
			t.Errorf("orphan %+v", p)
		}
		must(t, unix.Kill(daemon, unix.SIGKILL))
	})
}

// TestRealSums: what statm, status and smaps_rollup say of a process agrees, and grows with it.
func TestRealSums(t *testing.T) {
	e := rsstest.StartEater(t)
	r := reader(t, "/proc")
	procs := until(t, r, e.PID, has(e.PID))
	fast, err := r.SumRSS()
	// Counters lag by up to 64 pages a thread before Linux 6.2.
	if sum := procs[0].RSS; err != nil || fast+4*rss.MiB < sum || sum+4*rss.MiB < fast {
		t.Errorf("statm %v, %v; status %v", fast, err, sum)
	}
	e.Anon(64 * rss.MiB)
	if grown, err := r.SumRSS(); err != nil || grown < fast+60*rss.MiB {
		t.Errorf("after 64 MiB more: %v, was %v, %v", grown, fast, err)
	}
	pss, err := r.PSS(procs[0].ID)
	if err != nil || pss.PSS < 60*rss.MiB || pss.PSS > pss.RSS {
		t.Errorf("PSS %+v, %v", pss, err)
	}
	if _, err := r.PSS(rss.ProcID{PID: e.PID, Start: 1}); !Vanished(err) {
		t.Errorf("PSS of another process with the PID: %v", err)
	}
}

// The same listing and stat as prometheus/procfs and the shell see them.
func TestRealSelf(t *testing.T) {
	self, err := procfs.Self()
	must(t, err)
	theirs, err := self.Stat()
	must(t, err)
	r := reader(t, "/proc")
	p, err := r.One(os.Getpid())
	if err != nil || p.ID != (rss.ProcID{PID: os.Getpid(), Start: theirs.Starttime}) || p.Parent != os.Getppid() || p.Comm != theirs.Comm ||
		p.RSS == 0 || p.RSS != p.Anon+p.File+p.Shmem || p.Threads < 2 {
		t.Errorf("got %+v, %v; want %+v", p, err, theirs)
	}
	if start, err := StartTime("/proc", os.Getpid()); err != nil || start != theirs.Starttime {
		t.Errorf("start %d, %v", start, err)
	}
	pids, _, _ := tree(t, r, os.Getpid())
	if below := r.Below(os.Getppid()); !slices.Contains(pids, os.Getpid()) || !slices.Contains(below, os.Getpid()) {
		t.Errorf("tree %v, below the parent: %v", pids, below)
	}
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestParseMemInfo(t *testing.T) {
	got, err := parseMemInfo([]byte("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:\t  400 kB\nHugePages_Total: 3\nCommitLimit: 500 kB\nCommitted_AS: 70 kB\nSwapTotal: 20 kB\nSwapFree: 10 kB\n"))
	if want := (MemInfo{1000 << 10, 400 << 10, 20 << 10, 10 << 10, 70 << 10, 500 << 10}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, in := range []string{"", "MemTotal: 1 kB\n", "MemTotal: 1 MB\nMemAvailable: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal: 1\nMemAvailable: 1 kB\n"} {
		if got, err := parseMemInfo([]byte(in)); err == nil {
			t.Errorf("%q: got %+v", in, got)
		}
	}
}

func FuzzParseMemInfo(f *testing.F) {
	f.Add([]byte("MemTotal: 1 kB\nMemAvailable: 1 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMemInfo(b); err == nil && len(b) < len("MemTotal:1 kB\nMemAvailable:1 kB") {
			t.Errorf("%+v from %q", m, b)
		}
	})
}

// The same file through two code paths.
func TestMemInfoAsProcfsReadsIt(t *testing.T) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Skip(err)
	}
	theirs, err := fs.Meminfo()
	must(t, err)
	n := NewNode("/proc")
	defer n.Close()
	for range 2 {
		ours, err := n.Read()
		if err != nil || ours.Total != rss.Bytes(*theirs.MemTotalBytes) || ours.SwapTotal != rss.Bytes(*theirs.SwapTotalBytes) {
			t.Errorf("ours %+v, %v, theirs %d", ours, err, *theirs.MemTotalBytes)
		}
	}
}

func TestNodeKills(t *testing.T) {
	fs := rsstest.Empty(t)
	if _, ok := NodeKills(fs.Proc); ok {
		t.Error("read without a file")
	}
	for text, want := range map[string]uint64{"pgfault 9\noom_kill 3\nx 1\n": 3, "pgfault 9\n": 0, "oom_kill x\n": 0} {
		fs.Write("proc/vmstat", text)
		if kills, ok := NodeKills(fs.Proc); kills != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v", text, kills, ok)
		}
	}
}
