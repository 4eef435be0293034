package trim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// blocking are the kinds of testdata/block.c.
var blocking = []struct {
	name  string
	timed bool
	lends bool // such a call may return without a cause, so its thread is borrowed
	again bool // its time restarts with each stop, because the call reports EINTR itself (signal(7))
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
		wardentest.Until(t, blocking[k].name+" has begun", func() bool {
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
			wardentest.Until(t, kind.name+" returns again", func() bool { return b.word(i, blockReturns) > before })
		} else if mayEINTR(k) == 0 {
			wardentest.Until(t, fmt.Sprintf("%s sleeps in call %d", kind.name, b.calls[i]), func() bool {
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
			wardentest.Until(t, blocking[k].name+" returns with what it waited for", func() bool { return b.word(i, blockWoken) == 1 })
			if n := b.word(i, blockBad); n > 0 {
				t.Errorf("%s: woken, but %d wrong results", blocking[k].name, n)
			}
		}
	}
}

func never(int) uint64 { return 0 }

// Each kind alone, so that the thread is borrowed in that very call, or the
// process refused because there is none to borrow.
func TestBlockingCallAlone(t *testing.T) {
	for k, kind := range blocking {
		t.Run(kind.name, func(t *testing.T) {
			dice := newDice(t)
			b := startBlocked(t, k)
			tr, y := newTracer(t), tally{}
			p := b.pieces()[0]
			want := wardentest.Few(300, 30)
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

// TestMutexIsNotLent: a thread that waits for a mutex goes on with the registers of its own
// call behind it, and would not survive our end in the middle of ours.
func TestMutexIsNotLent(t *testing.T) {
	data := dataFile(t, 16<<20)
	c := rsstest.StartChild(t, exec.Command(program(t, "mutex"), data))
	line, err := c.Line()
	var tid int
	if _, scanErr := fmt.Sscanf(line, "waiting %d", &tid); err != nil || scanErr != nil {
		t.Fatalf("%q, %v", line, err)
	}
	wardentest.Until(t, "the thread waits", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", c.PID, tid))
		return strings.HasPrefix(string(b), "202 ")
	})
	pieces, err := piecesOf(c.PID, data)
	must(t, err)
	tracer := NewTracer()
	defer tracer.Close()
	for range wardentest.Few(200, 20) {
		if a := tracer.Do(pieces[0]); a.Refusal != NoSleeper {
			t.Fatalf("%v, want %v", a.Refusal.Reason(), NoSleeper.Reason())
		}
	}
	c.In.Close()
	if line, err := c.Line(); line != "got it" {
		t.Errorf("%q, %v", line, err)
	}
}

// The counters of testdata/signals.c.
const (
	sigHandled = iota
	sigDisorder
	sigEINTRs
	sigOther
	sigSeen
	sigOutside
)

// sigrtmin is SIGRTMIN as programs of glibc have it, which keeps two for itself.
const sigrtmin = 34

// queue sends a real-time signal that carries a value (sigqueue(3)).
func queue(pid, value int) error {
	// siginfo_t: si_signo, si_errno, si_code, then si_pid, si_uid, si_value.
	const siQueue = -1
	var info [128]byte
	binary.LittleEndian.PutUint32(info[0:], sigrtmin)
	binary.LittleEndian.PutUint32(info[8:], 1<<32+siQueue)
	binary.LittleEndian.PutUint32(info[16:], uint32(unix.Getpid()))
	binary.LittleEndian.PutUint32(info[20:], uint32(unix.Getuid()))
	binary.LittleEndian.PutUint64(info[24:], uint64(value))
	_, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), sigrtmin, uintptr(unsafe.Pointer(&info)))
	if e != 0 {
		return e
	}
	return nil
}

// Each signal sent during trims is handled once, in order, with the value that
// it carries, and ends the call it interrupts.
func TestRealTimeSignals(t *testing.T) {
	for _, kind := range []struct {
		name   string
		masked bool // the signal gets through in the call only, and so ends one each time
	}{{"epoll_wait", false}, {"read", false}, {"epoll_pwait", true}, {"ppoll", true}} {
		t.Run(kind.name, func(t *testing.T) {
			dice := newDice(t)
			p := start(t, "signals", dataFile(t, 16<<20), kind.name)
			tr, y := newTracer(t), tally{}
			piece := p.pieces()[0]
			wardentest.Until(t, "it waits", func() bool { return callOf(p.pid, p.pid) >= 0 })

			// As many trims as are wanted fall among the signals, however busy the machine is.
			total := wardentest.Few(3000, 300)
			enough, most := total/10, 20*total
			var trimmed atomic.Int64
			sent := make(chan int)
			gaps := dice.Uint64()
			go func() {
				i := 0
				defer func() { sent <- i }()
				for i < total || i < most && int(trimmed.Load()) < enough {
					switch err := queue(p.pid, i); err {
					case nil:
						i++
					case unix.EAGAIN: // as many are queued as may be
					default:
						t.Error("rt_sigqueueinfo: ", err)
						return
					}
					// Some at once, so that several are pending at a stop.
					if gaps = mix(gaps); gaps%4 != 0 {
						time.Sleep(time.Duration(gaps>>8%1500) * time.Microsecond)
					}
				}
			}()
			for going := true; going; pass(dice, time.Millisecond) {
				y.do(t, tr, piece)
				trimmed.Store(int64(y.done()))
				select {
				case total = <-sent:
					going = false
				default:
				}
			}
			wardentest.Until(t, "all are handled", func() bool { return p.counter(sigHandled).Load() >= uint64(total) })
			letGo(t, p.pid, "RS")
			t.Logf("%s; EINTR %d times", &y, p.counter(sigEINTRs).Load())
			if y.done() < enough {
				t.Errorf("%d trims only, for %d signals", y.done(), total)
			}
			if n := p.counter(sigHandled).Load(); n != uint64(total) {
				t.Errorf("%d signals handled, %d sent", n, total)
			}
			if n := p.counter(sigDisorder).Load(); n > 0 {
				t.Errorf("%d signals out of order, or with another value", n)
			}
			if n := p.counter(sigOther).Load(); n > 0 {
				t.Errorf("the call returned %d times without a signal", n)
			}
			eintrs := p.counter(sigEINTRs).Load()
			if eintrs > uint64(total) {
				t.Errorf("EINTR %d times for %d signals", eintrs, total)
			}
			if !kind.masked {
				return
			}
			wardentest.Until(t, "the call ended after the last signal", func() bool { return p.counter(sigSeen).Load() == uint64(total) })
			if n := p.counter(sigOutside).Load(); n > 0 {
				t.Errorf("%d signals handled where they were blocked", n)
			}
		})
	}
}

// dropFile is a clean file of 8 MiB, all of it in the page cache, as a mapping
// of it is shown.
func dropFile(t *testing.T) Mapping {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	if _, err := f.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	must(t, f.Sync())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skip("a file of tmpfs cannot leave the page cache")
	}
	if _, ok := cached(f); !ok {
		t.Skip("the kernel has no cachestat")
	}
	m, unmap := mapped(t, path)
	unmap()
	return m
}

// mapped maps a file and touches all of it.
func mapped(t *testing.T, path string) (m Mapping, unmap func()) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	must(t, err)
	pieces, err := piecesOf(os.Getpid(), path)
	must(t, err)
	return Mapping{Path: path, Dev: pieces[0].Dev, Inode: pieces[0].Inode}, func() { _ = unix.Munmap(b) }
}

func (m Mapping) drop() (Dropped, error) { return Drop("/proc", os.Getpid(), m.Path, m.Dev, m.Inode) }

func TestDrop(t *testing.T) {
	m := dropFile(t)
	_, unmap := mapped(t, m.Path)
	if d, err := m.drop(); err != nil || d != (Dropped{Before: 8 * rss.MiB, After: 8 * rss.MiB, Measured: true}) {
		t.Errorf("of what is mapped: %+v, %v", d, err)
	}
	unmap()
	if d, err := m.drop(); err != nil || d != (Dropped{Before: 8 * rss.MiB, Measured: true}) {
		t.Errorf("of an unmapped file: %+v, %v", d, err)
	}
	// Nothing was lost.
	if b, err := os.ReadFile(m.Path); err != nil || len(b) != 8<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// What has taken the file's name meanwhile is not touched.
func TestDropOther(t *testing.T) {
	m := dropFile(t)
	for name, c := range map[string]struct {
		put  func(path string) error
		want error
	}{
		"gone":   {func(string) error { return nil }, unix.ENOENT},
		"a file": {func(path string) error { return os.WriteFile(path, []byte("other"), 0o600) }, errOther},
		"a FIFO": {func(path string) error { return unix.Mkfifo(path, 0o600) }, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			// It stays under another name, or its inode would be given away.
			must(t, os.Rename(m.Path, m.Path+".old"))
			defer os.Rename(m.Path+".old", m.Path)
			must(t, c.put(m.Path))
			_, err := m.drop()
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "cannot drop "+m.Path+": ") {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// The process may have ended by then.
func TestDropOfEnded(t *testing.T) {
	m := dropFile(t)
	if d, err := Drop(t.TempDir(), 1, m.Path, m.Dev, m.Inode); err != nil || d.Before.Sub(d.After) != 8*rss.MiB {
		t.Errorf("%+v, %v", d, err)
	}
}
