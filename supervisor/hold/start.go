package hold

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// record is hold_record.
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
	if o.Flush == 0 {
		o.Flush = defaultFlush
	}
	h := &holder{opts: o, self: os.Getpid(), parent: os.Getppid(), brought: brought(), pidfd: -1, override: -1}
	h.witness.status = -1
	if installed != nil {
		return nil, installed
	}
	h.signals, h.noted, h.wake = signals.fd, signals.noted, signals.wake
	safeStderr()
	runtime.GOMAXPROCS(2)
	h.log.open(o.Log)
	h.watcher.open(h)
	h.trims.open(o.Trim, func() { wake(h.wake) })
	makeThreads(holderThreads)
	return h, nil
}

// start starts the command and asks for its watcher.
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
	h.pid, h.status.PID = pid, pid
	h.early, h.began = c.before()
	h.leftOut = c.leftOut()
	if fd, err := pidfdOpen(pid, 0); err == nil {
		h.pidfd = fd
	}
	c.close()
	releaseDescriptors(h.opts.KeepFDs)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(32 << 20)
	h.watcher.begin(h)
	return nil
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

// safeStderr replaces os.Stderr by a copy. The runtime kills a process whose
// write to descriptors 1 or 2 fails with EPIPE.
func safeStderr() {
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 10); err == nil {
		os.Stderr = os.NewFile(uintptr(fd), "/dev/stderr")
	}
}

// startTime is field 22 of the command's stat, 0 when unreadable.
func startTime(pid int) uint64 {
	var buf [1024]byte
	b, err := readSmall(filepath.Join("/proc", strconv.Itoa(pid), "stat"), buf[:])
	if err != nil {
		return 0
	}
	s, _ := parseStat(b)
	return s.start
}
