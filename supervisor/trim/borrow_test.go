package trim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// blocking are the kinds of testdata/block.c.
var blocking = []struct {
	name  string
	timed bool
	lends bool // such a call may return without a cause, so its thread is borrowed
	again bool // its time begins anew with each stop, because the call reports EINTR itself (signal(7))
}{
	{name: "futex", lends: true},
	{name: "futex_timed", timed: true, lends: true},
	{name: "futex_abs", timed: true, lends: true},
	{name: "read_pipe"},
	{name: "poll", lends: true},
	{name: "poll_timed", timed: true, lends: true},
	{name: "ppoll_timed", timed: true, lends: true},
	{name: "select_timed", timed: true, lends: true},
	{name: "pselect_timed", timed: true, lends: true},
	{name: "nanosleep", timed: true, lends: true},
	{name: "clock_nanosleep_rel", timed: true, lends: true},
	{name: "clock_nanosleep_abs", timed: true, lends: true},
	{name: "epoll_wait", lends: true},
	{name: "epoll_wait_timed", timed: true, lends: true, again: true},
	{name: "epoll_pwait", lends: true},
	{name: "pause"},
	{name: "sigsuspend"},
	{name: "sigtimedwait", timed: true, again: true},
	{name: "sigwaitinfo"},
	{name: "recv"},
	{name: "recv_timed", timed: true, again: true},
	{name: "waitpid"},
	{name: "semop"},
	{name: "semtimedop", timed: true, again: true},
	{name: "msgrcv"},
	{name: "flock"},
	{name: "eventfd"},
	{name: "accept"},
	{name: "write_pipe"},
	{name: "spin", timed: true},
	{name: "getppid", timed: true},
}

// The words of a kind in testdata/block.c.
const (
	blockTID = iota
	blockReturns
	blockEINTRs
	blockBad
	blockLastBad
	blockEarly
	blockLatest
	blockWoken
)

// The words of the process: the test wants the calls woken, and how often the
// main thread's read returned.
const (
	blockWake = 0
	blockMain = 2
)

// blocked is a process of testdata/block.c with the kinds at the places that
// it was given them.
type blocked struct {
	*tracee
	kinds []int // indices in blocking
	calls []int // the system calls that the untimed ones sleep in
}

func (b *blocked) word(place, word int) uint64 { return b.counter(8 + 8*place + word).Load() }

func (b *blocked) tid(place int) int { return int(b.word(place, blockTID)) }

// startBlocked starts it, and waits until every call is under way.
func startBlocked(t *testing.T, kinds ...int) *blocked {
	t.Helper()
	var names []string
	for _, k := range kinds {
		names = append(names, blocking[k].name)
	}
	b := &blocked{tracee: start(t, "block", dataFile(t, 16<<20), names...), kinds: kinds, calls: make([]int, len(kinds))}
	for i, k := range kinds {
		until(t, blocking[k].name+" has begun", func() bool {
			if b.tid(i) == 0 {
				return false
			}
			b.calls[i] = callOf(b.pid, b.tid(i))
			return blocking[k].timed || b.calls[i] >= 0
		})
	}
	return b
}

// undisturbed checks that no call returned but in its time, that those without
// a time sleep still, and that they return rightly when they have cause to.
func (b *blocked) undisturbed(t *testing.T, mayEINTR func(kind int) uint64) {
	t.Helper()
	var late []string
	for i, k := range b.kinds {
		kind := blocking[k]
		if n := b.word(i, blockEINTRs); n > mayEINTR(k) {
			t.Errorf("%s: EINTR %d times", kind.name, n)
		}
		if n := b.word(i, blockBad); n > 0 {
			t.Errorf("%s: %d wrong results, the last %d", kind.name, n, int64(b.word(i, blockLastBad)))
		}
		if n := b.word(i, blockEarly); n > 0 {
			t.Errorf("%s: %d times too early", kind.name, n)
		}
		if d := time.Duration(b.word(i, blockLatest)); d > 0 {
			late = append(late, fmt.Sprintf("%s %v", kind.name, d.Round(time.Millisecond/10)))
		}
		if kind.timed {
			before := b.word(i, blockReturns)
			until(t, kind.name+" returns again", func() bool { return b.word(i, blockReturns) > before })
		} else if mayEINTR(k) == 0 {
			until(t, fmt.Sprintf("%s sleeps in call %d", kind.name, b.calls[i]), func() bool {
				// The kernel goes on with some calls as restart_syscall(2).
				nr := callOf(b.pid, b.tid(i))
				return nr == b.calls[i] || nr == unix.SYS_RESTART_SYSCALL
			})
			if n := b.word(i, blockReturns); n > 0 {
				t.Errorf("%s: returned %d times without a cause", kind.name, n)
			}
		}
	}
	if len(late) > 0 {
		t.Log("latest: ", strings.Join(late, ", "))
	}
	b.counter(blockWake).Store(1)
	for i, k := range b.kinds {
		if !blocking[k].timed {
			until(t, blocking[k].name+" returns with what it waited for", func() bool { return b.word(i, blockWoken) == 1 })
			if n := b.word(i, blockBad); n > 0 {
				t.Errorf("%s: woken, but %d wrong results", blocking[k].name, n)
			}
		}
	}
}

func never(int) uint64 { return 0 }

// All kinds at once: what is borrowed is any of those that lend, and all others
// are stopped.
func TestBlockingCalls(t *testing.T) {
	dice := newDice(t)
	var all []int
	for k := range blocking {
		all = append(all, k)
	}
	b := startBlocked(t, all...)
	tr, y := newTracer(t), tally{}
	p := b.pieces()[0]
	for deadline := time.Now().Add(2 * time.Minute); y.done() < times(30, 300); pass(dice, 3*time.Millisecond) {
		y.do(t, tr, p)
		if t.Failed() || time.Now().After(deadline) {
			t.Errorf("given up after %s", &y)
			break
		}
	}
	t.Log(&y)
	letGo(t, b.pid, "RSD")
	b.undisturbed(t, never)
	if n := b.counter(blockMain).Load(); n > 0 {
		t.Errorf("the main thread's read returned %d times", n)
	}
}

// Each kind alone, so that the thread is borrowed in that very call, or the
// process refused because there is none to borrow.
func TestBlockingCallAlone(t *testing.T) {
	for k, kind := range blocking {
		t.Run(kind.name, func(t *testing.T) {
			dice := newDice(t)
			b := startBlocked(t, k)
			tr, y := newTracer(t), tally{}
			p := b.pieces()[0]
			want := times(30, 300)
			deadline := time.Now().Add(time.Minute)
			for n := 0; n < want; pass(dice, 2*time.Millisecond) {
				a := y.do(t, tr, p)
				switch {
				case t.Failed() || time.Now().After(deadline):
					t.Fatalf("given up after %s", &y)
				case kind.lends && a.Refusal == None:
					n++
				case !kind.lends && a.Refusal == NoSleeper:
					n++
				case !kind.lends && a.Refusal == None:
					t.Fatalf("a thread in %s was borrowed", kind.name)
				}
			}
			t.Log(&y)
			letGo(t, b.pid, "RSD")
			b.undisturbed(t, never)
		})
	}
}
