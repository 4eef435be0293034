package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"golang.org/x/sys/unix"
)

// guardStand is a watcher of an eater that is in a real memory cgroup with a
// limit, as is another that plays the holder. Ticks come once an hour.
type guardStand struct {
	*stand
	task          rsstest.Group
	holder, eater *rsstest.Eater
}

func newGuardStand(t *testing.T) *guardStand {
	t.Helper()
	g := rsstest.NewGroup(t, 512*rss.MiB)
	if g.Version != 1 {
		t.Skip("the memory controller is cgroup v2")
	}
	s := &guardStand{task: g.Sub("task_0")}
	// Behind the end of the eaters, before that of the groups.
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(s.task.Dir, guardPrefix+"*"))
		for _, dir := range left {
			os.Remove(dir)
		}
	})
	s.holder, s.eater = rsstest.StartEater(t), rsstest.StartEater(t)
	for _, e := range []*rsstest.Eater{s.holder, s.eater} {
		s.task.Join(e.PID)
	}
	s.eater.Anon(rss.MiB)
	s.stand = newStand(t, func(o *Options) {
		o.Proc, o.Sys = "/proc", "/sys"
		o.Settings.GuardCgroup, o.Settings.Limit, o.Settings.Interval = true, 0, time.Hour
		begin := &o.Link.(*fakeHolder).begin
		begin.PID, begin.Holder = s.eater.PID, s.holder.PID
		begin.Start, _ = proctree.StartTime("/proc", s.eater.PID)
	})
	return s
}

// guardDir is where the guard must be.
func (s *guardStand) guardDir() string {
	return filepath.Join(s.task.Dir, guardName(s.holder.PID))
}

// memoryCgroup is the text that says where a process is.
func memoryCgroup(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && f[1] == "memory" {
			return filepath.Base(f[2])
		}
	}
	t.Fatalf("process %d is in no memory cgroup", pid)
	return ""
}

// decided says that the ladder has said something of the cgroup's limit.
func (s *guardStand) decided() bool {
	return strings.Contains(s.stderr(), "memory 8")
}

// TestGuardTells: growth up to a rung is told by the kernel, and what comes of
// it is a decision from a fresh look.
func TestGuardTells(t *testing.T) {
	s := newGuardStand(t)
	stale := filepath.Join(s.task.Dir, guardPrefix+"4194305") // above the greatest PID
	if err := os.Mkdir(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	s.open(s.stand.holder.begin)
	if got := memoryCgroup(t, s.eater.PID); got != guardName(s.holder.PID) {
		t.Fatalf("the command is in %s\n%s", got, s.stderr())
	}
	if got := memoryCgroup(t, s.holder.PID); got != "task_0" {
		t.Errorf("the holder is in %s", got)
	}
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a run left that was killed is still there: %v", err)
	}
	s.aim()
	if s.guard.armed == 0 {
		t.Fatalf("nothing is armed; limits %+v", s.readings)
	}
	s.eater.Anon(420 * rss.MiB) // 80 % are 410
	for deadline := time.After(20 * time.Second); !s.decided(); s.aim() {
		select {
		case <-s.guard.woken():
			s.guard.armed = 0
			s.tick()
		case <-deadline:
			t.Fatalf("the kernel told nothing: %v armed; %+v", s.guard.armed, s.readings)
		}
	}
	s.Link.(*fakeHolder).exited <- hold.Exit{}
	s.loop()
	if _, err := os.Stat(s.guardDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is left behind: %v\n%s", err, s.stderr())
	}
	if faults := named(s.events(), event.NameFault); len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
}

// TestGuardPageCache: below a rung page cache that comes and goes wakes us
// 20 times a second at most, and decides nothing.
func TestGuardPageCache(t *testing.T) {
	s := newGuardStand(t)
	s.open(s.stand.holder.begin)
	s.eater.Anon(370 * rss.MiB) // 80 % are 410
	s.full()
	data := coldFile(t, 200*rss.MiB)
	began, woken := time.Now(), 0
	written := make(chan bool)
	go func() { written <- s.eater.Map(200*rss.MiB, data) }()
	for done := false; !done; {
		s.aim()
		select {
		case <-s.guard.woken():
			woken++
			s.guard.armed = 0
			s.tick()
		case <-written:
			done = true
		}
	}
	took := time.Since(began)
	t.Logf("woken %d times in %v", woken, took)
	if most := int(took/guardPause) + 2; woken > most {
		t.Errorf("woken %d times in %v, want %d at most", woken, took, most)
	}
	if s.decided() {
		t.Errorf("page cache decided something:\n%s", s.stderr())
	}
	s.leaveGuard()
}

// coldFile makes a file of which nothing is in the page cache: who reads it is
// charged for clean pages. What is written is dirty for a while, and dirty pages
// are none that can be taken back at once.
func coldFile(t *testing.T, size rss.Bytes) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.Write(make([]byte, size))
	if err := errors.Join(err, f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
	return name
}

// memoryOnes are the limits on summed memory: the others are read on the side, and
// come a look later.
func memoryOnes(limits []event.Limit) []event.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l event.Limit) bool { return !l.Name.Memory() })
}

// TestGuardAgain: a watcher that was started again finds the cgroup, and the
// same limits.
func TestGuardAgain(t *testing.T) {
	s := newGuardStand(t)
	s.open(s.stand.holder.begin)
	before := memoryOnes(s.readings)
	again := newWatcher(s.Options, s.stand.holder.begin)
	again.open(s.stand.holder.begin)
	if again.guard == nil || again.guard.group.Dir != s.guardDir() {
		t.Fatalf("the guard is %+v, want %s", again.guard, s.guardDir())
	}
	now := memoryOnes(again.readings)
	if len(now) != len(before) {
		t.Fatalf("limits %+v, before %+v", now, before)
	}
	for i := range now {
		if now[i].ID() != before[i].ID() {
			t.Errorf("limit %+v, before %+v", now[i], before[i])
		}
	}
	again.leaveGuard()
	if err := RemoveGuard(s.holder.PID); err != nil {
		t.Errorf("removed a second time: %v", err)
	}
	if _, err := os.Stat(s.guardDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is left behind: %v", err)
	}
}

// TestGuardRefused: without a cgroup of ours there is one fault, and the run
// goes on as ever.
func TestGuardRefused(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Settings.GuardCgroup = true })
	s.fs.Write("proc/5000000/cgroup", "4:cpu:/\n")
	s.fs.Write("proc/self/mountinfo", "30 20 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
	s.open(s.holder.begin)
	s.aim()
	s.later(2 * time.Second)
	s.tick()
	s.Link.(*fakeHolder).exited <- hold.Exit{}
	s.loop()
	all := s.events()
	faults := named(all, event.NameFault)
	if len(faults) != 1 || faults[0]["part"] != guardPart || !strings.Contains(s.stderr(), "limits are looked at as often as without it") {
		t.Errorf("faults %v\n%s", faults, s.stderr())
	}
	if len(named(all, event.NameExit)) != 1 {
		t.Errorf("events %v", all)
	}
}
