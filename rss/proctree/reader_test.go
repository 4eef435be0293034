package proctree

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// openStatm counts our descriptors of some process's statm, and wants each
// closed on exec.
func openStatm(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	n := 0
	for _, name := range names {
		to, _ := os.Readlink(filepath.Join("/proc/self/fd", name.Name()))
		if !strings.HasSuffix(to, "/statm") {
			continue
		}
		n++
		info, _ := os.ReadFile(filepath.Join("/proc/self/fdinfo", name.Name()))
		if !strings.Contains(string(info), "flags:\t02") {
			t.Errorf("%s is not closed on exec:\n%s", to, info)
		}
	}
	return n
}

func readTree(t *testing.T, r *Reader) []rss.Proc {
	t.Helper()
	procs, gaps, err := r.Tree(rss.ProcID{PID: os.Getpid()})
	if err != nil || gaps.Denied+gaps.Malformed > 0 {
		t.Fatal(gaps, err)
	}
	return procs
}

func TestDescriptorsAreKept(t *testing.T) {
	for range 3 {
		rsstest.Sleeper(t)
	}
	for most, want := range map[int]int{100: 4, 2: 2, 0: 0} {
		r := New("/proc")
		r.kept = kept{most: most, asked: true}
		first := readTree(t, r)
		if n := openStatm(t); n != want || r.kept.open != want {
			t.Errorf("of %d at most: %d and %d kept, want %d", most, n, r.kept.open, want)
		}
		again := readTree(t, r)
		if len(first) != 4 || len(again) != 4 || again[3].RSS == 0 || again[3].ID != first[3].ID {
			t.Errorf("of %d at most: %+v, then %+v", most, first, again)
		}
		if sum, err := r.SumRSS(); err != nil || sum < again[1].RSS+again[2].RSS+again[3].RSS {
			t.Errorf("of %d at most: sum %v, %v of %+v", most, sum, err, again)
		}
		r.Close()
		if n := openStatm(t); n != 0 || r.kept.open != 0 {
			t.Errorf("%d and %d left open", n, r.kept.open)
		}
	}
}

func TestDescriptorsOfTheDeadAreClosed(t *testing.T) {
	dies, _ := rsstest.Sleeper(t)
	r := New("/proc")
	defer r.Close()
	readTree(t, r)
	dies.Process.Kill()
	dies.Wait()
	if sum, err := r.SumRSS(); err != nil || sum == 0 {
		t.Errorf("%v, %v", sum, err)
	}
	if procs := readTree(t, r); len(procs) != 1 || openStatm(t) != 1 {
		t.Errorf("%+v, %d open", procs, openStatm(t))
	}
}

// Where nothing was forked /proc is not listed, and a fork is seen at once.
func TestListsAfterAFork(t *testing.T) {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil || !onProcfs(fd) {
		t.Skipf("/proc/loadavg cannot be trusted here: %v", err)
	}
	unix.Close(fd)
	r := New("/proc")
	defer r.Close()
	readTree(t, r)
	quiet := false
	for range 100 { // others fork too
		before := r.lists
		readTree(t, r)
		if quiet = r.lists == before; quiet {
			break
		}
	}
	if !quiet {
		t.Error("listed 100 times in a row")
	}
	rsstest.Sleeper(t)
	if procs := readTree(t, r); len(procs) != 2 {
		t.Errorf("the child is not seen: %+v", procs)
	}
}

// TestNoDescriptorLeft: when no more files can be opened, the tree is unknown, not empty.
// The gap is reported, and the processes are read once files can be opened again.
func TestNoDescriptorLeft(t *testing.T) {
	r := New("/proc")
	t.Cleanup(r.Close)
	first := len(readTree(t, r))
	_, started := rsstest.Sleeper(t)
	var procs []rss.Proc
	var err error
	rsstest.WithoutDescriptors(t, func() {
		procs, _, err = r.Tree(rss.ProcID{PID: os.Getpid()})
	})
	if !errors.Is(err, unix.EMFILE) || procs != nil {
		t.Errorf("read without a descriptor: %d processes, %v", len(procs), err)
	}
	found := false
	procs = readTree(t, r)
	for _, p := range procs {
		found = found || p.ID == started
	}
	if !found || len(procs) != first+1 {
		t.Errorf("%d processes then, %d before, the new one is among them: %v", len(procs), first, found)
	}
}

// TestNoDescriptorForOthers: nor that one of the tree has become smaller, that those beside the
// tree, or a user's tasks, are fewer, or that a process whose first thread has ended has no memory.
func TestNoDescriptorForOthers(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Put(rsstest.Process{PID: 10, Parent: 1, Comm: "command", Anon: rss.MiB})
	r, c := New(fs.Proc), NewCounter(fs.Proc)
	t.Cleanup(r.Close)
	t.Cleanup(c.Close)
	if procs, gaps, err := r.Group([]int{10}); len(procs) != 1 || gaps != (rss.Gaps{}) || err != nil {
		t.Fatal(procs, gaps, err)
	}
	if _, err := c.UserTasks(os.Geteuid()); err != nil {
		t.Fatal(err)
	}
	of := reader(t, fs.Proc)
	if procs, _, err := of.Tree(rss.ProcID{PID: 10}); len(procs) != 1 || err != nil {
		t.Fatal(procs, err)
	}
	var procs []rss.Proc
	var err, member, tasks, thread error
	var forks bool
	rsstest.WithoutDescriptors(t, func() {
		procs, _, err = r.Group([]int{10})
		_, member = of.members(&rss.Gaps{})
		_, tasks = c.userTasks(os.Geteuid())
		_, thread = r.liveThread(10, status{})
		forks = r.forks.happened(r.f)
	})
	if !errors.Is(err, unix.EMFILE) || procs != nil {
		t.Errorf("others: %v, %v", procs, err)
	}
	for what, err := range map[string]error{"a member": member, "tasks": tasks, "a thread": thread} {
		if !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !forks || r.forks.fd < 0 {
		t.Errorf("forks happened: %v, and loadavg is not asked again: %d", forks, r.forks.fd)
	}
}
