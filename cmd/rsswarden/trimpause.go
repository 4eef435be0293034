package main

import (
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// interlude lets signals have their way between two pieces alone: while one is
// being trimmed its process stands still, and would for as long as we do.
type interlude struct {
	piece sync.Mutex // held while a piece is trimmed
	ended chan struct{}
	by    syscall.Signal // who closed ended
}

func newInterlude() *interlude {
	i := &interlude{ended: make(chan struct{})}
	ends, more := interrupts(), make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGQUIT, syscall.SIGTSTP} {
		if !signal.Ignored(s) {
			signal.Notify(more, s)
		}
	}
	go i.obey(ends, more)
	return i
}

// obey ends the work at the first signal, and us at the second.
func (i *interlude) obey(ends, more <-chan os.Signal) {
	for {
		var s os.Signal
		select {
		case s = <-ends:
		case s = <-more:
		}
		switch {
		case s == syscall.SIGTSTP:
			i.suspend()
		case i.told() == 0:
			i.by = s.(syscall.Signal)
			close(i.ended)
		default:
			i.piece.Lock()
			dieBy(s.(syscall.Signal))
		}
	}
}

// suspend stops us as Ctrl-Z would. The signal goes to this very thread, which
// holds the lock: by way of another one we could run on for a moment.
func (i *interlude) suspend() {
	i.piece.Lock()
	defer i.piece.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// told is the signal that asked for the end, 0 for none.
func (i *interlude) told() syscall.Signal {
	select {
	case <-i.ended:
		return i.by
	default:
		return 0
	}
}

// during does a piece, unless the end was asked for.
func (i *interlude) during(do func()) bool {
	i.piece.Lock()
	defer i.piece.Unlock()
	if i.told() != 0 {
		return false
	}
	do()
	return true
}

// wait lets a time pass, and says whether there is more to be done then.
func (i *interlude) wait(d time.Duration) bool {
	select {
	case <-i.ended:
		return false
	case <-time.After(d):
		return true
	}
}
