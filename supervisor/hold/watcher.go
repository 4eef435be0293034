package hold

import (
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// watcher is the holder's side of its watcher. Starting one may hang (the
// program may lie on a dead file system), so a goroutine of its own does it.
type watcher struct {
	link     int // -1: none
	pid      int // 0: none
	starting bool
	slow     bool      // to start: a signal has waited for it without result
	attempt  int       // of the newest
	next     time.Time // when to start another, zero: not
	slim     time.Time // when to give back what a start has needed, zero: not
	told     bool      // of the command's end
	death    string    // of the last one, to be told when another is started; "" for none
	deathNo  int32     // its status or signal

	requests chan int
	results  chan started
}

type started struct {
	pid, link int
	err       error
}

// oomMargin is what the watcher's oom_score_adj is above the command's, in thousandths of
// the limit. The OOM killer takes it before the holder and before what is smaller than 5 %
// of the limit. A trainer or worker that fills the limit goes before it, as bare: the
// watcher is there to say so.
const oomMargin = 50

// pauses before the second, third and last watcher. The first is for a cgroup that is
// full: what brings pages of the holder back meanwhile has the OOM killer choose it next.
var pauses = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}

// slimAfter is how long after a watcher's start the holder is made small: what a short
// command costs stays as it is.
const slimAfter = time.Second

const maxSetup = 128 << 10

// open makes the starter's thread; it must be there before the command.
func (w *watcher) open(h *holder) {
	w.link = -1
	if len(h.opts.Watcher) == 0 {
		return
	}
	w.requests, w.results = make(chan int, 1), make(chan started, 1)
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(ready)
		for attempt := range w.requests {
			if attempt == 0 {
				sound(h.opts.Slim)
				continue
			}
			w.results <- startWatcher(h, attempt)
			wake(h.wake)
		}
	}()
	<-ready
}

func (w *watcher) request(h *holder) {
	w.attempt++
	w.starting, w.slow, w.next = true, false, time.Time{}
	w.requests <- w.attempt
	if h.opts.Slim != nil {
		w.slim = time.Now().Add(slimAfter)
	}
}

// startWatcher runs on the starter's thread and touches nothing of the loop's
// but what is constant since the command's start.
func startWatcher(h *holder, attempt int) (s started) {
	fail := func(err error) started { return started{link: -1, err: fmt.Errorf("cannot start watcher: %w", err)} }
	defer func() {
		if b := caught(recover()); b != nil {
			s = fail(b)
		}
	}()
	fault.Point("holder-starter")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fail(os.NewSyscallError("socketpair", err))
	}
	defer unix.Close(pair[1])
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pair[0])
		return fail(err)
	}
	defer unix.Close(null)
	ignored, blocked := given()
	command, _ := readStat(h.pid)
	b := Begin{
		Setup: h.opts.Setup, PID: h.pid, Start: command.start, Holder: h.self,
		Attempt: attempt, Last: attempt > len(pauses), Ignored: uint64(ignored), Blocked: uint64(blocked), LeftOut: h.leftOut,
	}
	if len(b.Setup) > maxSetup {
		b.Setup = nil
		h.log.say("cannot hand the setup to the watcher: too long", nil)
	}
	p, err := encodeBegin(b)
	if err == nil {
		err = unix.Sendto(pair[0], p, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
	if err != nil {
		unix.Close(pair[0])
		return fail(err)
	}
	c := ownChild(watcherName, h.opts.Watcher, pair[1], null, h.opts.KeepFDs)
	defer c.close()
	pid, noProcess, execErr := c.spawn()
	if noProcess != 0 || execErr != 0 {
		unix.Close(pair[0])
		return fail(max(noProcess, execErr))
	}
	// Of all that a full cgroup may cost, the watcher is what the command can do without.
	// Raising the score needs no privilege (proc_pid_oom_score_adj(5)).
	if given := oomScore(h.self); given != "" {
		setOOMScore(pid, aboveOOMScore(given))
	}
	return started{pid: pid, link: pair[0]}
}

func wake(fd int) {
	var r record
	b := (*[recordSize]byte)(unsafe.Pointer(&r))[:]
	if _, err := unix.Write(fd, b); err != nil && err != unix.EAGAIN {
		unix.Writev(fd, [][]byte{b}) // write(2) is refused
	}
}

func (w *watcher) turn(h *holder) {
	w.take(h)
	if w.death != "" && (h.ended || time.Now().After(w.next)) { // at once where there is no next
		w.sayDeath(h)
	}
	if h.ended {
		if !w.told && w.link >= 0 {
			// A stopped watcher is to flush too.
			unix.Kill(w.pid, unix.SIGCONT)
			w.told = h.send(&message{kind: kindExit, a: int32(h.status.Code), b: int32(h.status.Signal)})
		}
		return
	}
	if !w.starting && !w.next.IsZero() && !time.Now().Before(w.next) {
		w.request(h)
	}
	if !w.starting && !w.slim.IsZero() && !time.Now().Before(w.slim) {
		w.slim = time.Time{}
		w.requests <- 0
	}
}

// take takes what came of a start, once that is known.
func (w *watcher) take(h *holder) {
	if !w.starting {
		return
	}
	select {
	case s := <-w.results:
		w.starting = false
		w.link, w.pid = s.link, s.pid
		if s.err != nil {
			h.log.say(s.err.Error(), nil)
			w.again()
			return
		}
		h.witness.open(s.pid)
	default:
	}
}

// again plans the next start, if there is one left.
func (w *watcher) again() {
	if w.attempt <= len(pauses) && w.requests != nil {
		w.next = time.Now().Add(pauses[w.attempt-1])
	}
}

// died: the watcher has been reaped. One that ended with status 0 wanted to.
func (w *watcher) died(h *holder, code, status int32) {
	w.pid = 0
	h.witness.close()
	h.receive() // its last words
	if w.link >= 0 {
		w.hangUp(h)
	}
	if code == cldExited && status == 0 {
		return
	}
	w.death, w.deathNo = "exit status", status
	if code != cldExited {
		w.death = "signal"
	}
	if !h.ended {
		w.again()
	}
}

func (w *watcher) sayDeath(h *holder) {
	then := "; it is started again"
	switch {
	case h.ended:
		then = "; what it had to say of the run is lost"
	case w.next.IsZero():
		then = "; the command runs on unwatched"
	case w.attempt == len(pauses):
		then = "; it is started for the last time"
	}
	h.log.say(fmt.Sprintf("the watcher died (%s %d)%s", w.death, w.deathNo, then), nil)
	w.death = ""
}

func (w *watcher) hangUp(h *holder) {
	unix.Close(w.link)
	w.link = -1
	if end := time.Now().Add(reapWait); h.ended && end.Before(h.deadline) {
		h.deadline = end
	}
}

// reapWait is how long a watcher that has flushed may take to be gone. Left to
// the first process of a container it might stay a zombie.
const reapWait = 200 * time.Millisecond

// done: nothing is left to wait for once the command has ended.
func (w *watcher) done(h *holder) bool {
	return w.link < 0 && !w.starting && w.pid == 0 || !time.Now().Before(h.deadline)
}

// end leaves no watcher behind that has had its time: it would hold the
// user's stderr open.
func (w *watcher) end(h *holder) {
	if w.pid != 0 && w.link >= 0 {
		h.log.say("the watcher did not end in time and is killed", nil)
		unix.Kill(w.pid, unix.SIGKILL)
	}
}
