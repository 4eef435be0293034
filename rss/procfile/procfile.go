// Package procfile reads files whose length others choose: those of /proc, which
// show what a process wrote into its own memory, of cgroups, and of /etc. None is
// read without a bound.
package procfile

import (
	"bytes"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds, in bytes, by what is read.
const (
	// Small is for what the kernel writes in a few lines: stat, comm, cgroup, limits,
	// uid_map, auxv, a sysctl, a control file of a cgroup.
	Small = 64 << 10
	// Cmdline is where a command line is cut. prctl(PR_SET_MM_MAP) lets a process show
	// all of its memory as one.
	Cmdline = 128 << 10
	// Status holds 65,536 groups (NGROUPS_MAX) in its line Groups.
	Status = 1 << 20
	// Environ is where an environment is cut. execve(2) takes a quarter of the stack
	// limit, 2 MiB as a rule; prctl(PR_SET_MM_MAP) shows more.
	Environ = 4 << 20
	// Table is for lists with a line for each mount, process or child.
	Table = 4 << 20
)

// Read returns the first bytes of a file, most of them at most. What is longer is cut. It makes
// as few system calls as it can: the kernel builds a table such as /proc/vmstat again for each
// read(2), and os.File would first try to poll the file (epoll_ctl(2)).
func Read(name string, most int) ([]byte, error) {
	fd, err := -1, error(unix.EINTR)
	for err == unix.EINTR {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := make([]byte, 0, min(most, usual))
	for len(b) < most {
		if len(b) == cap(b) {
			b = slices.Grow(b, min(len(b), most-len(b)))
		}
		n, err := unix.Read(fd, b[len(b):min(cap(b), most)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return b, &fs.PathError{Op: "read", Path: name, Err: err}
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
	}
	return b, nil
}

// usual is the room that most files fit into.
const usual = 4096

// ThreadTime is the processor's time that the calling thread has taken: on a busy node a
// reading waits for its turn, and costs no more for it.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // not since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}

// Mapping is the line that /proc/PID/maps has for each mapping, and with which a record of
// smaps begins (proc_pid_maps(5)).
type Mapping struct {
	Start, End, Offset uint64
	Perms              [4]byte // "rw-p"
	Dev, Inode         uint64  // unix.Mkdev of what is shown, on btrfs not st_dev
	Path               []byte  // empty for anonymous memory; lives as long as the line
}

// ParseMapping reads "START-END PERMS OFFSET MAJOR:MINOR INODE   PATH", without its newline.
func ParseMapping(line []byte) (m Mapping, ok bool) {
	bad := false
	next := func(end string, base, bits int) uint64 {
		w, rest, found := bytes.Cut(line, []byte(end))
		n, err := strconv.ParseUint(string(w), base, bits)
		// The inode ends the line of a mapping without a name on some kernels.
		bad = bad || err != nil || !found && base == 16
		line = rest
		return n
	}
	m.Start, m.End = next("-", 16, 64), next(" ", 16, 64)
	perms, rest, _ := bytes.Cut(line, []byte(" "))
	bad, line = bad || len(perms) != copy(m.Perms[:], perms) || len(perms) < len(m.Perms), rest
	m.Offset = next(" ", 16, 64)
	m.Dev = unix.Mkdev(uint32(next(":", 16, 32)), uint32(next(" ", 16, 32)))
	m.Inode = next(" ", 10, 64)
	m.Path = bytes.TrimLeft(line, " ")
	return m, !bad && m.Start <= m.End
}
