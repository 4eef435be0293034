package action

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

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
	if err != nil {
		t.Fatal(err)
	}
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
// Until then each look tries it once, and nobody says that it was stopped.
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
		t.Errorf("nobody has that PID: %v", err)
	}
}
