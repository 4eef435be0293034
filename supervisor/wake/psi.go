package wake

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// stallTrigger asks to be told when some task of the node waited for memory for
// 50 ms within two seconds: what an unprivileged process may ask for. For it the
// kernel looks no more often than without us, for root ten times in that window
// (Documentation/accounting/psi.rst).
const stallTrigger = "some 50000 2000000\x00"

// Stalls has the bell ring when pressure stall information says that memory is short on
// the node. It is a hint, seconds late. Where the kernel has none, or lets only root ask as
// older ones do, it never rings, which is no error: nothing may rest on it.
func (b *Bell) Stalls(why Cause, proc string) error {
	name := filepath.Join(proc, "pressure", "memory")
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		if _, err = unix.Write(fd, []byte(stallTrigger)); err != nil {
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
		for {
			fault.Point("stalled")
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
			switch _, err := unix.Poll(p, -1); {
			case err == unix.EINTR:
				continue
			case err != nil || p[0].Revents&unix.POLLPRI == 0:
				return // POLLERR: the trigger is gone
			}
			b.Ring(why)
		}
	}()
	return nil
}
