package hold

import (
	"time"

	"golang.org/x/sys/unix"
)

// This file has a signal wait until the witness can speak for it.

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
