package supervisor

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// holding has this process hold a file of that size in /dev/shm, without its name
// if deleted.
func holding(t *testing.T, name string, size rss.Bytes, deleted bool) {
	t.Helper()
	f, err := os.Create(fmt.Sprintf("/dev/shm/%s_%d", name, os.Getpid()))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(size)); err != nil {
		t.Skip(err)
	}
	if deleted {
		os.Remove(f.Name())
	}
}

// TestHolders words who holds what in the /dev/shm of this process.
func TestHolders(t *testing.T) {
	if space, err := shm.Usage("/proc", os.Getpid()); err != nil || !space.Tmpfs {
		t.Skipf("no tmpfs on /dev/shm: %+v, %v", space, err)
	}
	ask := holdersAsk{proc: "/proc", pid: os.Getpid(), all: []int{os.Getpid()}}
	if got := ask.read(); !strings.HasPrefix(got, "in /dev/shm this job holds nothing of size") {
		t.Fatalf("before: %s", got)
	}
	holding(t, "torch_a", 3*rss.MiB, true)
	holding(t, "torch_b", 2*rss.MiB, false)
	holding(t, "mine", 2*rss.MiB, true)
	holding(t, "torch_c", 4096, true)
	got := ask.read()
	want := fmt.Sprintf(`^in /dev/shm this job holds torch 5\.00 MiB \(3 segments, 2 without a name, in processes %d\), [a-z ]+ 2\.00 MiB \(1 segment, 1 without a name, in processes %d\)$`, os.Getpid(), os.Getpid())
	if !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	ask.pid = theCommand
	if got := ask.read(); got != "" {
		t.Errorf("of one that is gone %q", got)
	}

	g := rsstest.NewGroup(t, rss.GiB)
	ask.pid, ask.level = os.Getpid(), g.Dir
	if got := ask.read(); !strings.Contains(got, " of shared memory are charged to memory/rsswarden-test") && g.Version == 1 {
		t.Errorf("with a cgroup: %s", got)
	}
}

// TestMostHolders: the fullest go first, and thousands of workers are not listed.
func TestMostHolders(t *testing.T) {
	held := shm.Held{Segments: []shm.Segment{
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{1, 2, 3, 4, 5, 6, 7, 8}, Deleted: true},
		{Kind: shm.Torch, Dev: 1, Size: rss.MiB, Holders: []int{8}},
		{Kind: shm.Torch, Dev: 2, Size: rss.MiB, Holders: []int{99}},
	}}
	a := holdersAsk{}
	if got, want := a.segments(&held, 1, shm.Torch), "2 segments, 1 without a name, in processes 8, 1, 2, 3, 4, 5 and 2 more"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestHoldersAreSaid with a later look, and kept for the summary.
func TestHoldersAreSaid(t *testing.T) {
	if space, err := shm.Usage("/proc", os.Getpid()); err != nil || !space.Tmpfs {
		t.Skipf("no tmpfs on /dev/shm: %+v, %v", space, err)
	}
	holding(t, "torch_said", 3*rss.MiB, true)
	s := opened(t, nil)
	s.sayHolders() // nobody was asked
	s.Proc = "/proc"
	s.last.Procs = []rss.Proc{{ID: rss.ProcID{PID: os.Getpid()}, Role: rss.RoleTrainer}}
	s.readings = append(s.readings, event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Used: 900, Limit: 1000})
	s.decide(event.Decision{ID: 1, Rule: "shm 80%:warn", On: event.LimitID{Name: event.LimitSHM, Scope: event.ScopeNode}, Limit: event.LimitSHM, Action: event.ActionWarn, Used: 900, LimitSize: 1000, Threshold: 800})
	if !s.holders.Wait(20 * time.Second) {
		t.Fatal("nobody has looked within 20 s")
	}
	if strings.Contains(s.stderr(), "this job holds") {
		t.Error("it is said before a look")
	}
	s.sayHolders()
	s.sayHolders()
	if n := strings.Count(s.stderr(), "in /dev/shm this job holds torch 3.00 MiB (1 segment, 1 without a name"); n != 1 {
		t.Errorf("said %d times\n%s", n, s.stderr())
	}
	for i, used := range []rss.Bytes{600, 900} {
		late := event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}
		s.sum.Peak(&rss.Sample{Mono: s.last.Mono + time.Duration(i)*time.Second}, []event.Limit{late}, func(*event.Limit) float64 { return 0 })
	}
	s.end(&hold.Exit{Code: 1})
	if verdict := s.lines.last(); !strings.Contains(verdict, "this job holds torch") || !strings.Contains(verdict, "prefetch_factor") {
		t.Errorf("the last line: %s", verdict)
	}
}
