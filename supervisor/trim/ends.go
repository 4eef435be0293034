package trim

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ends takes the ends of traced threads, beside the thread that traces. While a
// process dies or executes another program, the kernel waits for all its other
// threads to be taken, and some of what the tracer does waits for the kernel.
type ends struct {
	mu    sync.Mutex
	tids  []int // without the first thread of a process, whose end is the process's
	timer *time.Timer
	on    bool
}

// endsAfter is longer than a trim takes where nothing ends.
const endsAfter = 2 * time.Millisecond

func (e *ends) watch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tids, e.on = e.tids[:0], true
	if e.timer == nil {
		e.timer = time.AfterFunc(endsAfter, e.take)
	} else {
		e.timer.Reset(endsAfter)
	}
}

// expect adds a thread.
func (e *ends) expect(tid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tids = append(e.tids, tid)
}

// rest returns when nothing is taken any more.
func (e *ends) rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = false
	if e.timer != nil {
		e.timer.Stop()
	}
}

func (e *ends) take() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.on {
		return
	}
	for _, tid := range e.tids {
		// A look first: waiting for an end takes the stops of traced threads too.
		if si, err := waitid(tid, unix.WEXITED|unix.WNOWAIT); err == nil && ended(&si) {
			_, _ = waitid(tid, unix.WEXITED)
		}
	}
	e.timer.Reset(endsAfter)
}
