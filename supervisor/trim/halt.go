package trim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
)

type thread struct {
	tid     int
	state   threadState
	group   bool        // it was stopped by a signal to the process beside us
	deliver unix.Signal // it was about to take that one when we were done with it
	regs    registers   // as it stood, after undoStop
	sleeps  bool        // it was in a system call that had not come to its end
}

type threadState uint8

const (
	running  threadState = iota // asked to stop
	stopped                     // in PTRACE_EVENT_STOP, inside get_signal of kernel/signal.c
	inCall                      // in a system call that we have it make
	detached                    // let go
	gone                        // it has ended
)

// The waits of a stop. A process that shares its processors with others may
// need a time slice of each before its threads come by a place to stop at.
const (
	haltPatience  = 20 * time.Millisecond // for all threads, while those stopped wait
	stragglerWait = 2 * time.Second       // for the last ones, the others run again
	rounds        = 16                    // of listing threads while they start others
)

// look reads /proc/PID/stat: whether the process is the one that was meant, and
// in a state to be stopped in.
func (s *session) look() Refusal {
	p, err := proctree.Identify("/proc", s.id.PID)
	if err != nil {
		return vanishedOrFailed(err)
	}
	s.child = p.Parent == s.self
	switch {
	case p.ID != s.id || p.State == 'Z' || p.State == 'X':
		return Vanished
	case p.State == 'T':
		return Stopped
	case p.State == 't':
		return Traced
	case p.State == 'D':
		return Waiting
	}
	return None
}

// halt stops every thread of the process. While all stand still none can
// change what is mapped where: a thread that runs could put memory of its own
// in the place of a file, which would then be thrown away.
func (s *session) halt() Refusal {
	task, err := os.Open(fmt.Sprintf("/proc/%d/task", s.id.PID))
	if err != nil {
		return vanishedOrFailed(err)
	}
	s.task = task
	s.power.drop(true)
	defer s.power.drop(false)
	for range rounds {
		// A thread may start another until it has stopped itself.
		fresh, r := s.seizeAll()
		if r != None {
			return r
		}
		if !fresh {
			return s.ready()
		}
		if !pollUntil(s.began.Add(haltPatience), func() bool { return !s.pollAll() }) {
			return Slow
		}
	}
	return Slow
}

// seizeAll attaches to the threads that are not attached to yet, and asks them
// to stop.
func (s *session) seizeAll() (fresh bool, r Refusal) {
	_, err := s.task.Seek(0, 0)
	var names []string
	if err == nil {
		names, err = s.task.Readdirnames(MaxThreads + 1) // the process chooses how many it has
	}
	if err != nil && err != io.EOF {
		return false, vanishedOrFailed(err)
	}
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil || slices.ContainsFunc(s.threads, func(t thread) bool { return t.tid == tid }) {
			continue
		}
		if len(s.threads) >= MaxThreads {
			return fresh, Crowded
		}
		switch r := s.seize(tid); r {
		case None:
			fresh = true
		case Vanished:
		default:
			return fresh, r
		}
	}
	return fresh, None
}

// seize attaches to one thread; Vanished where it is ending.
func (s *session) seize(tid int) Refusal {
	e := seize(tid)
	if e == unix.EPERM {
		// The kernel returns it for an ended thread too, and while another thread that
		// calls execve(2) takes its number.
		e = seize(tid)
	}
	switch e {
	case 0:
	case unix.ESRCH:
		return Vanished
	default:
		st, err := readThreadStatus(fmt.Sprintf("/proc/%d/task/%d/status", s.id.PID, tid))
		switch {
		case err != nil:
			return vanishedOrFailed(err)
		case st.ended():
			return Vanished
		case st.tracer != 0:
			return Traced
		case e == unix.EPERM && yamaForbids():
			return Yama
		case e == unix.EPERM:
			return Undumpable
		}
		return Failed
	}
	if tid != s.id.PID {
		s.ends.expect(tid)
	}
	s.threads = append(s.threads, thread{tid: tid})
	// It cannot fail but for a thread that has ended, which the wait will tell.
	_ = ptrace(unix.PTRACE_INTERRUPT, tid, 0, 0)
	return None
}

// yamaForbids says that ptrace_scope is 2 or 3.
func yamaForbids() bool {
	b, err := procfile.Read("/proc/sys/kernel/yama/ptrace_scope", procfile.Small)
	return err == nil && len(b) > 0 && b[0] >= '2'
}

// pollAll polls the threads that run, and says whether any still does.
func (s *session) pollAll() (left bool) {
	for i := range s.threads {
		if t := &s.threads[i]; t.state == running {
			s.poll(t)
			left = left || t.state == running
		}
	}
	return left
}

// poll takes the news of a thread that was asked to stop, if there are any.
func (s *session) poll(t *thread) {
	st, end := s.news(t)
	switch {
	case end:
		t.state = gone
	case st == 0:
	case st>>8 == eventStop:
		t.state = stopped
		t.group = st&0x7f != int32(unix.SIGTRAP)
		t.undoStop()
	default:
		// It was about to take a signal: let it, the request to stop stands.
		_ = ptrace(unix.PTRACE_CONT, t.tid, 0, uintptr(st&0x7f))
	}
}

// undoStop reads where a thread stopped and undoes what the stop alone would spoil:
// some calls report EINTR although no handler will have run (signal(7)).
func (t *thread) undoStop() {
	if getRegisters(t.tid, &t.regs) != nil {
		t.state = running // killed: its end is to be heard of
		return
	}
	if !t.regs.is64() {
		return
	}
	nr, result, call := t.regs.call()
	t.sleeps = call && interrupted(result)
	if call && result == -int64(unix.EINTR) && remade[nr] {
		t.regs.remake()
		_ = setRegisters(t.tid, &t.regs) // fails for one that was killed alone
	}
}

func (s *session) ready() Refusal {
	r := Vanished
	for i := range s.threads {
		switch t := &s.threads[i]; {
		case t.state != stopped:
		case t.group:
			return Stopped
		case !t.regs.is64():
			return Not64Bit
		default:
			r = None
		}
	}
	return r
}

// release lets every thread go on, those that stop only now as soon as they do,
// and returns when those that stood still went on. What is left after it, our end
// has to free.
func (s *session) release() (at time.Time) {
	s.letGo()
	at = time.Now()
	pollUntil(at.Add(stragglerWait), func() bool {
		left := s.pollAll()
		return !s.letGo() && !left
	})
	for i := range s.threads {
		if st := s.threads[i].state; st != detached && st != gone {
			s.stuck = true
		}
	}
	return at
}

// letGo lets go of all that have stopped, and says whether one was killed: its
// end is to be heard of.
func (s *session) letGo() (killed bool) {
	for i := range s.threads {
		t := &s.threads[i]
		if t.state != stopped {
			continue
		}
		t.state = detached
		if ptrace(unix.PTRACE_DETACH, t.tid, 0, uintptr(t.deliver)) != 0 {
			t.state, killed = running, true
		}
	}
	return killed
}

func vanishedOrFailed(err error) Refusal {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return Vanished
	}
	return Failed
}

const (
	eventStop   = 128                        // PTRACE_EVENT_STOP, above the signal's number
	syscallStop = int32(unix.SIGTRAP) | 0x80 // with PTRACE_O_TRACESYSGOOD
)

// si_code of SIGCHLD (sigaction(2)).
const (
	cldExited = 1
	cldDumped = 3
)

// childInfo is the part of siginfo_t that waitid(2) fills.
type childInfo struct {
	_      [2]int32
	code   int32
	_      int32
	pid    int32
	_      uint32
	status int32
	_      [100]byte
}

var _ [unsafe.Sizeof(unix.Siginfo{})]byte = [unsafe.Sizeof(childInfo{})]byte{}

func waitid(tid, options int) (si childInfo, err error) {
	for {
		err = unix.Waitid(unix.P_PID, tid, (*unix.Siginfo)(unsafe.Pointer(&si)), options|unix.WNOHANG|unix.WALL, nil)
		if err != unix.EINTR {
			return si, err
		}
	}
}

// news returns the stop that a thread has reported since, 0 for none, or that
// it has ended.
//
// A look comes first and takes nothing, because the end of a child of this
// process belongs to its starter: its status must stay to be waited for.
// All other ends we take, or the process's own parent would not hear of them.
func (s *session) news(t *thread) (stop int32, end bool) {
	si, err := waitid(t.tid, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT)
	switch {
	case err != nil:
		return 0, true // ECHILD: it has ended, and its parent has reaped it
	case si.pid == 0:
		return 0, false
	case ended(&si):
		if t.tid != s.id.PID || !s.child {
			_, _ = waitid(t.tid, unix.WEXITED)
		}
		return 0, true
	}
	if si, err = waitid(t.tid, unix.WSTOPPED); err != nil || si.pid == 0 {
		return 0, false // killed between the two: the next look tells
	}
	return si.status, false
}

// minLooks is how often a thread is looked at before it counts as late: where
// the whole job was suspended together with us, no time has passed for any of them.
const minLooks = 100

// pollUntil polls until done; false when that took until the deadline. It never blocks:
// a thread in uninterruptible sleep would keep us as long. It waits little at first: a
// thread that has a processor stops within microseconds.
func pollUntil(deadline time.Time, done func() bool) bool {
	pause := unix.Timespec{Nsec: 5_000}
	for n := 0; !done(); n++ {
		if n >= minLooks && time.Now().After(deadline) {
			return false
		}
		if n > 100 {
			pause.Nsec = 100_000
		}
		// Raw: the runtime is not told, so that it does nothing about a wait as short.
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
	return true
}

// ended says that a thread has ended and is not reaped yet.
func ended(si *childInfo) bool {
	return si.pid != 0 && si.code >= cldExited && si.code <= cldDumped
}

// ptrace is ptrace(2), bare: the caller is on its thread.
func ptrace(request, tid int, addr, data uintptr) unix.Errno {
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), addr, data, 0, 0)
	return e
}

// seize attaches to a thread. That waits for a thread of the same process that
// is about to execute another program, so the runtime must know.
func seize(tid int) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, unix.PTRACE_O_TRACESYSGOOD, 0, 0)
	return e
}

// capability is CAP_SYS_PTRACE of the thread that traces, dropped while it
// attaches: with it the kernel would not refuse a process that asked not to be inspected
// (PR_SET_DUMPABLE, another user's process). It is taken back then: /proc/PID/maps of a
// process with all capabilities is for those alone that have them too.
type capability struct {
	has  bool
	data [2]unix.CapUserData
}

var capabilityHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

func (c *capability) find() {
	header := capabilityHeader
	err := unix.Capget(&header, &c.data[0])
	c.has = err == nil && c.data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

func (c *capability) drop(dropped bool) {
	if !c.has {
		return
	}
	data, header := c.data, capabilityHeader
	if dropped {
		data[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	}
	_ = unix.Capset(&header, &data[0]) // less is always allowed, and so is what we had
}
