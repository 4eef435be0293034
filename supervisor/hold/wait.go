package hold

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// si_code of SIGCHLD (sigaction(2)).
const (
	cldExited  = 1
	cldKilled  = 2
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

func waitid(idType, id, options int) (si childInfo, err error) {
	err = unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(&si)), options|unix.WNOHANG, nil)
	return si, err
}

// refused says that the call itself failed, by a seccomp filter for example: with
// WNOHANG the kernel has no other error than that there is no such child.
func refused(err error) bool { return err != nil && err != unix.ECHILD }

// wait4 takes the end of one child, of any where pid is -1. Unlike waitid(2) it
// cannot leave a zombie.
func wait4(pid int) (got int, code, status int32, ok bool) {
	var s unix.WaitStatus
	got, err := unix.Wait4(pid, &s, unix.WNOHANG, nil)
	switch {
	case err != nil || got <= 0 || s.Stopped():
		return 0, 0, 0, false
	case s.Signaled():
		return got, cldKilled, int32(s.Signal()), true
	}
	return got, cldExited, int32(s.ExitStatus()), true
}

// takeEnd takes the end of one child, if it has ended. A look comes first: while
// a child is traced by us its stops are offered here too, and are the tracer's.
func takeEnd(pid int) (code, status int32, ok bool) {
	si, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if refused(err) {
		_, code, status, ok = wait4(pid)
		return code, status, ok
	}
	if si.pid == 0 || si.code >= cldTrapped {
		return 0, 0, false
	}
	if _, err = waitid(unix.P_PID, pid, unix.WEXITED); refused(err) {
		wait4(pid)
	}
	return si.code, si.status, true
}

// takeOther takes the end of some child other than the command, whose PID is 0 once
// it has been taken. Only where waitid(2) is refused can it be the command's.
func takeOther(command int) (pid int, code, status int32, ok bool) {
	si, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOWAIT)
	if refused(err) {
		return wait4(-1)
	}
	if pid = int(si.pid); pid == 0 || pid == command || si.code >= cldTrapped {
		return 0, 0, 0, false
	}
	code, status, ok = takeEnd(pid)
	return pid, code, status, ok
}

// stoppedBy returns the signal that has stopped the child, when that has not
// been taken yet. A stop under ptrace is none.
func stoppedBy(pid int) (sig int32, ok bool) {
	si, err := waitid(unix.P_PID, pid, unix.WSTOPPED|unix.WNOWAIT)
	return si.status, err == nil && si.pid != 0 && si.code == cldStopped
}

func takeStop(pid int) { waitid(unix.P_PID, pid, unix.WSTOPPED) }

// readNow reads from a descriptor that does not block, by readv(2) where read(2) is
// refused.
func readNow(fd int, buf []byte) (int, error) {
	n, err := unix.Read(fd, buf)
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		return unix.Readv(fd, [][]byte{buf})
	}
	return n, err
}

// pacer counts the rounds of a loop that found nothing to do.
type pacer struct {
	moved bool // something was read or taken since the last poll
	idle  int
}

// pace keeps a system call that fails for good from making a loop spin: where
// poll(2) returns again and again, and nothing can be read or taken, it pauses.
func (p *pacer) pace() {
	if p.moved {
		p.moved, p.idle = false, 0
	} else if p.idle++; p.idle > 16 {
		nap()
	}
}

// within waits for a channel, without a timer: the runtime ends the process where the
// write(2) by which it wakes its poller fails.
func within[T any](most time.Duration, c <-chan T) {
	for end := time.Now().Add(most); time.Now().Before(end); unix.Nanosleep(&unix.Timespec{Nsec: 1e5}, nil) {
		select {
		case <-c:
			return
		default:
		}
	}
}

func nap() {
	if err := unix.Nanosleep(&unix.Timespec{Nsec: 10e6}, nil); err != nil && err != unix.EINTR {
		time.Sleep(10 * time.Millisecond)
	}
}
