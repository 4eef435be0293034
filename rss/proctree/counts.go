package proctree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
)

// Count is how many of something a process has.
type Count struct {
	N    int
	Cost time.Duration // processor time of the counting
}

// Counter counts what the kernel limits by number in a process. It keeps a
// buffer of one page and a descriptor of the mount point, and is for one
// goroutine. An error comes with the Cost of what was read in vain.
type Counter struct {
	proc string
	f    *files
	page []byte
}

// NewCounter returns a counter on the procfs mounted at proc.
func NewCounter(proc string) *Counter {
	return &Counter{proc: proc, f: newFiles(proc), page: make([]byte, os.Getpagesize())}
}

// Close gives the counter's descriptor back.
func (c *Counter) Close() { c.f.close() }

// Maps counts the memory mappings of a process: the lines of /proc/PID/maps
// (proc_pid_maps(5)) but for [vsyscall], which vm.max_map_count does not count
// either. The kernel holds the process's mmap_lock for one page of lines at a
// time, some 15 us, and waits for it: call it on a side goroutine. 30,000
// mappings take 6 to 9 ms in all.
func (c *Counter) Maps(id rss.ProcID) (Count, error) {
	return c.timed(id, "maps", func() (int, error) {
		fd, err := c.f.openFile(id.PID, "maps")
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		return countLines(func(b []byte) (int, error) { return syscall.Read(fd, b) }, c.page)
	})
}

// Descriptors counts the open descriptors of a process: st_size of
// /proc/PID/fd, which says so since Linux 6.2 in a few microseconds; else the
// entries of that directory, which cost about 1 us each.
func (c *Counter) Descriptors(id rss.ProcID) (Count, error) {
	return c.timed(id, "fd", func() (int, error) {
		if err := c.f.open(); err != nil {
			return 0, err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(c.f.dir.Fd()), strconv.Itoa(id.PID)+"/fd", &st, 0); err != nil {
			return 0, err
		}
		if c.f.real && st.Size > 0 {
			return int(st.Size), nil
		}
		fd, err := c.f.openFile(id.PID, "fd")
		if err != nil {
			return 0, err
		}
		defer syscall.Close(fd)
		return countEntries(func(b []byte) (int, error) { return unix.Getdents(fd, b) }, c.page)
	})
}

// timed counts, tells what that costs, and makes sure that it was that
// process's.
func (c *Counter) timed(id rss.ProcID, file string, count func() (int, error)) (Count, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	n, err := count()
	if err == nil {
		err = c.same(id)
	}
	cost := threadTime() - began
	if err != nil {
		return Count{Cost: cost}, fmt.Errorf("cannot count %s of process %d: %w", file, id.PID, err)
	}
	return Count{N: n, Cost: cost}, nil
}

// same makes sure that the process has its PID still, so that it had it before.
func (c *Counter) same(id rss.ProcID) error {
	if id.Start == 0 {
		return nil
	}
	b, err := c.f.read(id.PID, "stat")
	if err != nil {
		return err
	}
	s, err := parseStat(b)
	if err == nil && s.start != id.Start {
		err = errGone
	}
	return err
}

// MapLimit returns vm.max_map_count, by proc/sys/vm/max_map_count
// (proc_sys_vm(5)): how many mappings one process may have.
func MapLimit(proc string) (uint64, error) { return sysctl(proc, "max_map_count") }

// Overcommit returns vm.overcommit_memory: at 2 the kernel refuses memory beyond
// [MemInfo].CommitLimit (Documentation/mm/overcommit-accounting.rst).
func Overcommit(proc string) (uint64, error) { return sysctl(proc, "overcommit_memory") }

// sysctl reads a number below proc/sys/vm.
func sysctl(proc, file string) (uint64, error) {
	name := filepath.Join(proc, "sys", "vm", file)
	b, err := procfile.Read(name, procfile.Small)
	if err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", name, err)
	}
	n, ok := number(bytes.TrimSpace(b))
	if !ok {
		return 0, fmt.Errorf("cannot parse %s: %w", name, errMalformed)
	}
	return n, nil
}

var vsyscall = []byte(" [vsyscall]\n")

// countLines counts lines until the end. seq_file gives out one page of whole
// lines at a time at most, so a larger buffer would not save a call.
func countLines(read func([]byte) (int, error), buf []byte) (int, error) {
	lines := 0
	gate := false
	for {
		n, err := read(buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n <= 0 {
			break
		}
		lines += bytes.Count(buf[:n], []byte{'\n'})
		gate = bytes.HasSuffix(buf[:n], vsyscall)
	}
	if gate {
		lines--
	}
	return lines, nil
}

// countEntries counts the entries of a directory, "." and ".." aside, from
// struct linux_dirent64 records (getdents64(2)): see appendPIDs.
func countEntries(read func([]byte) (int, error), buf []byte) (int, error) {
	const head = 19
	entries := 0
	for {
		n, err := read(buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n <= 0 {
			return entries, nil
		}
		for b := buf[:n]; len(b) > head; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size <= head || size > len(b) {
				return 0, errMalformed
			}
			if b[head] != '.' {
				entries++
			}
			b = b[size:]
		}
	}
}
