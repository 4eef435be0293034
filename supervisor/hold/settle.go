package hold

import (
	"time"

	"golang.org/x/sys/unix"
)

// This file has a signal wait until the witness can speak for it.

// secondWait is for timeout(1) and the like, which signal their child and then its whole
// group, some 10 µs later. A bare command has both pending at once, which is one signal.
// Forwarded at once, the first would be handled before the second comes.
const secondWait = 200 * time.Microsecond

// awaitSecond waits until a signal that came at this time has waited for secondWait.
func awaitSecond(came uint64) {
	for {
		left := came + uint64(secondWait) - monotonic()
		if left == 0 || left > uint64(secondWait) {
			return
		}
		ts := unix.NsecToTimespec(int64(left))
		if err := unix.Nanosleep(&ts, nil); err != nil && err != unix.EINTR {
			return
		}
	}
}

// shared is a signal that the command got with us, and until when equal ones from the
// same process are part of it: all that came before the witness was asked.
type shared struct {
	signo, pid int
	until      uint64 // CLOCK_MONOTONIC, ns
}

func (s *shared) covers(a *arrival) bool {
	return a.signo == s.signo && a.pid == s.pid && a.time <= s.until
}

// answerWait is how long at most. A watcher that can run answers within
// microseconds, and starts within milliseconds.
const answerWait = 200 * time.Millisecond

// settleStart waits until a start that is under way is known: the watcher may
// be there already, and have this signal, before the holder knows its PID. A
// start that a signal has waited for in vain is not waited for again.
func (h *holder) settleStart() {
	var end time.Time
	for w := &h.watcher; w.starting && !w.slow; {
		if w.take(h); !w.starting {
			return
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(answerWait)
		}
		if !now.Before(end) {
			w.slow = true
			return
		}
		// What would wake us lies in a pipe among the records of signals.
		fds := [1]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}
		if unix.Poll(fds[:], 1); fds[0].Revents != 0 {
			return // the command has ended
		}
	}
}

// settle waits until the watcher has said that it took what served as evidence
// for the last signal of this number: only then what it has pending speaks for
// this one. A watcher that has let us wait in vain is not waited for again
// before it has answered.
func (h *holder) settle(sig int) {
	h.receive()
	var end time.Time
	for w := &h.witness; w.used.has(sig) && !w.mute; h.receive() {
		h.ask()
		if w.drain != 0 || h.watcher.link < 0 {
			return // it cannot be asked
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(answerWait)
		}
		if !now.Before(end) {
			w.mute = true
			return
		}
		fds := [2]unix.PollFd{
			{Fd: int32(h.watcher.link), Events: unix.POLLIN},
			{Fd: int32(h.pidfd), Events: unix.POLLIN},
		}
		unix.Poll(fds[:], int(end.Sub(now).Milliseconds())+1)
		if fds[1].Revents != 0 {
			return // the command has ended
		}
	}
}

// monotonic is CLOCK_MONOTONIC in ns, as the handler notes it, 0 if it cannot be had.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
