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
	// used are signals of which one copy has served as evidence, or is left
	// over, and that the watcher has not said to have taken since. One copy is
	// evidence once.
	used     signalSet
	drain    signalSet // of these, the ones that the watcher does not know yet
	reported signalSet // left over, if no signal still to be read explains them
	mute     bool      // it did not answer in time, and has not since
	seq      int32
	asked    [65]int32 // per signal: the request that will free it
	buf      []byte    // room for all of the file: it lists the groups, 65536 at most
}

func (w *witness) open(pid int) {
	w.close()
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	if w.buf == nil {
		w.buf = make([]byte, 16<<10)
	}
	for {
		n, err := unix.Pread(fd, w.buf, 0)
		if err != nil || n < len(w.buf) {
			break
		}
		w.buf = make([]byte, 2*n)
	}
	w.pid, w.status, w.used, w.drain, w.reported, w.mute = pid, fd, 0, 0, 0, false
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
	n, err := unix.Pread(w.status, w.buf, 0)
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
	w.use(bit(sig))
	w.reported &^= bit(sig)
	return true, true
}

func (w *witness) use(set signalSet) {
	w.used |= set
	w.drain |= set
}

// pending: the watcher says that it has these for long. It knew nothing yet of
// a request that is under way, which will take them.
func (w *witness) pending(set signalSet) { w.reported |= set &^ w.used }

// leftover: of what was reported, set was before all that we have read since,
// and none of that needed it.
func (w *witness) leftover(set signalSet) {
	set &= w.reported
	w.reported &^= set
	w.use(set)
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

// draining are those that a parked holder has asked for.
func (w *witness) draining(set signalSet) {
	w.used = set
	for s := 1; s <= 64; s++ {
		if set.has(s) {
			w.asked[s] = -1 // see hear in park.c
		}
	}
}

// drained: the watcher took one copy of each. What it has pending from now on
// is evidence again. An answer to an earlier request frees nothing that a later
// one is under way for.
func (w *witness) drained(set signalSet, seq int32) {
	w.mute = false
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
