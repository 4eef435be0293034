// Package socket listens and connects on Unix sockets that lie in a directory
// held open: a path may be longer than the 108 bytes that an address has room
// for, and a directory that is exchanged meanwhile leads nowhere else. Only this
// user can connect, and each end can ask the kernel who the other is. They are
// the kernel's own sockets: package net would double what the program links.
package socket

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// address is that of a file below a descriptor, however long its path is: an address has
// room for 108 bytes.
func address(fd int, below string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(fd) + below}
}

// Listener is a socket that listens, and which file it is.
type Listener struct {
	dir  *os.File // our own descriptor
	name string
	l    *os.File
	file unix.Stat_t
}

// Listen makes the socket, of mode 0600, and listens on it. A leftover socket is replaced;
// anything else of that name is an error. The listener has its own descriptor of dir.
func Listen(dir *os.File, name string, backlog int) (*Listener, error) {
	own, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		b := &Listener{dir: os.NewFile(uintptr(own), dir.Name()), name: name}
		if err = b.listen(own, backlog); err == nil {
			return b, nil
		}
		b.dir.Close()
	}
	return nil, fmt.Errorf("cannot listen on %s/%s: %w", dir.Name(), name, err)
}

func (b *Listener) listen(dir, backlog int) error {
	if err := b.removeOld(); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	// Linux gives the file the mode of the socket, less the umask. What that took away is
	// put back before listen(2), from which on others can connect.
	if err = unix.Fchmod(fd, 0o600); err == nil {
		err = unix.Bind(fd, address(dir, "/"+b.name))
	}
	made := err == nil
	if made {
		err = errors.Join(unix.Fchmodat(dir, b.name, 0o600, 0), unix.Fstatat(dir, b.name, &b.file, unix.AT_SYMLINK_NOFOLLOW))
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		if made {
			_ = unix.Unlinkat(dir, b.name, 0)
		}
		return err
	}
	b.l = os.NewFile(uintptr(fd), b.name)
	return nil
}

func (b *Listener) removeOld() error {
	var st unix.Stat_t
	dir := int(b.dir.Fd())
	switch err := unix.Fstatat(dir, b.name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("there is something of that name that is no socket")
	}
	return unix.Unlinkat(dir, b.name, 0)
}

// Close removes the socket, if it is still this one: another may have put its own
// there. Accept returns an error then.
func (b *Listener) Close() {
	var st unix.Stat_t
	dir := int(b.dir.Fd())
	if err := unix.Fstatat(dir, b.name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Dev == b.file.Dev && st.Ino == b.file.Ino {
		_ = unix.Unlinkat(dir, b.name, 0)
	}
	b.l.Close()
	b.dir.Close()
}

// Accept waits for the next connection, in the runtime's poller.
func (b *Listener) Accept() (*os.File, error) {
	raw, err := b.l.SyscallConn()
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
	return os.NewFile(uintptr(fd), b.name), nil
}

// Short says that Accept failed for want of something that comes back.
func Short(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS)
}

// Dial connects to the socket of that name, and through no link. It does not wait: a
// listener that is stopped, and whose backlog is full, gives EAGAIN, and one that has
// gone ECONNREFUSED.
func Dial(dir *os.File, name string) (*os.File, error) {
	at, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, address(at, "")); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Peer is the process at the other end: for a server the client, for a client the
// listener. The PID is 0 where it is of another PID namespace.
func Peer(c *os.File) (pid, uid int, err error) {
	var cred *unix.Ucred
	if e := control(c, func(fd int) { cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return 0, 0, e
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Pid), int(cred.Uid), nil
}

// HungUp says that the other end has gone, and not only said its last word.
func HungUp(c *os.File) bool {
	gone := true
	_ = control(c, func(fd int) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		gone = err == nil && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}

// Finish tells the other end that no more comes.
func Finish(c *os.File) {
	_ = control(c, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
}

func control(c *os.File, f func(fd int)) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}
