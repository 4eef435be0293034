package trim

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
			until(t, "it waits", func() bool { return callOf(p.pid, p.pid) >= 0 })

			// As many trims as are wanted fall among the signals, however busy the machine is.
			total := times(300, 3000)
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
			until(t, "all are handled", func() bool { return p.counter(sigHandled).Load() >= uint64(total) })
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
			until(t, "the call ended after the last signal", func() bool { return p.counter(sigSeen).Load() == uint64(total) })
			if n := p.counter(sigOutside).Load(); n > 0 {
				t.Errorf("%d signals handled where they were blocked", n)
			}
		})
	}
}
