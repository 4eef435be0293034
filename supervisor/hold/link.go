package hold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

// Link is the watcher's end of the socket to its holder.
//
// The watcher lives with every catchable signal blocked: it is the holder's
// witness of signals to the whole process group. So it must not use
// signal.Notify, and starts programs through Start.
type Link struct {
	begin    Begin
	fd       int
	messages chan Message
	closing  sync.Once
	starts   sync.Mutex
	hears    sync.Mutex // held while a message is taken
	score    string     // oom_score_adj of the holder, and so of the command
	ended    atomic.Bool

	masked map[int]bool // its threads that have been told to block their signals
	parted bool         // the last look found the holder stopped, and the command not
}

var errNoLink = errors.New("cannot take the link from descriptor 0: not started by a holder")

const (
	beginWait = 10 * time.Second
	maxBegin  = 256 << 10
)

// OpenLink takes the link from descriptor 0, where the holder put it, puts
// /dev/null there, and waits for Begin. It also replaces os.Stderr by a copy
// whose writes fail with EPIPE when the reader is gone; the Go runtime kills a
// process that writes to descriptor 2 then. Make loggers after it.
func OpenLink() (*Link, error) {
	if os.Args[0] != watcherName {
		return nil, errNoLink
	}
	if installed != nil {
		return nil, installed
	}
	setName(watcherName)
	if fd, state, lock, ended := rested(); fd >= 0 {
		return openRested(fd, state, lock, ended)
	}
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, fmt.Errorf("cannot take the link from descriptor 0: %w", err)
	}
	if t, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || t != unix.SOCK_SEQPACKET {
		unix.Close(fd)
		return nil, errNoLink
	}
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		unix.Dup3(null, 0, 0)
		unix.Close(null)
	}
	safeStderr()
	l := &Link{fd: fd, messages: make(chan Message, messageRoom)}
	if l.begin, err = readBegin(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	l.open()
	return l, nil
}

// openRested is OpenLink of a watcher that was at rest.
func openRested(fd, state, lock int, ended bool) (*Link, error) {
	defer unix.Close(state)
	unix.CloseOnExec(fd)
	safeStderr()
	l := &Link{fd: fd, messages: make(chan Message, messageRoom)}
	packet := make([]byte, maxBegin)
	n, err := unix.Pread(state, packet, 0)
	if err == nil {
		l.begin, err = parseBegin(packet[:max(n, 0)])
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot read what a resting watcher kept: %w", err)
	}
	if lock != 0 {
		unix.CloseOnExec(lock)
		l.begin.Rested.Lock, l.begin.Rested.Ended = lock, ended
	}
	l.open()
	return l, nil
}

func (l *Link) open() {
	l.score = oomScore(l.begin.Holder)
	if roomForTasks(plentyOfTasks) {
		makeThreads(watcherThreads)
	} else {
		makeThreads(scarceThreads)
	}
	go l.serve()
	l.maskThreads()
}

func readBegin(fd int) (Begin, error) {
	if !waitFor(fd, unix.POLLIN, time.Now().Add(beginWait)) {
		return Begin{}, errors.New("cannot read begin message: none came")
	}
	// Its size first: room for the largest would stay with this process.
	n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return Begin{}, fmt.Errorf("cannot read begin message: %w", err)
	}
	buf := make([]byte, min(n, maxBegin))
	n, err = unix.Read(fd, buf)
	if err != nil {
		return Begin{}, fmt.Errorf("cannot read begin message: %w", err)
	}
	return parseBegin(buf[:n])
}

// waitFor waits until a descriptor has one of these events, false where it has none by then.
func waitFor(fd int, events int16, end time.Time) bool {
	for {
		left := time.Until(end)
		if left < 0 {
			return false
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(p, int(left.Milliseconds())+1)
		if err == nil && n > 0 {
			return true
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
}

func (l *Link) Begin() Begin { return l.begin }

// Ended says that the holder has told of the command's end.
func (l *Link) Ended() bool { return l.ended.Load() }

// Messages yields what the holder says, in its order. Gone is the last.
func (l *Link) Messages() <-chan Message { return l.messages }

// Subreaper has the command's orphans become the holder's children, or no
// longer. Call it only where no enforcer sums by parent PID. Orphans of programs
// that the watcher itself starts become its own: among the holder's they would
// pass for the command's.
func (l *Link) Subreaper(on bool) error {
	m := message{kind: kindSubreaper}
	if on {
		m.a = 1
	}
	err := subreaper(on)
	return errors.Join(err, l.send(&m))
}

// subreaper makes this process one, or none (PR_SET_CHILD_SUBREAPER of prctl(2)).
func subreaper(on bool) error {
	arg := uintptr(0)
	if on {
		arg = 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, arg, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become subreaper: %w", err)
	}
	return nil
}

// WatcherNames are the names (comm) that a watcher has from its exec on.
var WatcherNames = []string{"exe", watcherName}

// ForkNames are those of a parked holder's forks.
var ForkNames = WatcherNames[1:]

// Override has the holder exit with status when the command ends, however it
// ends.
func (l *Link) Override(status int) error {
	return l.send(&message{kind: kindOverride, a: int32(status)})
}

// Prepare takes what this watcher and its holder may need later, and may not get then: it has
// a parked holder become the Go holder, and starts the threads that may be needed at once.
func (l *Link) Prepare() error {
	if roomForTasks(2 * scarceThreads) {
		makeThreads(scarceThreads)
		l.maskThreads()
	}
	return l.send(&message{kind: kindWake})
}

func (l *Link) send(m *message) error {
	var b [messageSize]byte
	m.put(&b)
	if err := unix.Sendto(l.fd, b[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil); err != nil {
		return fmt.Errorf("cannot send to the holder: %w", err)
	}
	return nil
}

// Unstick continues a holder that is stopped although the command is not: a parent that waits
// for the command would wait for ever. Two calls in a row must have seen that: between the two
// reads and the signal both may be continued and stopped again by ^Z, which our SIGCONT would
// undo. It also has threads that the runtime made since block their signals. Call it once a
// second, from one goroutine.
func (l *Link) Unstick() error {
	l.maskThreads()
	parted, err := partedFrom(l.begin)
	again := parted && l.parted
	l.parted = parted && !again
	if err != nil || !again {
		return err
	}
	if err := unix.Kill(l.begin.Holder, unix.SIGCONT); err != nil && err != unix.ESRCH {
		return fmt.Errorf("cannot continue the holder: %w", err)
	}
	return nil
}

// partedFrom says that the holder is stopped and the command is not.
func partedFrom(b Begin) (bool, error) {
	h, err := readStat(b.Holder)
	if err != nil && !gone(err) {
		return false, err
	}
	if err != nil || h.state != 'T' {
		return false, nil
	}
	c, err := readStat(b.PID)
	if err != nil && !gone(err) {
		return false, err
	}
	return err != nil || c.state != 'T' || b.Start != 0 && c.start != b.Start, nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// maskThreads has threads of this watcher block its signals. The runtime makes one now and
// then, with many signals open; until then the handler puts back what it gets.
func (l *Link) maskThreads() {
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	masked := make(map[int]bool, len(names))
	for _, n := range names {
		tid, err := strconv.Atoi(n.Name())
		if err != nil {
			continue
		}
		if !l.masked[tid] {
			maskThread(tid)
		}
		masked[tid] = true
	}
	l.masked = masked
}

// Close says that the watcher has flushed. The holder waits for nothing else.
func (l *Link) Close() error {
	var err error
	l.closing.Do(func() {
		if err = unix.Shutdown(l.fd, unix.SHUT_RDWR); err != nil {
			err = fmt.Errorf("cannot close the link: %w", err)
		}
	})
	return err
}

// Start is cmd.Start for a program that is not to inherit the watcher's blocked signals,
// nor its place before the command in the OOM killer's choice: it gets the mask and the
// oom_score_adj that the user's command got. What was raised without privilege may be
// lowered again (oom_score_adj_min in __set_oom_adj, fs/proc/base.c).
func (l *Link) Start(cmd *exec.Cmd) error {
	l.starts.Lock()
	defer l.starts.Unlock()
	if l.score != "" {
		setOOMScore(os.Getpid(), l.score)
		defer setOOMScore(os.Getpid(), aboveOOMScore(l.score))
	}
	return withMask(signalSet(l.begin.Blocked), cmd.Start)
}

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
			l.hears.Lock()
			taken, ok := l.receive(buf)
			l.hears.Unlock()
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
			l.ended.Store(true)
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
