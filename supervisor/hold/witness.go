package hold

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// witness is the watcher as seen by the holder: its pending signals tell a
// signal to the whole group from one to the holder alone.
type witness struct {
	pid    int
	status int // descriptor of its /proc/PID/status
	// used are signals whose bit has served as evidence, or may be left over,
	// and that the watcher has not taken since. One bit is evidence once.
	used  signalSet
	drain signalSet // of these, the ones the watcher is still to be told of
	seq   int32
	asked [65]int32 // per signal: the request that will free it
	buf   [16 << 10]byte
}

func (w *witness) open(pid int) {
	w.close()
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	w.pid, w.status, w.used, w.drain = pid, fd, 0, 0
}

func (w *witness) close() {
	if w.status >= 0 {
		unix.Close(w.status)
	}
	w.pid, w.status = 0, -1
}

// see returns whether the watcher can testify for sig, and whether it has it.
func (w *witness) see(sig, group int) (can, seen bool) {
	if w.status < 0 || unwitnessed.has(sig) {
		return false, false
	}
	n, err := unix.Pread(w.status, w.buf[:], 0)
	if err != nil {
		return false, false
	}
	state, pending, ok := parsePending(w.buf[:n])
	if !ok || state == 'T' || state == 't' || state == 'Z' || state == 'X' {
		return false, false
	}
	if g, err := unix.Getpgid(w.pid); err != nil || g != group {
		return false, false
	}
	if !pending.has(sig) || w.used.has(sig) {
		return true, false
	}
	w.used |= bit(sig)
	w.drain |= bit(sig)
	return true, true
}

// unexplained: the watcher has these pending, and no signal that we read
// needed them.
func (w *witness) unexplained(set signalSet) {
	w.used |= set
	w.drain |= set
}

// request is the next thing to ask of the watcher; call sent once it is on
// its way.
func (w *witness) request() (m message, any bool) {
	return message{kind: kindDrain, a: w.seq + 1, set: w.drain}, w.drain != 0
}

func (w *witness) sent() {
	w.seq++
	for s := 1; s <= 64; s++ {
		if w.drain.has(s) {
			w.asked[s] = w.seq
		}
	}
	w.drain = 0
}

// drained: what is pending in the watcher from now on is new. An answer to an
// earlier request frees nothing that a later one is under way for.
func (w *witness) drained(set signalSet, seq int32) {
	for s := 1; s <= 64; s++ {
		if set.has(s) && w.asked[s] == seq && !w.drain.has(s) {
			w.used &^= bit(s)
		}
	}
}

// unwitnessed are the signals that the watcher leaves open in its threads, so
// that they never stay pending. See watcher_open in signal.c.
var unwitnessed = setOf(unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV,
	unix.SIGPROF, 32, 33)
