package hold

import (
	"runtime"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"golang.org/x/sys/unix"
)

// A signal that the holder does not name within keepWitness was probably sent
// to the watcher alone: one to the group reaches the holder within
// microseconds. It must not stay, or it would testify for a later one. But
// the holder may be stopped, or slow: so it is asked, never overruled.
const (
	keepWitness = 20 * time.Millisecond
	askAgain    = time.Second
)

// Messages wait here until the watcher takes them. When as many do as there is room for,
// further signals are dropped; what came of a trim, the exit and Gone have a place each.
const (
	signalRoom  = 64
	trimRoom    = signalRoom + 1
	exitRoom    = trimRoom + 1
	messageRoom = exitRoom + 1
)

// put queues a message unless so many wait already. It never blocks: this goroutine
// alone adds to the queue.
func (l *Link) put(m Message, room int) {
	if len(l.messages) < room {
		l.messages <- m
	}
}

// serve is the watcher's side of the link. It takes pending signals only as
// the holder names them.
func (l *Link) serve() {
	runtime.LockOSThread()
	defer l.put(Gone{}, messageRoom)
	all := unix.Sigset_t{}
	all.Val[0] = ^uint64(0)
	pending, err := unix.Signalfd(-1, &all, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK)
	if err != nil {
		pending = -1
	}
	buf := make([]byte, 4096)
	var old signalSet // pending when the wait began
	var until time.Time
	for {
		fds := [2]unix.PollFd{
			{Fd: int32(l.fd), Events: unix.POLLIN},
			{Fd: int32(pending), Events: unix.POLLIN},
		}
		timeout := -1
		if old != 0 {
			fds[1].Fd = -1
			timeout = max(0, int(time.Until(until).Milliseconds())+1)
		}
		_, err := unix.Poll(fds[:], timeout)
		if err != nil && err != unix.EINTR {
			return
		}
		if fds[0].Revents != 0 {
			fault.Point("link")
			taken, ok := l.receive(buf)
			if !ok {
				return
			}
			old &^= taken // what is there of these now came later
		}
		switch {
		case old == 0 && fds[1].Revents&unix.POLLIN != 0:
			old, until = pendingSignals(), time.Now().Add(keepWitness)
		case old != 0 && !time.Now().Before(until):
			if old &= pendingSignals(); old != 0 {
				l.send(&message{kind: kindPending, set: old})
				until = time.Now().Add(askAgain)
			}
		case old != 0:
			old &= pendingSignals()
		}
	}
}

// receive handles what is on the link and returns the signals of which it took
// a copy; false when the holder is gone.
func (l *Link) receive(buf []byte) (taken signalSet, ok bool) {
	for {
		n, _, err := unix.Recvfrom(l.fd, buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return taken, true
		case err != nil || n == 0:
			return taken, false
		}
		m, err := parseMessage(buf[:n])
		if err != nil {
			continue
		}
		switch m.kind {
		case kindDrain:
			l.drain(m.set, m.a)
			taken |= m.set
		case kindExit:
			l.put(Exit{Code: int(m.a), Signal: int(m.b)}, exitRoom)
		case kindTrimmed:
			l.put(trimAnswer(&m), trimRoom)
		case kindSignal:
			l.put(Signal{Signal: int(m.a), Forwarded: m.b != 0, Sender: int(m.c)}, signalRoom)
		}
	}
}

// drain takes one copy of each pending signal in set, and says so. A real-time
// signal may have more, which are evidence of their own.
func (l *Link) drain(set signalSet, seq int32) {
	for sig := 1; sig <= 64; sig++ {
		if set.has(sig) {
			takePending(sig)
		}
	}
	l.send(&message{kind: kindDrained, set: set, a: seq})
}
