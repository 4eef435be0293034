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

	mu     sync.Mutex
	reader *os.File // who is being answered, nil for nobody
	closed bool
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
			if v.serve(c) && mayRead(c) {
				_ = export(s.env, s.dbi, c, s.giveBack)
			}
			v.served(c)
		}
	}()
	return v
}

// serve says whether a reader is to be answered.
func (v *live) serve(c *os.File) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.reader = c
	return c.SetDeadline(time.Now().Add(livePatience)) == nil
}

func (v *live) served(c *os.File) {
	v.mu.Lock()
	v.reader = nil
	v.mu.Unlock()
	c.Close()
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
		// Nobody's command ends later because somebody reads slowly.
		v.mu.Lock()
		v.closed = true
		if v.reader != nil {
			_ = v.reader.SetDeadline(time.Unix(1, 0))
		}
		v.mu.Unlock()
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

var (
	errNotLive = errors.New("nobody writes it")
	errBusy    = errors.New("its watcher does not answer")
)

// dialLive connects to the watcher that writes the record in dir.
func dialLive(dir string) (io.ReadCloser, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// A watcher that is stopped, by scontrol suspend, takes nobody: to wait for it
	// would be for hours.
	if err := unix.Connect(fd, address(d)); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EAGAIN) {
			return nil, errBusy
		}
		return nil, errNotLive
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
	return err == nil || errors.Is(err, errBusy)
}

// held says that a process has a record open for writing, also one that cannot be
// asked, or that runs in another PID namespace: LMDB keeps a lock on its lock file
// for as long. It is not for the record of this process, whose lock it would take
// off (fcntl(2), "record locks").
func held(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}
