package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Threshold has the kernel tell once when the charge of a v1 directory whose
// files are ours passes a size, up or down, by an eventfd
// (Documentation/admin-guide/cgroup-v1/memory.rst, 9. Memory thresholds;
// memcg_write_event_control in mm/memcontrol-v1.c). The charge is that of the
// directory and all below it, page cache included.
//
// All reads block in the kernel: Go's netpoller would park on such descriptors
// what nobody wakes. Arm and Wait may run at the same time, each in one
// goroutine.
type Threshold struct {
	dir string
	mu  sync.Mutex // held to change the descriptors

	usage        int // memory.usage_in_bytes, that the kernel wants a descriptor of
	epoll, close int
	event        int // the eventfd that is armed, -1 for none
}

// ErrClosed is what Wait returns once there is nothing more to wait for.
var ErrClosed = errors.New("closed")

// NewThreshold prepares to be told of the directory of a guard. Nothing is
// armed yet.
func (g *Guard) NewThreshold() (*Threshold, error) {
	t := &Threshold{dir: g.Dir, usage: -1, epoll: -1, close: -1, event: -1}
	var err error
	if t.usage, err = unix.Open(g.level.UsageFile(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", g.level.UsageFile(), err)
	}
	if t.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		if t.close, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
			err = t.listen(t.close)
		}
	}
	if err != nil {
		t.free()
		return nil, fmt.Errorf("cannot be told of thresholds: %w", err)
	}
	return t, nil
}

// listen has epoll tell of a descriptor once: a charge that goes up and down
// passes a size many times.
func (t *Threshold) listen(fd int) error {
	return unix.EpollCtl(t.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)})
}

// Arm has Wait return when the charge passes size; what was armed before no
// longer counts. A charge that is there already has passed it. The kernel waits
// for an RCU grace period in it: that takes 10 to 40 ms.
func (t *Threshold) Arm(size rss.Bytes) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := filepath.Join(t.dir, "cgroup.event_control")
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot arm %s: %w", name, err)
	}
	// Listened to first: what happens in between is not lost.
	if err = t.listen(fd); err == nil {
		err = t.register(name, fd, size)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("cannot arm %s at %v: %w", name, size, err)
	}
	if t.event >= 0 {
		unix.Close(t.event) // the only way to disarm
	}
	t.event = fd
	// The kernel tells of crossings alone.
	if t.charged() >= size {
		unix.Write(fd, one)
	}
	return nil
}

// one raises the count of an eventfd: a number of 8 bytes, in whichever order.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 1}

func (t *Threshold) charged() rss.Bytes {
	var buf [32]byte
	n, err := unix.Pread(t.usage, buf[:], 0)
	if err != nil {
		return 0
	}
	b, err := parseLimit(buf[:n])
	if err != nil {
		return 0
	}
	return b
}

func (t *Threshold) register(name string, fd int, size rss.Bytes) error {
	control, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(control)
	_, err = unix.Write(control, fmt.Appendf(nil, "%d %d %d", fd, t.usage, size))
	return err
}

// Wait blocks until the charge has passed what is armed, or the directory is
// removed. It may return for no reason. After an error, [ErrClosed] above all,
// nothing more comes.
func (t *Threshold) Wait() error {
	var events [4]unix.EpollEvent
	n, err := unix.EpollWait(t.epoll, events[:], -1)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot wait for thresholds of %s: %w", t.dir, err)
	}
	for _, e := range events[:n] {
		if int(e.Fd) == t.close {
			t.free()
			return ErrClosed
		}
	}
	return nil
}

// Close makes Wait give the descriptors back and return [ErrClosed]. No Arm may
// run or follow.
func (t *Threshold) Close() {
	unix.Write(t.close, one)
}

// free gives the descriptors back.
func (t *Threshold) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range []int{t.usage, t.epoll, t.close, t.event} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
