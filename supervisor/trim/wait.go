package trim

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What ptrace(2) reports beside signals.
const (
	eventStop   = 128                        // PTRACE_EVENT_STOP, above the signal's number
	syscallStop = int32(unix.SIGTRAP) | 0x80 // with PTRACE_O_TRACESYSGOOD
)

// si_code of SIGCHLD (sigaction(2)).
const (
	cldExited = 1
	cldDumped = 3
)

// childInfo is the part of siginfo_t that waitid(2) fills.
type childInfo struct {
	_      [2]int32
	code   int32
	_      int32
	pid    int32
	_      uint32
	status int32
	_      [100]byte
}

var _ [unsafe.Sizeof(unix.Siginfo{})]byte = [unsafe.Sizeof(childInfo{})]byte{}

func waitid(tid, options int) (si childInfo, err error) {
	for {
		err = unix.Waitid(unix.P_PID, tid, (*unix.Siginfo)(unsafe.Pointer(&si)), options|unix.WNOHANG|unix.WALL, nil)
		if err != unix.EINTR {
			return si, err
		}
	}
}

// news returns the stop that a thread has reported since, 0 for none, or that
// it has ended.
//
// A look comes first and takes nothing, because the end of a child of this
// process belongs to whoever started it: its status must stay to be waited for.
// All other ends we take, or the process's own parent would not hear of them.
func (s *session) news(t *thread) (stop int32, end bool) {
	si, err := waitid(t.tid, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT)
	switch {
	case err != nil:
		return 0, true // ECHILD: it has ended, and somebody has taken that
	case si.pid == 0:
		return 0, false
	case ended(&si):
		if t.tid != s.id.PID || !s.child {
			_, _ = waitid(t.tid, unix.WEXITED)
		}
		return 0, true
	}
	if si, err = waitid(t.tid, unix.WSTOPPED); err != nil || si.pid == 0 {
		return 0, false // killed between the two: the next look tells
	}
	return si.status, false
}

// leastLooks is how often a thread is looked at before it counts as late: where
// the whole job was suspended together with us, time has passed for nobody.
const leastLooks = 100

// pausePoll waits a little before the nth look again: a thread that has a
// processor stops within microseconds.
func pausePoll(n int) {
	pause := unix.Timespec{Nsec: 5_000}
	if n > 100 {
		pause.Nsec = 100_000
	}
	// Raw: the runtime is not told, so that it does nothing about a wait as short.
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
}

// expect polls one thread until it has news, or until the deadline.
func (s *session) expect(t *thread, deadline time.Time) (stop int32, end, late bool) {
	for n := 0; ; n++ {
		if stop, end = s.news(t); stop != 0 || end {
			return stop, end, false
		}
		if n >= leastLooks && time.Now().After(deadline) {
			return 0, false, true
		}
		pausePoll(n)
	}
}

// ended says that a thread has ended, and that nobody has taken that yet.
func ended(si *childInfo) bool {
	return si.pid != 0 && si.code >= cldExited && si.code <= cldDumped
}

// ptrace is ptrace(2), bare: the caller is on its thread.
func ptrace(request, tid int, addr, data uintptr) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	return e
}

// seize attaches to a thread. That waits for a thread of the same process that
// is about to execute another program, so the runtime is told of it.
func seize(tid int) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, unix.PTRACE_O_TRACESYSGOOD, 0, 0)
	return e
}
