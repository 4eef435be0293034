package hold

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

type arrival struct {
	signo  int
	code   int32 // si_code: above 0 from the kernel
	pid    int   // sender, 0 for the kernel or another PID namespace
	uid    uint32
	value  uint64 // of sigqueue(3)
	parent int    // of the sender when the signal was read, 0: gone, or none
	time   uint64 // CLOCK_MONOTONIC in ns when the handler ran; 0 from the signalfd
}

// mayMerge says that two of these that wait at once are one, and that we know when it came.
func (a *arrival) mayMerge() bool { return a.code == siUser && a.signo < sigRTMin && a.time != 0 }

type verdict int

const (
	toCommand verdict = iota // forward it
	toParent                 // the command's tree sent it to the command's parent, which bare is ours
	hasIt                    // the group got it, the command with it
	ours                     // it is about this process, not about the command
)

type circumstances struct {
	self, watcher int
	within        bool // the sender is the command or descends from it
	sameGroup     bool // the command is in our process group
	parentToo     bool // our parent is in it
	leader        bool // we lead our session
	early         bool // it was pending before there was a command
	brought       bool // and before we were executed
	witness       bool // the watcher can testify for this signal
	seen          bool // and has it pending: the group got it
	doubtful      bool // what it has pending has served as evidence already, or it came later
	overtaken     bool // a SIGCONT, and the group was stopped again since; or a stop, and it was continued
}

var (
	// The kernel sends these to the whole foreground group.
	fromTerminal = setOf(unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH)
	// A shell's ^Z, and what stops a background job at the terminal.
	stopping = setOf(unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	// These, at a hangup, to the session leader alone, or to a group.
	fromHangup = setOf(unix.SIGHUP, unix.SIGCONT)
	// Our own use of a resource; the command's is counted on its own.
	ownUse = setOf(unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGPROF, unix.SIGCHLD)
)

const (
	siUser   = 0  // si_code of kill(2)
	siTkill  = -6 // si_code of tgkill(2), by which the runtime preempts threads
	sigRTMin = 32 // the first signal that queues
)

// judge is the one place that decides what is forwarded. Where it cannot know,
// it forwards: a signal lost is worse than a signal doubled.
func judge(a *arrival, c *circumstances) verdict {
	kernel := a.code > 0
	switch {
	case c.brought && a.code != siTkill:
		// Not even our own PID: until exec it was the user's.
		return toCommand
	case c.early && a.pid != c.self && !(kernel && ownUse.has(a.signo)):
		return toCommand
	case !kernel && a.pid != 0 && (a.pid == c.self || a.pid == c.watcher):
		return ours
	case kernel && ownUse.has(a.signo):
		return ours
	case !kernel && c.within:
		// Either to the command's parent ($PPID in each subshell of a script) or
		// to the group. Never to the command: bare, it gets neither from us. In
		// doubt, as before there is a watcher, the parent gets it only if it is of
		// the group too: then it gets nothing that was meant for others alone.
		inDoubt := c.doubtful || !c.witness
		if c.sameGroup && (c.seen || inDoubt && !c.parentToo) {
			return hasIt
		}
		return toParent
	case !c.sameGroup:
		return toCommand
	case c.overtaken:
		// A stop signal takes SIGCONT out of what is pending, and SIGCONT those, in the
		// witness too: what it has not got says nothing, and sent now SIGCONT would
		// undo the stop, or a stop would outlast SIGCONT.
		return hasIt
	case kernel && fromTerminal.has(a.signo):
		return hasIt
	case c.witness && c.seen:
		return hasIt
	case kernel && fromHangup.has(a.signo) && !c.witness && !c.leader:
		return hasIt
	}
	return toCommand
}

// jobControl is what the terminal's stops need to be told apart.
type jobControl struct {
	sentStop bool // a SIGTSTP that waits to be read was forwarded already
	ctrlZ    bool // the terminal sent SIGTSTP since the last SIGCONT
}

// readSignals takes all that the signalfd has: first what poll has read.
func (h *holder) readSignals() {
	for more := h.batch.size() > 0 || h.batch.read(h.signals); more; more = h.batch.read(h.signals) {
		h.moved = true
		for i := range h.batch.size() {
			a := h.batch.arrival(i)
			early := signalSet(0)
			if a.signo >= 1 && a.signo <= 64 {
				early = h.early & bit(a.signo)
				h.early &^= early
			}
			h.signal(&a, early != 0)
		}
	}
}

// readNoted takes what the handler wrote; signal 0 only wakes us.
func (h *holder) readNoted() {
	for {
		n, err := readNow(h.noted, h.records[:])
		if err != nil || n < recordSize {
			return
		}
		h.moved = true
		for off := 0; off+recordSize <= n; off += recordSize {
			r := (*record)(unsafe.Pointer(&h.records[off]))
			if r.signo != 0 {
				h.signal(&arrival{signo: int(r.signo), code: r.code, pid: int(r.pid), uid: r.uid, value: r.value, parent: int(r.parent), time: r.time}, r.time < h.began)
			}
		}
	}
}

func (h *holder) signal(a *arrival, early bool) {
	if h.ended || a.signo < 1 || a.signo > 64 {
		return
	}
	if h.broke != nil {
		h.passOn(a)
		return
	}
	defer h.signalBroke(a)
	fault.Point("holder-signal")
	if a.code > 0 {
		switch unix.Signal(a.signo) {
		case unix.SIGTSTP:
			h.ctrlZ = true
		case unix.SIGCONT:
			h.ctrlZ = false
		}
	}
	within := a.code <= 0 && !early && h.descends(a.pid, a.parent)
	if !early && a.mayMerge() {
		if h.shared.covers(a) {
			return
		}
		awaitSecond(a.time)
	}
	group := unix.Getpgrp()
	doubtful := h.witness.used.has(a.signo)
	unborn := h.watcher.starting // the watcher may be younger than the signal
	if ofOurs := a.code > 0 && ownUse.has(a.signo); !ofOurs && !early {
		h.settleStart()
		if doubtful {
			h.settle(a.signo)
		}
	}
	c := circumstances{
		self:     h.self,
		watcher:  h.watcher.pid,
		within:   within,
		leader:   isLeader(h.self),
		early:    early,
		doubtful: doubtful || unborn,
	}
	if early && h.brought.has(a.signo) {
		h.brought &^= bit(a.signo)
		c.brought = true
	}
	if g, err := unix.Getpgid(h.pid); err == nil {
		c.sameGroup = g == group
	}
	if g, err := unix.Getpgid(h.parent); err == nil && h.parent > 1 {
		c.parentToo = g == group
	}
	// Always asked: whatever becomes of this signal, the bit belongs to it.
	c.witness, c.seen = h.witness.see(a.signo, group)
	// What waits now that this was read must have come later: a stop signal and SIGCONT take each
	// other away. This process may have been stopped in between, as by scontrol suspend.
	cont, stop, waiting := unix.Signal(a.signo) == unix.SIGCONT, stopping.has(a.signo), pendingSignals()
	c.overtaken = cont && waiting&stopping != 0 || stop && waiting.has(int(unix.SIGCONT))
	v := judge(a, &c)
	if v == ours {
		return
	}
	if c.seen && a.mayMerge() {
		h.shared = shared{signo: a.signo, pid: a.pid, until: monotonic()}
	}
	sent := h.sentStop && unix.Signal(a.signo) == unix.SIGTSTP
	if sent {
		h.sentStop = false
	}
	switch {
	case v == toCommand && sent:
	case v == toCommand:
		forward(h.pidfd, h.pid, a)
		waiting = pendingSignals()
		if c.sameGroup && cont && waiting.has(int(unix.SIGTSTP)) {
			// ^Z in this moment: our SIGCONT may have undone it.
			forward(h.pidfd, h.pid, &arrival{signo: int(unix.SIGTSTP)})
			h.sentStop = true
		}
		if c.sameGroup && stop && waiting.has(int(unix.SIGCONT)) {
			// The same: our stop may have come after it.
			forward(h.pidfd, h.pid, &arrival{signo: int(unix.SIGCONT)})
		}
	case v == toParent && h.parent > 1 && h.parent == os.Getppid():
		forward(-1, h.parent, a)
	}
	m := message{kind: kindSignal, a: int32(a.signo), c: int32(a.pid)}
	if v == toCommand {
		m.b = 1
	}
	h.send(&m)
}

// maxParents bounds the way up from a process.
const maxParents = 1024

// descends says that a process, whose parent was this, is the command or descends from it.
// One whose parents end at us is an orphan of the command's that we have adopted. A sender
// that was gone before its parent could be read is not told from a stranger.
func (h *holder) descends(pid, parent int) bool {
	for range maxParents {
		switch {
		case pid == h.pid:
			return true
		case pid <= 1 || pid == h.self || pid == h.watcher.pid || parent == 0:
			return false
		case parent == h.self:
			return true
		}
		pid, parent = parent, parentOf(parent)
	}
	return false
}

func isLeader(pid int) bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid == pid
}

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
// start that a signal has waited for without result is not waited for again.
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
// this one. A watcher that has not answered in time is not waited for again
// before it has.
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
