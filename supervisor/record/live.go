package record

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// While a run goes on, its watcher alone has the record open and gives it out:
// whoever connects to a socket beside it is sent what it holds, in frames. The
// sockets are the kernel's own: package net would double what the program links.

// liveName is the socket's name in the record's directory.
const liveName = "live"

// livePatience bounds how long a reader may take: what it reads cannot be
// reused meanwhile.
const livePatience = 30 * time.Second

type live struct {
	l    *os.File
	dir  *os.File
	all  sync.WaitGroup
	path string
}

// address is that of a socket in a directory, however long its path is: an
// address has room for 108 bytes.
func address(dir *os.File) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + liveName}
}

// listen gives the record out until close. Without a socket, which a file system
// may not have, a live record cannot be read.
func listen(s *store) *live {
	v := &live{path: filepath.Join(s.dir, liveName)}
	var err error
	if v.dir, err = os.Open(s.dir); err != nil {
		return v
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return v
	}
	_ = os.Remove(v.path) // of an earlier watcher
	if err = unix.Bind(fd, address(v.dir)); err == nil {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		unix.Close(fd)
		return v
	}
	v.l = os.NewFile(uintptr(fd), v.path)
	v.all.Add(1)
	go func() {
		defer v.all.Done()
		for {
			c, err := accept(v.l)
			if err != nil {
				return
			}
			// One at a time: each holds pages of the record.
			_ = c.SetDeadline(time.Now().Add(livePatience))
			if mayRead(c) {
				_ = export(s.env, s.dbi, c)
			}
			c.Close()
		}
	}()
	return v
}

// accept waits for the next connection, in the runtime's poller.
func accept(l *os.File) (*os.File, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	waited := raw.Read(func(at uintptr) bool {
		fd, _, err = unix.Accept4(int(at), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return err != unix.EAGAIN && err != unix.EINTR && err != unix.ECONNABORTED
	})
	if waited != nil {
		return nil, waited
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), liveName), nil
}

func (v *live) close() {
	if v.l != nil {
		_ = os.Remove(v.path)
		v.l.Close()
		v.all.Wait()
	}
	if v.dir != nil {
		v.dir.Close()
	}
}

// mayRead says that the other end is this user or root.
func mayRead(c *os.File) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	may := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		may = err == nil && (cred.Uid == 0 || int(cred.Uid) == os.Geteuid())
	})
	return may
}

var errNotLive = errors.New("nobody writes it")

// dialLive connects to the watcher that writes the record in dir.
func dialLive(dir string) (io.ReadCloser, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, address(d)); err != nil {
		unix.Close(fd)
		return nil, errNotLive
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	c := os.NewFile(uintptr(fd), liveName)
	_ = c.SetDeadline(time.Now().Add(livePatience))
	return c, nil
}

// answers says that a record is being written.
func answers(dir string) bool {
	c, err := dialLive(dir)
	if err == nil {
		c.Close()
	}
	return err == nil
}
