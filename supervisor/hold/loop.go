package hold

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// holder is owned by the goroutine in loop; the starter has its own.
type holder struct {
	opts    Options
	self    int
	parent  int  // ours, when we began
	pid     int  // the command
	pidfd   int  // -1 where the kernel has none
	leftOut bool // the command has not our variables: no room for them

	signalSource
	beforeCommand
	jobControl
	shared  shared // the last signal that the command got with us
	witness witness
	watcher watcher
	trims   trims
	log     logger
	pacer
	buffers

	ending
	broke *internalError // what of us failed, nil for nothing
}

// ending is how the command ended, and until when its watcher is waited for.
type ending struct {
	ended    bool
	status   Status
	override int // exit status that the watcher asked for; -1: none
	deadline time.Time
}

func (e *ending) final() Status {
	if e.override >= 0 {
		e.status.Code, e.status.Signal = e.override, 0
	}
	return e.status
}

type buffers struct {
	batch   batch
	records [16 * recordSize]byte
	packet  [messageSize]byte
}

const defaultFlush = 2 * time.Second

// loop runs until the command has ended and its watcher has flushed. While
// all is well it allocates nothing.
func (h *holder) loop() Status {
	var fds [4]unix.PollFd
	for h.broke == nil {
		fault.Point("holder")
		h.reap()
		h.trims.answer(h)
		h.watcher.turn(h)
		if h.ended && h.watcher.done(h) {
			break
		}
		h.ask()
		fds[0] = unix.PollFd{Fd: int32(h.pidfd), Events: unix.POLLIN}
		if h.ended {
			fds[0].Fd = -1
		}
		fds[1] = unix.PollFd{Fd: int32(h.signals), Events: unix.POLLIN}
		fds[2] = unix.PollFd{Fd: int32(h.noted), Events: unix.POLLIN}
		fds[3] = unix.PollFd{Fd: int32(h.watcher.link), Events: unix.POLLIN}
		if err := h.batch.poll(fds[:], h.timeout(), 1); err != nil {
			// Refused, or no memory: what poll would show is tried.
			fds[1].Revents, fds[2].Revents, fds[3].Revents = 1, 1, 1
		}
		h.pace()
		if fds[3].Revents != 0 {
			h.receive()
		}
		// What is reported while we read waits for the next time.
		reported := h.witness.reported
		if fds[1].Revents != 0 || reported != 0 {
			h.readSignals()
		}
		if fds[2].Revents != 0 || reported != 0 {
			h.readNoted()
		}
		h.witness.leftover(reported)
	}
	if h.broke != nil {
		return h.status
	}
	h.trims.end()
	h.watcher.end(h)
	h.log.flush()
	return h.final()
}

// timeout is poll's: until the watcher's next start, or the end of its flush.
func (h *holder) timeout() int {
	if h.witness.reported != 0 {
		return 0
	}
	at := h.watcher.next
	if at.IsZero() {
		at = h.watcher.slim
	}
	if h.ended {
		at = h.deadline
	}
	if at.IsZero() {
		return -1
	}
	return max(0, int(time.Until(at).Milliseconds())+1)
}

// reap takes the command's end by its PID and then, one by one, what else has
// ended: the watcher, orphans. The look at all of them comes second, because
// it shows one zombie only, always the same.
func (h *holder) reap() {
	if !h.ended {
		if code, status, ok := takeEnd(h.pid); ok {
			h.finish(code, status)
		} else if !h.trims.out {
			// Else a stop may be the tracer's; its answer wakes us.
			h.mirrorStop()
		}
	}
	if h.watcher.starting {
		// Its PID is not known yet: it could not be told from an orphan.
		return
	}
	for {
		command := h.pid
		if h.ended {
			command = 0
		}
		pid, code, status, ok := takeOther(command)
		if !ok {
			return
		}
		h.moved = true
		switch pid {
		case command:
			h.finish(code, status)
		case h.watcher.pid:
			h.watcher.died(h, code, status)
		}
	}
}

func (h *holder) finish(code, status int32) {
	h.ended, h.moved = true, true
	h.deadline = time.Now().Add(h.opts.Flush)
	if code == cldExited {
		h.status.Code = int(status)
	} else {
		h.status.Signal = int(status)
	}
	h.watcher.next = time.Time{}
}

// mirrorStop stops this process as its command is stopped, so that the shell
// sees its job stopped. A SIGSTOP was sent to the command alone, or it would
// have stopped us too; unless the command answers ^Z that way, or stops itself in the
// foreground, as a shell's suspend does: the terminal would hang.
func (h *holder) mirrorStop() {
	sig, ok := stoppedBy(h.pid)
	if !ok {
		return
	}
	switch s := unix.Signal(sig); {
	case s == unix.SIGTSTP || s == unix.SIGTTIN || s == unix.SIGTTOU:
	case s == unix.SIGSTOP && (h.ctrlZ || inFront()):
		sig = int32(unix.SIGTSTP)
	default:
		takeStop(h.pid)
		return
	}
	h.ctrlZ = false
	stopSelf(int(sig), h.pid)
}

// inFront says that this process is in the foreground of its terminal.
func inFront() bool {
	s, err := readStat(os.Getpid())
	return err == nil && s.front
}

func (h *holder) receive() {
	for h.watcher.link >= 0 {
		n, err := readNow(h.watcher.link, h.packet[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			return
		}
		h.moved = true
		if err != nil || n == 0 {
			h.watcher.hangUp(h)
			return
		}
		m, err := parseMessage(h.packet[:n])
		if err != nil {
			continue
		}
		switch m.kind {
		case kindSubreaper:
			if err := subreaper(m.a != 0); err != nil {
				h.log.say(err.Error(), nil)
			}
		case kindOverride:
			h.override = int(m.a) & 0xff
		case kindDrained:
			h.witness.drained(m.set, m.a)
		case kindPending:
			h.witness.pending(m.set)
		case kindTrim:
			h.trims.ask(trimRequest(&m))
		}
	}
}

// ask tells the watcher which of its pending signals have served.
func (h *holder) ask() {
	if m, any := h.witness.request(); any && h.send(&m) {
		h.witness.sent()
	}
}

func (h *holder) send(m *message) bool {
	if h.watcher.link < 0 {
		return false
	}
	m.put(&h.packet)
	return unix.Sendto(h.watcher.link, h.packet[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) == nil
}

func pipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	return p[0], p[1], nil
}
