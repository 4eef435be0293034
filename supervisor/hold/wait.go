package hold

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// si_code of SIGCHLD (sigaction(2)).
const (
	cldExited  = 1
	cldTrapped = 4
	cldStopped = 5
)

// childInfo is the part of siginfo_t that waitid(2) fills.
type childInfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [100]byte
}

var _ [unsafe.Sizeof(unix.Siginfo{})]byte = [unsafe.Sizeof(childInfo{})]byte{}

func waitid(idType, id, options int) (si childInfo, ok bool) {
	for {
		err := unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(&si)), options|unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		return si, err == nil && si.pid != 0
	}
}

// takeEnd takes the end of one child, if it has ended. A look comes first: while
// a child is traced by us its stops are offered here too, and are the tracer's.
func takeEnd(pid int) (code, status int32, ok bool) {
	si, ok := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if !ok || si.code >= cldTrapped {
		return 0, 0, false
	}
	waitid(unix.P_PID, pid, unix.WEXITED)
	return si.code, si.status, true
}

// peek shows some child that has ended and leaves it a zombie. A stop of a
// traced child is shown too, with its own code.
func peek() (pid int, code int32) {
	si, ok := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	if !ok {
		return 0, 0
	}
	return int(si.pid), si.code
}

// stoppedBy returns the signal that has stopped the child, when that has not
// been taken yet. A stop under ptrace is none.
func stoppedBy(pid int) (sig int32, ok bool) {
	si, ok := waitid(unix.P_PID, pid, unix.WSTOPPED|unix.WNOWAIT)
	return si.status, ok && si.code == cldStopped
}

func takeStop(pid int) { waitid(unix.P_PID, pid, unix.WSTOPPED) }
