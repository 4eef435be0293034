package proctree

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept counts the descriptors that stay open between two readings. A pread of
// a kept statm costs a fifth of open, read and close, and fails with ESRCH once
// its process has been reaped, whoever has the PID then. Where no more may be
// kept, files are opened and closed.
type kept struct {
	open, most int
	asked      bool
}

// mostKept is how many descriptors are kept at most, and never more than a
// quarter of RLIMIT_NOFILE: a watcher shares the limit's purpose, if not the
// limit, with nobody, but the node's table with everybody.
const mostKept = 8192

func (k *kept) room() bool {
	if !k.asked {
		k.asked = true
		var r syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
			k.most = int(min(r.Cur/4, mostKept))
		}
	}
	return k.open < k.most
}

// pread reads a small file from its beginning through a kept descriptor. The
// call is raw: neither statm nor loadavg can wait for anything, and the runtime
// need not prepare for it.
func pread(fd int, buf []byte) ([]byte, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0, 0)
		switch errno {
		case 0:
			return buf[:n], nil
		case syscall.EINTR:
		default:
			return nil, errno
		}
	}
}

// onProcfs says that a file is the kernel's own, not one of a copy or of lxcfs:
// only there does a kept descriptor tell that a process has ended, and is what
// is read of this moment.
func onProcfs(fd int) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(fd, &s) == nil && s.Type == unix.PROC_SUPER_MAGIC
}

// forks tells whether a process or thread was started since it was asked last,
// by the last PID in /proc/loadavg (proc_loadavg(5)): the PID namespace's own,
// and moved by every fork in it.
type forks struct {
	fd   int // of loadavg plus 1, 0 for not opened, -1 where it cannot serve
	last uint64
}

// happened is true where it cannot be told.
func (k *forks) happened(f *files) bool {
	if k.fd == 0 {
		k.fd = -1
		fd, err := f.openPath("loadavg")
		if shortage(err) {
			k.fd = 0
		}
		if err == nil {
			if onProcfs(fd) {
				k.fd = fd + 1
			} else {
				syscall.Close(fd)
			}
		}
	}
	if k.fd < 0 {
		return true
	}
	b, err := pread(k.fd-1, f.buf)
	if err != nil {
		return true
	}
	last, ok := parseLastPID(b)
	same := ok && last == k.last
	k.last = last
	return !same
}

func (k *forks) close() {
	if k.fd > 0 {
		syscall.Close(k.fd - 1)
	}
	*k = forks{}
}

// parseLastPID reads the fifth field of /proc/loadavg, after three averages and
// "running/all". 0 is no PID: whoever prints it does not know.
func parseLastPID(b []byte) (uint64, bool) {
	var w []byte
	for range 5 {
		w, b = field(b)
	}
	n, ok := number(w)
	return n, ok && n > 0
}
