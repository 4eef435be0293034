package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// NodeTasks is how many tasks, which are threads of processes and of the kernel,
// the whole node has and may have, zombies included. A fork beyond either limit
// fails with EAGAIN, root's too (copy_process and alloc_pid in kernel/).
type NodeTasks struct {
	// Total is the second number of field 4 of /proc/loadavg: of all users, of
	// all PID namespaces. No user has more.
	Total int
	// ThreadsMax is kernel.threads-max, which Total is compared with.
	ThreadsMax uint64
	// PIDMax is kernel.pid_max, above every PID (proc_sys_kernel(5)): PIDs run
	// out a little before Total is as large, since a process group or session
	// keeps one in use. Since Linux 6.14 each PID namespace has its own.
	PIDMax uint64
	// Kernel says that Total is the kernel's own. A file laid over loadavg, as
	// lxcfs does, counts a container's: no upper bound of anything.
	Kernel bool
}

// Tasks reads the node's tasks again and again through kept descriptors. It
// belongs to one goroutine.
type Tasks struct {
	proc string
	fds  [3]int // plus 1, 0 for not opened
	buf  []byte
}

var taskFiles = [3]string{"loadavg", "sys/kernel/threads-max", "sys/kernel/pid_max"}

// NewTasks returns a reader on the procfs mounted at proc. It opens nothing
// yet.
func NewTasks(proc string) *Tasks { return &Tasks{proc: proc, buf: make([]byte, 128)} }

// Close gives the descriptors back; they are opened again when needed.
func (t *Tasks) Close() {
	for i, fd := range t.fds {
		if fd > 0 {
			unix.Close(fd - 1)
		}
		t.fds[i] = 0
	}
}

// Read reads the three files, some 2 us. All of them must be there.
func (t *Tasks) Read() (NodeTasks, error) {
	var n NodeTasks
	for i, name := range taskFiles {
		b, err := t.read(i)
		if err != nil {
			return NodeTasks{}, fmt.Errorf("cannot read %s: %w", filepath.Join(t.proc, name), err)
		}
		var ok bool
		switch i {
		case 0:
			n.Total, ok = parseTotal(b)
			n.Kernel = onProcfs(t.fds[0] - 1)
		case 1:
			n.ThreadsMax, ok = number(bytes.TrimSpace(b))
		case 2:
			n.PIDMax, ok = number(bytes.TrimSpace(b))
		}
		if !ok {
			return NodeTasks{}, fmt.Errorf("cannot parse %s: %w", filepath.Join(t.proc, name), errMalformed)
		}
	}
	return n, nil
}

func (t *Tasks) read(i int) ([]byte, error) {
	if t.fds[i] == 0 {
		fd, err := unix.Open(filepath.Join(t.proc, taskFiles[i]), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		t.fds[i] = fd + 1
	}
	for {
		// Not raw, as in kept.go: lxcfs is a program that answers, or does not.
		n, err := unix.Pread(t.fds[i]-1, t.buf, 0)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return t.buf[:n], nil
	}
}

// parseTotal reads the second number of the fourth field of /proc/loadavg
// (proc_loadavg(5)), "running/all".
func parseTotal(b []byte) (int, bool) {
	var w []byte
	for range 4 {
		w, b = field(b)
	}
	_, all, ok := bytes.Cut(w, []byte{'/'})
	n, ok2 := number(all)
	return int(n), ok && ok2 && n > 0 && n < 1<<31
}
