package action

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// told collects lines that come from other goroutines.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (s *told) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *told) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "|")
}

func programs(out *told) *Programs { return NewPrograms((*exec.Cmd).Start, out.say) }

// wait takes the next that ended.
func wait(t *testing.T, s *Programs) Ran {
	t.Helper()
	select {
	case r := <-s.Ended():
		s.Next()
		return r
	case <-time.After(time.Minute):
		t.Fatal("nothing ended within a minute")
		panic("unreachable")
	}
}

func TestProgram(t *testing.T) {
	for _, c := range []struct {
		command string
		ok      bool
		reason  event.Reason
		exit    int
		detail  string
		says    string
	}{
		{"cat; echo $A", true, event.ReasonDone, 0, "exit status 0", "{}|b"},
		{"echo out; echo err >&2; exit 3", false, event.ReasonStatus, 3, "exit status 3", "out|err"},
		{"kill -KILL $$", false, event.ReasonStatus, -9, "killed by SIGKILL", ""},
		{"no-such-command-here", false, event.ReasonStatus, 127, "exit status 127", "not found"},
		{"true", true, event.ReasonDone, 0, "exit status 0", ""}, // does not read what it is given
	} {
		var out told
		s := programs(&out)
		if !s.Run(Program{ID: 4, Command: c.command, Env: []string{"A=b", "PATH=" + os.Getenv("PATH")}, Stdin: []byte("{}\n")}) {
			t.Fatal("not run")
		}
		r := wait(t, s)
		if r.ID != 4 || r.OK != c.ok || r.Reason != c.reason || r.Exit == nil || *r.Exit != c.exit || r.Detail != c.detail || r.PID == 0 || r.Took <= 0 {
			t.Errorf("%q: %+v", c.command, r)
		}
		if got := out.all(); !strings.Contains(got, c.says) {
			t.Errorf("%q said %q, want %q", c.command, got, c.says)
		}
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	s := NewPrograms(func(*exec.Cmd) error { return syscall.EAGAIN }, func(string) {})
	s.Run(Program{Command: "true"})
	if r := wait(t, s); r.OK || r.Reason != event.ReasonError || !strings.Contains(r.Detail, "cannot start it: resource temporarily unavailable") {
		t.Errorf("%+v", r)
	}
}

// TestProgramsOneAtATime and one that waits, in the order of asking.
func TestProgramsOneAtATime(t *testing.T) {
	var out told
	s := programs(&out)
	gate := filepath.Join(t.TempDir(), "gate")
	first := "while [ ! -e " + gate + " ]; do sleep 0.01; done; echo one"
	if !s.Run(Program{ID: 1, Command: first}) || !s.Run(Program{ID: 2, Command: "echo two"}) {
		t.Fatal("refused")
	}
	if s.Run(Program{ID: 3, Command: "echo three"}) {
		t.Error("a third was taken")
	}
	wardentest.NoError(t, os.WriteFile(gate, nil, 0o600))
	if a, b := wait(t, s), wait(t, s); a.ID != 1 || b.ID != 2 || out.all() != "one|two" {
		t.Errorf("%d, %d: %s", a.ID, b.ID, out.all())
	}
	if !s.Run(Program{ID: 4, Command: "true"}) || wait(t, s).ID != 4 {
		t.Error("none is taken after the last")
	}
}

// gone waits until the process has ended; who adopts it may be slow to take its
// status.
func gone(t *testing.T, pid int) {
	t.Helper()
	wardentest.Until(t, fmt.Sprintf("process %d has ended", pid), func() bool {
		i, err := proctree.Identify("/proc", pid)
		return err != nil || i.Ended()
	})
}

func pidIn(t *testing.T, path string) (pid int) {
	t.Helper()
	wardentest.Until(t, "a PID is in "+path, func() bool {
		b, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(b), "\n") {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil && pid > 0
	})
	return pid
}

func TestProgramThatRunsTooLong(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ command, detail string }{
		"ends by TERM":                         {"sleep 1000 & echo $! >" + dir + "/a; wait", "killed by SIGTERM, it ran for longer than 500ms"},
		"ignores TERM":                         {"trap '' TERM; sleep 1000 & echo $! >" + dir + "/a; wait; sleep 1000", "killed by SIGKILL, it ran"},
		"leaves a child that holds the output": {"sleep 1000 & echo $! >" + dir + "/a; exit 3", "exit status 3, it ran"},
	} {
		os.Remove(dir + "/a")
		s := programs(&told{})
		s.time, s.grace = 500*time.Millisecond, 50*time.Millisecond // a shell has set its trap by then
		s.Run(Program{Command: c.command, Env: os.Environ()})
		r := wait(t, s)
		if r.OK || r.Reason != event.ReasonTimeout || !strings.HasPrefix(r.Detail, c.detail) {
			t.Errorf("%s: %+v", name, r)
		}
		if b, err := os.ReadFile(dir + "/a"); err == nil && len(b) > 0 {
			gone(t, pidIn(t, dir+"/a"))
		}
		gone(t, r.PID)
	}
}

func TestProgramsClose(t *testing.T) {
	dir := t.TempDir()
	s := programs(&told{})
	s.grace, s.last = 50*time.Millisecond, time.Minute // a busy machine takes its time to kill
	s.Run(Program{ID: 1, Command: "echo $$ >" + dir + "/a; trap '' TERM; while :; do sleep 1000; done", Env: os.Environ()})
	s.Run(Program{ID: 2, Command: "echo never >" + dir + "/b"})
	pid := pidIn(t, dir+"/a")
	all := s.Close(10 * time.Millisecond)
	if len(all) != 2 || all[0].ID != 1 || all[0].Exit == nil || *all[0].Exit != -9 || all[1].ID != 2 || all[1].Reason != event.ReasonVanished {
		t.Errorf("%+v", all)
	}
	gone(t, pid)
	if _, err := os.Stat(dir + "/b"); err == nil {
		t.Error("what waited was started")
	}
	s = programs(&told{})
	s.Run(Program{ID: 3, Command: "exit 0"})
	if all := s.Close(time.Minute); len(all) != 1 || !all[0].OK {
		t.Errorf("%+v", all)
	}
	if all := s.Close(time.Minute); len(all) != 0 {
		t.Errorf("closed twice: %+v", all)
	}
}

func TestPassOnIsBounded(t *testing.T) {
	var out told
	passOn(strings.NewReader("a\x1b[31m\u009b\tb\xff\n"+strings.Repeat("x", 3*maxLine)+"\nc"), out.say)
	if got := out.all(); got != "a\ufffd[31m\ufffd b\ufffd|"+strings.Repeat("x", maxLine)+"|c" {
		t.Errorf("%q", got)
	}
	out = told{}
	passOn(strings.NewReader(strings.Repeat("line\n", maxLines+7)), out.say)
	if len(out.lines) != maxLines+1 || out.lines[maxLines] != "(7 more lines are left out)" {
		t.Errorf("%d lines, the last %q", len(out.lines), out.lines[len(out.lines)-1])
	}
}

// TestKillSparesAThread: the number that was a process may be a thread of another now,
// and kill(2) with it would reach all of that.
//
// D1: a PID that became a thread.
func TestKillSparesAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGUSR1)
	defer signal.Stop(got)
	tid := make(chan int)
	stop := make(chan struct{})
	defer close(stop)
	another := func() int {
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			<-stop
		}()
		return <-tid
	}
	thread := another()
	if thread == os.Getpid() { // the main one: it is taken now
		thread = another()
	}
	start := func(pid int) (uint64, error) { return proctree.StartTime("/proc", pid) }
	now, err := start(thread)
	wardentest.NoError(t, err)
	for _, at := range []uint64{now - 1, now} {
		if err := Kill(rss.ProcID{PID: thread, Start: at}, unix.SIGUSR1, start); err == nil {
			t.Errorf("a thread that began at %d was signalled as the process of %d", now, at)
		}
	}
	// Without pidfds, as before Linux 5.3.
	if err := killByNumber(thread, unix.SIGUSR1); err != unix.ESRCH {
		t.Errorf("a thread was signalled by its number: %v", err)
	}
	if err := killByNumber(os.Getpid(), 0); err != nil {
		t.Errorf("a process cannot be signalled by its number: %v", err)
	}
	select {
	case <-got:
		t.Error("all of the process has got the signal")
	case <-time.After(20 * time.Millisecond):
	}
}

// TestStopOfTheUnkillable: a process in uninterruptible sleep takes KILL when it wakes.
// Until then each look tries it once, and it is not reported as stopped.
//
// D4: unkillable. F13: a kill that did nothing is no success.
func TestStopOfTheUnkillable(t *testing.T) {
	kills := 0
	kill := func(_ rss.ProcID, sig syscall.Signal) error {
		if sig == unix.SIGKILL {
			kills++
		}
		return nil
	}
	a := Stop(kill, []rss.ProcID{{PID: 10}}, all, time.Second, 0)
	waits := tree(10)
	waits.Procs[0].State = 'D'
	for look := range 100 {
		if r, done := a.Step(World{Now: time.Duration(look) * time.Minute, Sample: waits}); done {
			t.Fatalf("done in look %d: %+v", look, r)
		}
	}
	if kills != 99 {
		t.Errorf("%d kills in 99 looks past the grace", kills)
	}
	refuse := func(rss.ProcID, syscall.Signal) error { return unix.EPERM }
	if r, done := Stop(refuse, []rss.ProcID{{PID: 10}}, all, time.Second, 0).Step(World{Sample: waits}); !done || r.OK {
		t.Errorf("refused, and %+v", r)
	}
	if err := Kill(rss.ProcID{PID: 1 << 22, Start: 1}, 0, func(int) (uint64, error) { return 1, nil }); !errors.Is(err, unix.ESRCH) {
		t.Errorf("an unused PID: %v", err)
	}
}
