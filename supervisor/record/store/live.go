package store

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/socket"
)

// While a run goes on, its watcher alone has the record open and gives it out:
// a client that connects to a socket beside it gets its content, in frames.

// liveName is the socket's name in the record's directory.
const liveName = "live"

// livePatience bounds how long a reader may take: what it reads cannot be reused meanwhile.
const livePatience = 30 * time.Second

type live struct {
	l   *socket.Listener // nil without a socket
	all sync.WaitGroup

	mu     sync.Mutex
	reader *os.File // that is being answered
	closed bool
}

// listen gives the record out until close. Without a socket, which a file system
// may not have, a live record cannot be read.
func listen(s *database) *live {
	v := &live{}
	var err error
	if v.l, err = socket.Listen(s.dir, liveName, 4); err != nil {
		return v
	}
	v.all.Go(func() {
		for {
			c, err := v.l.Accept()
			if err != nil {
				return
			}
			// One at a time: each holds pages of the record.
			if v.serve(c) && mayRead(c) {
				_ = export(s.env, s.dbi, c, s.giveBack)
			}
			v.served(c)
		}
	})
	return v
}

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

func (v *live) close() {
	if v.l != nil {
		v.l.Close()
		// A slow reader does not delay the end of the command.
		v.mu.Lock()
		v.closed = true
		if v.reader != nil {
			_ = v.reader.SetDeadline(time.Unix(1, 0))
		}
		v.mu.Unlock()
		v.all.Wait()
	}
}

func mayRead(c *os.File) bool {
	_, uid, err := socket.Peer(c)
	return err == nil && (uid == 0 || uid == os.Geteuid())
}

var (
	errNotLive = errors.New("it has no writer")
	errBusy    = errors.New("its watcher does not answer")
)

func dialLive(dir *os.File) (*os.File, error) {
	// A watcher that scontrol suspend has stopped may not answer for hours.
	c, err := socket.Dial(dir, liveName)
	if errors.Is(err, unix.EAGAIN) {
		return nil, errBusy
	} else if err != nil {
		return nil, errNotLive
	}
	_ = c.SetDeadline(time.Now().Add(livePatience))
	return c, nil
}

// answers says that a record is being written.
func answers(dir *os.File) bool {
	c, err := dialLive(dir)
	if err == nil {
		c.Close()
	}
	return err == nil || errors.Is(err, errBusy)
}

// held says that a process has a record open for writing, by LMDB's lock on its lock file:
// also one that does not answer. Not for the record of this process, whose lock it would
// release (fcntl(2), "record locks").
func held(dir *os.File) bool {
	f, err := nodedir.OpenRegular(dir, lockFile)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}
