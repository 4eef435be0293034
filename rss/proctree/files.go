package proctree

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vanished says that err means the process has ended: ENOENT when a file of it
// is opened, ESRCH when one is read that was opened before.
func Vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// Denied says that err means the process is there and may not be read, for
// instance under hidepid (proc(5)).
func Denied(err error) bool { return errors.Is(err, fs.ErrPermission) }

// shortage says that err tells nothing of the process: we have no descriptor, or
// no memory, left to read it.
func shortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// files reads small files below one directory into one buffer, without
// allocating.
type files struct {
	root string
	dir  *os.File
	path []byte
	buf  []byte
	real bool // root is the kernel's procfs
}

func newFiles(root string) *files {
	return &files{root: root, path: make([]byte, 0, 64), buf: make([]byte, 8<<10)}
}

func (f *files) open() error {
	if f.dir != nil {
		return nil
	}
	d, err := os.Open(f.root)
	if err != nil {
		return err
	}
	f.dir, f.real = d, onProcfs(int(d.Fd()))
	return nil
}

func (f *files) close() {
	if f.dir != nil {
		f.dir.Close()
		f.dir = nil
	}
}

// longest is where a file is cut. The Groups line of status, before the
// numbers wanted, may hold 65536 groups.
const longest = 1 << 20

// read returns the contents of PID/name, valid until the next call.
func (f *files) read(pid int, name string) ([]byte, error) {
	fd, err := f.openFile(pid, name)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	n := 0
	for n < longest {
		if n == len(f.buf) {
			f.buf = append(f.buf, make([]byte, len(f.buf))...)
		}
		m, err := syscall.Read(fd, f.buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		n += max(m, 0)
		// Each of these files is one record (single_open in fs/proc): a read
		// that leaves room in the buffer has met the end.
		if m <= 0 || n < len(f.buf) {
			break
		}
	}
	return f.buf[:n], nil
}

// openFile opens PID/name.
func (f *files) openFile(pid int, name string) (int, error) {
	f.path = strconv.AppendInt(f.path[:0], int64(pid), 10)
	f.path = append(f.path, '/')
	return f.openRest(name)
}

// openPath opens a file of the root itself.
func (f *files) openPath(name string) (int, error) {
	f.path = f.path[:0]
	return f.openRest(name)
}

func (f *files) openRest(name string) (int, error) {
	if err := f.open(); err != nil {
		return -1, err
	}
	f.path = append(f.path, name...)
	f.path = append(f.path, 0)
	return openat(int(f.dir.Fd()), f.path)
}

// openat opens the file with the NUL-terminated path for reading.
func openat(dir int, path []byte) (int, error) {
	for {
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
			unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0, 0, 0)
		switch errno {
		case 0:
			return int(fd), nil
		case syscall.EINTR:
		default:
			return -1, errno
		}
	}
}

// pids appends the numeric names of the directory to dst.
func (f *files) pids(dst []int) ([]int, error) {
	if err := f.open(); err != nil {
		return dst, err
	}
	fd := int(f.dir.Fd())
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return dst, err
	}
	for {
		n, err := unix.Getdents(fd, f.buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return dst, err
		}
		if n <= 0 {
			return dst, nil
		}
		dst = appendPIDs(dst, f.buf[:n])
	}
}

// appendPIDs parses struct linux_dirent64 records (getdents64(2)): inode 8
// bytes, offset 8, record length 2, type 1, then the NUL-terminated name.
func appendPIDs(dst []int, b []byte) []int {
	const head = 19
	for len(b) > head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= head || size > len(b) {
			return dst
		}
		pid, digits := 0, 0
		for _, c := range b[head:size] {
			if c < '0' || c > '9' || digits > 9 {
				if c != 0 {
					digits = 0
				}
				break
			}
			pid = pid*10 + int(c-'0')
			digits++
		}
		if digits > 0 && pid > 0 {
			dst = append(dst, pid)
		}
		b = b[size:]
	}
	return dst
}

// readOnce reads a file that the kernel gives out whole, up to the size of the
// buffer.
func readOnce(path string, buf []byte) (int, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	for {
		n, err := syscall.Read(fd, buf)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
