package once

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// signalGate obeys signals only between two pieces: while one is being trimmed its process
// is stopped, and would be for as long as we are.
type signalGate struct {
	piece sync.Mutex // held while a piece is trimmed
	ended chan struct{}
	by    syscall.Signal // that closed ended
	dieBy func(syscall.Signal)
}

func newSignalGate(ends <-chan os.Signal, dieBy func(syscall.Signal)) *signalGate {
	i := &signalGate{ended: make(chan struct{}), dieBy: dieBy}
	more := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGQUIT, syscall.SIGTSTP} {
		if !signal.Ignored(s) {
			signal.Notify(more, s)
		}
	}
	go i.obey(ends, more)
	return i
}

// obey ends the work at the first signal, and us at the second.
func (i *signalGate) obey(ends, more <-chan os.Signal) {
	for {
		var s os.Signal
		select {
		case s = <-ends:
		case s = <-more:
		}
		switch {
		case s == syscall.SIGTSTP:
			i.suspend()
		case i.signal() == 0:
			i.by = s.(syscall.Signal)
			close(i.ended)
		default:
			i.piece.Lock()
			i.dieBy(s.(syscall.Signal))
		}
	}
}

// suspend stops us as Ctrl-Z would. The signal goes to this very thread, which
// holds the lock: by way of another one we could run on for a moment.
func (i *signalGate) suspend() {
	i.piece.Lock()
	defer i.piece.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// signal is the one that asked for the end, 0 for none.
func (i *signalGate) signal() syscall.Signal {
	select {
	case <-i.ended:
		return i.by
	default:
		return 0
	}
}

// during does a piece, unless the end was asked for.
func (i *signalGate) during(do func()) bool {
	i.piece.Lock()
	defer i.piece.Unlock()
	if i.signal() != 0 {
		return false
	}
	do()
	return true
}

// wait lets a time pass, and says whether there is more to be done then.
func (i *signalGate) wait(d time.Duration) bool {
	select {
	case <-i.ended:
		return false
	case <-time.After(d):
		return true
	}
}
