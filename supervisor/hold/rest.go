package hold

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Rest is what a watcher waits for that follows: a process ends, a file is locked no more, and
// an order comes. The descriptors are those of pidfd_open(2), of the lock and of inotify(7).
type Rest struct {
	Leader, Lock, Orders int
	LedBy                int // the leader's PID
	// Keep are other descriptors that it has when it goes on.
	Keep []int
	Rested
}

// RestCommand is the first argument of a watcher at rest, and the program's once it goes on.
const RestCommand = "rest"

// ErrBusy says that a watcher cannot rest now, but may a moment later.
var ErrBusy = errors.New("there is something to do")

// ofThreads are signals that the runtime and [Link.maskThreads] send to single threads. One may
// stay pending for ever in a thread that blocks it.
var ofThreads = setOf(unix.SIGURG, unix.SIGSTKFLT)

// Rest has this process do nothing but wait, in 200 to 300 KiB and one thread, see rest.c. It
// remains the watcher and the holder's witness. Once there is anything to do, this program
// starts again, with Begin.Rested. Rest returns where it cannot be; last is called when it is
// known that it can, and where that fails nevertheless, this process ends, and the holder
// starts another.
func (l *Link) Rest(r Rest, last func()) error {
	if !canRest() {
		return errors.ErrUnsupported
	}
	if h, err := readStat(l.begin.Holder); err == nil && h.state == 'T' {
		return ErrBusy // the loop in C would have this program started again; and [Link.Unstick] is to see it twice
	}
	begin := l.begin
	begin.Rested = &r.Rested
	packet, err := encodeBegin(begin)
	if err != nil {
		return err
	}
	state, err := unix.MemfdCreate("rest", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot keep what a resting watcher needs: %w", err)
	}
	defer unix.Close(state)
	if n, err := unix.Pwrite(state, packet, 0); err != nil || n != len(packet) {
		return fmt.Errorf("cannot keep what a resting watcher needs: %w", errors.Join(err, io.ErrShortWrite))
	}
	args := []string{watcherName, RestCommand}
	own := []int{l.fd, state, r.Leader, r.Lock, r.Orders}
	for _, n := range append(slices.Clone(own), l.begin.Holder, r.LedBy) {
		args = append(args, strconv.Itoa(n))
	}
	// What comes from now on is left in the link.
	l.hears.Lock()
	if len(l.messages) > 0 || pendingSignals()&^ofThreads != 0 {
		l.hears.Unlock()
		return ErrBusy
	}
	last()
	_ = unix.Dup3(int(os.Stderr.Fd()), 2, 0) // OpenLink has made the copy
	for _, fd := range append(own, r.Keep...) {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
	err = execAlone(args)
	fmt.Fprintf(os.Stderr, "cannot rest, another watcher is started: %v\n", err)
	os.Exit(1)
	return err
}
