package proctree

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// endPause is how often a process is looked at without a pidfd.
const endPause = 100 * time.Millisecond

type Ending struct {
	proc string
	id   rss.ProcID
	fd   int // pidfd, -1 before Linux 5.3 or where pidfds are filtered
	gone bool
}

// Expect begins to wait for the end of a process, which it does not touch: it is neither
// traced nor waited for.
func Expect(proc string, id rss.ProcID) *Ending {
	e := &Ending{proc: proc, id: id, fd: -1}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == nil {
		e.fd = fd
	}
	// The descriptor holds on to the process that has the PID now; only then
	// does a look at the start time prove anything.
	e.gone = errors.Is(err, unix.ESRCH) || !Lives(proc, id)
	return e
}

// Wait returns whether the process has ended, as soon as it has, and after
// that time at the latest.
func (e *Ending) Wait(most time.Duration) bool {
	for end := time.Now().Add(most); !e.gone; {
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if e.fd < 0 {
			time.Sleep(min(endPause, left))
			e.gone = !Lives(e.proc, e.id)
			continue
		}
		p := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		switch {
		case err == nil && n > 0:
			e.gone = true
		case err != nil && err != unix.EINTR:
			e.Close()
		}
	}
	e.Close()
	return true
}

func (e *Ending) Close() {
	if e.fd >= 0 {
		unix.Close(e.fd)
		e.fd = -1
	}
}
