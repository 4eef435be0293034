// Package wake brings forward what would be done at the next tick: the kernel says that
// a file has changed, or that memory is short, and one channel yields. What is said is
// only a hint. Where the kernel does not say it, there is an error, and the waiter must
// look for itself from time to time.
package wake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// Cause is a set of reasons to wake. The owner of the bell gives each bit its meaning.
type Cause uint32

// Bell wakes one goroutine. What it rang for and was not answered yet counts once.
type Bell struct {
	c      chan struct{}
	causes atomic.Uint32

	mu      sync.Mutex
	fd      int             // inotify's
	file    *os.File        // … by which it is waited for without a thread: the user's tasks may be few
	watched map[int32]Cause // empty without an instance of inotify

	late bool           // nothing is asked of the kernel before Listen
	due  []func() error // … which asks for this
	why  Cause          // … and rings for this
}

// New returns a bell that nothing rings yet.
func New() *Bell { return &Bell{c: make(chan struct{}, 1), watched: map[int32]Cause{}} }

// C yields once the bell has rung.
func (b *Bell) C() <-chan struct{} { return b.c }

// Causes returns what the bell has rung for since the last call.
func (b *Bell) Causes() Cause { return Cause(b.causes.Swap(0)) }

// Ring rings the bell. It never waits.
func (b *Bell) Ring(why Cause) {
	b.causes.Or(uint32(why))
	select {
	case b.c <- struct{}{}:
	default:
	}
}

// Later puts off what the bell asks of the kernel until [Bell.Listen]: to close a trigger, or
// an instance of inotify, takes 10 to 20 ms each, which the end of a short command would wait
// for. Its owner alone calls this, Quiet and Listen.
func (b *Bell) Later() { b.late = true }

// Quiet says that what is to be watched rings nothing yet.
func (b *Bell) Quiet() bool { return b.late }

// Listen asks for what was put off, and rings for all that may have happened meanwhile.
func (b *Bell) Listen() (err error) {
	due := b.due
	b.late, b.due = false, nil
	for _, ask := range due {
		err = errors.Join(err, ask())
	}
	b.Ring(b.why)
	return err
}

// Watch has the bell ring when something of mask (inotify(7)) happens to a file or a
// directory, until that is removed. All paths share one instance of inotify, which is there
// while any is watched: a user has 128 as a rule (fs.inotify.max_user_instances).
func (b *Bell) Watch(why Cause, mask uint32, path string) error {
	if b.late {
		b.why |= why
		b.due = append(b.due, func() error { return b.Watch(why, mask, path) })
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	first := len(b.watched) == 0
	if first {
		if b.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
			return fmt.Errorf("cannot watch changes, samples are taken instead: %w", err)
		}
		b.file = os.NewFile(uintptr(b.fd), "inotify")
	}
	watch, err := unix.InotifyAddWatch(b.fd, path, mask|unix.IN_MASK_ADD)
	if err != nil {
		if first {
			b.file.Close()
		}
		return fmt.Errorf("cannot watch %s, samples are taken instead: %w", path, err)
	}
	b.watched[int32(watch)] |= why
	if first {
		go b.listen(b.file)
	}
	return nil
}

// listen rings the bell for as long as there is anything to ring for.
func (b *Bell) listen(file *os.File) {
	buf := make([]byte, 16<<10)
	for {
		n, err := file.Read(buf)
		fault.Point("notifier")
		why, over := b.heard(buf[:max(n, 0)], err)
		b.Ring(why)
		if over {
			return
		}
	}
}

// heard returns what events are about. It drops what the kernel no longer watches, and
// closes where nothing is left. After an error, and after an overflow, anything may have
// happened.
func (b *Bell) heard(events []byte, err error) (why Cause, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := err != nil
	for len(events) >= unix.SizeofInotifyEvent {
		watch, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		why |= b.watched[watch]
		all = all || mask&unix.IN_Q_OVERFLOW != 0
		if mask&unix.IN_IGNORED != 0 {
			delete(b.watched, watch)
		}
		events = events[min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(events[12:])), len(events)):]
	}
	if all {
		for _, c := range b.watched {
			why |= c
		}
	}
	if err != nil {
		clear(b.watched)
	}
	if len(b.watched) > 0 {
		return why, false
	}
	b.file.Close()
	return why, true
}

// stallTrigger asks to be told when some task of the node waited for memory for
// 50 ms within two seconds: what an unprivileged process may ask for. For it the
// kernel looks no more often than without us, for root ten times in that window
// (Documentation/accounting/psi.rst).
const stallTrigger = "some 50000 2000000\x00"

// Stalls has the bell ring when pressure stall information says that memory is short on
// the node. It is a hint, seconds late. Where the kernel has none, or lets only root ask as
// older ones do, it never rings, which is no error: nothing may rest on it.
func (b *Bell) Stalls(why Cause, proc string) error {
	if b.late {
		b.due = append(b.due, func() error { return b.Stalls(why, proc) })
		return nil
	}
	name := filepath.Join(proc, "pressure", "memory")
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	var told trigger
	if err == nil {
		if _, err = unix.Write(fd, []byte(stallTrigger)); err == nil {
			told, err = newTrigger(fd)
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EROFS):
		return nil
	case err != nil:
		return fmt.Errorf("cannot ask %s to tell of stalls: %w", name, err)
	}
	go func() {
		defer unix.Close(fd)
		defer told.Close()
		for told.wait() {
			fault.Point("stalled")
			b.Ring(why)
		}
	}()
	return nil
}

// trigger is an instance of epoll with a pressure trigger in it. The runtime's poller asks for
// no EPOLLPRI, which is all that a trigger has to say; for the instance it can wait, without
// a thread of ours.
type trigger struct{ *os.File }

func newTrigger(fd int) (trigger, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return trigger{}, err
	}
	err = errors.Join(unix.SetNonblock(epoll, true), unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLPRI}))
	file := os.NewFile(uintptr(epoll), "stalls") // which must not block by now
	if err != nil {
		file.Close()
		return trigger{}, err
	}
	return trigger{file}, nil
}

// wait returns once the trigger has fired, false where it never will again. The kernel tells
// it once, and may tell the runtime's poller: to be woken is to be told.
func (t trigger) wait() bool {
	conn, err := t.SyscallConn()
	if err != nil {
		return false
	}
	alive, woken := true, false
	err = conn.Read(func(epoll uintptr) bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(int(epoll), events[:], 0)
		alive = err == unix.EINTR || err == nil && (n == 0 || events[0].Events&unix.EPOLLERR == 0)
		told := woken || n > 0 || !alive
		woken = true
		return told
	})
	return err == nil && alive
}
