// Package hold is the process between our parent and the user's
// command. The command runs as if it had been started bare, its end becomes
// ours, and nothing that happens to the watcher changes either. README.md says
// how, and what still differs; the twin tests compare the rest.
//
// The holder is one goroutine around poll(2), which allocates nothing while all is well and
// makes no call that a silent file server could keep. Its threads exist before the command.
// Most of the time it is a loop in C (park.c), and where nothing is to be decided C starts the
// command too (start.c).
package hold

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
)

type Options struct {
	// Paths are the files that may be the command: the first that can be executed
	// is, as execvp(3) does with the directories of PATH.
	Paths []string
	Args  []string // argv, the name included
	// Env is the command's environment. Where it is too long (E2BIG), the command
	// has [Environ] instead, and Begin says so.
	Env []string

	// Watcher is the watcher's argv; [0] is the path to execute
	// (/proc/self/exe survives an upgrade). Empty: no watcher.
	Watcher []string
	// Setup is handed to the watcher in Begin, at most 128 KiB.
	Setup json.RawMessage
	// KeepFDs are the descriptors of the user that the watcher needs
	// (--events /dev/fd/3). 1 keeps the user's stdout open in it. Standard
	// error it always has.
	KeepFDs []int
	// Subreaper has orphans become the holder's children from the command's first
	// moment. Leave it to the watcher ([Link.Subreaper]) where an enforcer may sum
	// by parent PID.
	Subreaper bool
	// Flush is how long an ended command's watcher may take, 2 s when zero.
	Flush time.Duration
	// Trim gives a part of a mapping of another process back, on a goroutine of
	// its own; nil where that is not asked for.
	Trim func(TrimRequest) TrimAnswer
	// Slim gives back what only the start has needed. It is called on the starter's
	// goroutine, each time that a watcher has been started; nil where there is none.
	Slim func()
	// Log takes, on a goroutine of its own, what failed on our side.
	Log func(string)
}

type Status struct {
	Code   int // exit status, when Signal is 0
	Signal int // the signal it died of
}

// StartError says that the command could not be executed. It unwraps to the
// errno of execve(2).
type StartError struct {
	Name  string // argv[0]
	Errno syscall.Errno
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot execute %s: %v", e.Name, e.Errno) }

func (e *StartError) Unwrap() error { return e.Errno }

// ErrNotHolder: the process was not started with "run" as its first argument,
// so the signal state it was given is not known.
var ErrNotHolder = errors.New("cannot hold a command: the first argument of this process is not \"run\"")

// Run starts the command, watches over it and returns how it ended. The
// process is the command's stand-in from then on: call Status.Die next. Run
// locks the calling goroutine to its thread for good.
func Run(o Options) (Status, error) {
	if !active() {
		return Status{}, ErrNotHolder
	}
	runtime.LockOSThread()
	var h *holder
	var err error
	broke := sound(func() {
		fault.Point("holder-start")
		h, err = newHolder(o)
	})
	if err != nil || broke != nil {
		// Without our descriptors there is nothing to hold with; the command
		// does not need us.
		return Status{}, Exec(o.Paths, o.Args)
	}
	if broke = sound(func() { err = h.start() }); broke != nil && h.pid == 0 {
		return Status{}, Exec(o.Paths, o.Args)
	}
	if err != nil {
		return Status{}, err
	}
	var st Status
	if broke == nil {
		broke = sound(func() { st = h.loop() })
	}
	if h.broke == nil {
		h.broke = broke
	}
	if h.broke != nil {
		return h.lastResort(), nil
	}
	return st, nil
}

// Exec replaces this process by the command, with the environment, signals, limits
// and descriptors that the user gave; for paths and args see [Options]. It returns
// only a *StartError, or ErrNotHolder.
func Exec(paths, args []string) error {
	if Forked() {
		Leave()
	}
	if !active() || Woken() {
		return ErrNotHolder
	}
	return &StartError{Name: args[0], Errno: execInPlace(paths, args, Environ())}
}

// Die ends this process as the command ended: with its exit status, or by the
// same signal, without a core of our own. It never returns.
func (s Status) Die() {
	if s.Signal == 0 {
		os.Exit(s.Code)
	}
	dieBy(s.Signal)
	// The first process of a PID namespace is not killed by its own signals.
	os.Exit(128 + s.Signal)
}

type record struct {
	signo, code, pid int32
	uid              uint32
	value, time      uint64
	parent           int64
}

const recordSize = int(unsafe.Sizeof(record{}))

// pidfdOpen is replaced by tests of kernels that have none.
var pidfdOpen = unix.PidfdOpen

func newHolder(o Options) (*holder, error) {
	h := &holder{opts: o, self: os.Getpid(), parent: os.Getppid(), pidfd: -1, signalSource: source}
	h.brought, h.override = brought(), -1
	h.witness.status = -1
	if installed != nil {
		return nil, installed
	}
	h.open()
	return h, nil
}

// open makes what the loop has beside it.
func (h *holder) open() {
	if h.opts.Flush == 0 {
		h.opts.Flush = defaultFlush
	}
	safeStderr()
	runtime.GOMAXPROCS(2)
	h.log.open(h.opts.Log)
	h.watcher.open(h)
	h.trims.open(h.opts.Trim, func() { wake(h.wake) })
	makeThreads(holderThreads)
}

func (h *holder) start() error {
	if h.opts.Subreaper {
		// Before there is a command: it may make an orphan at once. Exec takes it back.
		if err := subreaper(true); err != nil {
			h.log.say(err.Error(), nil)
		}
	}
	c := command(h.opts.Paths, h.opts.Args, h.opts.Env)
	pid, noProcess, execErr := c.spawn()
	if noProcess != 0 {
		// RLIMIT_NPROC or pids.max leaves no room for two: the command
		// matters, we do not.
		h.log.say("the command runs unwatched: cannot make a process for it", noProcess)
		h.log.flush()
		return Exec(h.opts.Paths, h.opts.Args)
	}
	if execErr != 0 {
		return &StartError{Name: h.opts.Args[0], Errno: execErr}
	}
	h.pid = pid
	h.early, h.began = c.before()
	h.leftOut = c.leftOut()
	if fd, err := pidfdOpen(pid, 0); err == nil {
		h.pidfd = fd
	}
	c.close()
	releaseDescriptors(h.opts.KeepFDs)
	sparing()
	if h.watcher.requests != nil {
		h.watcher.request(h)
	}
	return nil
}

// sparing is called once the command runs.
func sparing() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(32 << 20)
}

// releaseDescriptors closes the pipes and sockets that the user passed
// through us to the command: held by us, they would hide from the other side
// that the command has closed them. Files stay open: closing one would drop
// the POSIX locks that came with it through exec.
func releaseDescriptors(keep []int) {
	for _, fd := range keep {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(null)
	for fd := range 2 {
		if !slices.Contains(keep, fd) && isStream(fd) {
			unix.Dup3(null, fd, 0)
		}
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		if err != nil || fd < 3 || slices.Contains(keep, fd) {
			continue
		}
		// What is ours is close-on-exec, what came through exec is not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if isStream(fd) {
			unix.Close(fd)
		}
	}
}

func isStream(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	t := st.Mode & unix.S_IFMT
	return t == unix.S_IFIFO || t == unix.S_IFSOCK
}

// kept are files that are not used: one that is collected is closed.
var kept []*os.File

// safeStderr replaces os.Stderr by a copy. The runtime kills a process whose
// write to descriptors 1 or 2 fails with EPIPE.
func safeStderr() {
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 10); err == nil {
		kept = append(kept, os.Stderr)
		os.Stderr = os.NewFile(uintptr(fd), "/dev/stderr")
	}
}

// The handlers are in place before main: a signal that the user has ignored
// must not end us while options are parsed.
var (
	installed error
	source    signalSource
)

type signalSource struct {
	signals int // signalfd, for those that every thread blocks
	noted   int // pipe, for those the handler gets: they cannot be blocked
	wake    int // its other end; a record with signal 0 only wakes
}

// beforeCommand is what waited before there was a command.
type beforeCommand struct {
	brought signalSet // pending when we were executed
	early   signalSet // pending in the signalfd when the command was started
	began   uint64    // when that was, CLOCK_MONOTONIC
}

func init() {
	switch {
	case rehearsing():
		os.Exit(0)
	case Woken():
		source = signalSource{signals: int(parked().signals), noted: int(parked().noted), wake: int(parked().wake)}
		installed = installHandler(source.wake)
	case Forked():
		installed = installHandler(-1)
	case active():
		installed = source.open()
	case len(os.Args) > 0 && (os.Args[0] == watcherName || os.Args[0] == ioHelperName):
		installed = installHandler(-1)
	}
	if installed != nil {
		installed = fmt.Errorf("cannot install signal handler: %w", installed)
	}
}

func (s *signalSource) open() (err error) {
	all := unix.Sigset_t{}
	all.Val[0] = ^uint64(0)
	if s.signals, err = unix.Signalfd(-1, &all, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return os.NewSyscallError("signalfd", err)
	}
	if s.noted, s.wake, err = pipe(); err != nil {
		return err
	}
	return installHandler(s.wake)
}

const flushed = "\x00"

// logger keeps a slow or stuck stderr away from the loop.
type logger struct {
	lines chan string
	done  chan struct{}
}

func (l *logger) open(log func(string)) {
	if log == nil {
		return
	}
	l.lines, l.done = make(chan string, 16), make(chan struct{})
	go func() {
		defer close(l.done)
		for s := range l.lines {
			if s == flushed {
				return
			}
			sound(func() {
				fault.Point("holder-log")
				log(s)
			})
		}
	}()
}

// say drops what does not fit.
func (l *logger) say(what string, err error) {
	if l.lines == nil {
		return
	}
	if err != nil {
		what = fmt.Sprintf("%s: %v", what, err)
	}
	select {
	case l.lines <- what:
	default:
	}
}

// flush gives pending messages a moment. The starter may still send one: the channel is
// never closed.
func (l *logger) flush() {
	if l.lines == nil {
		return
	}
	l.say(flushed, nil)
	within(200*time.Millisecond, l.done)
}

// How many idle threads the runtime is given at the start. One that it cannot make
// later, with pids.max reached, is the end of the process.
const (
	// holderThreads: with GOMAXPROCS 2 it has no use for more.
	holderThreads = 6
	// watcherThreads is for the link, the loop and two of those that read and write beside it.
	watcherThreads = 4
	// scarceThreads has one for each goroutine that may be in a system call while
	// the others are: the link at all times, the loop, stderr, events, record, its
	// flush, textfile, an alert's start, and what is read on the side. On a machine
	// under load each of them stays there for milliseconds.
	scarceThreads = 10
	// plentyOfTasks may be started beside ours before a limit on tasks is met.
	plentyOfTasks = 1000
)

// makeThreads has the runtime create n threads and leaves them to it: each
// locked goroutine needs one of its own until all are there.
func makeThreads(n int) {
	var ready, end sync.WaitGroup
	release := make(chan struct{})
	for range n {
		ready.Add(1)
		end.Add(1)
		go func() {
			runtime.LockOSThread()
			ready.Done()
			<-release
			runtime.UnlockOSThread()
			end.Done()
		}()
	}
	ready.Wait()
	close(release)
	end.Wait()
}
