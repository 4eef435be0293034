package hold

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The handlers are in place before main: a signal that the user has ignored
// must not end us while options are parsed.
var (
	installed error
	signals   source
)

// source is where the holder's signals come from.
type source struct {
	fd    int // signalfd, for those that every thread blocks
	noted int // pipe, for those the handler gets
	wake  int // its other end; a record with signal 0 only wakes
}

func init() {
	switch {
	case active():
		installed = signals.open()
	case len(os.Args) > 0 && (os.Args[0] == watcherName || os.Args[0] == asideName):
		installed = installHandler(handlerWatcher, -1)
	}
	if installed != nil {
		installed = fmt.Errorf("cannot install signal handler: %w", installed)
	}
}

func (s *source) open() (err error) {
	all := unix.Sigset_t{}
	all.Val[0] = ^uint64(0)
	if s.fd, err = unix.Signalfd(-1, &all, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return os.NewSyscallError("signalfd", err)
	}
	if s.noted, s.wake, err = pipe(); err != nil {
		return err
	}
	return installHandler(handlerHolder, s.wake)
}
