package trim

import (
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// Tracer trims pieces on a thread of its own: ptrace(2) binds a process to the
// thread that attached, and that thread's end is how the kernel lets
// go of what could not be stopped.
type Tracer struct {
	mu     sync.Mutex
	calls  chan Piece // nil: the thread has to be started
	backs  chan Answer
	broken int // threads that had to be ended
}

// maxBroken is how many threads may be ended. Each takes one of those that
// the process was given at its start with it.
const maxBroken = 3

// NewTracer starts the thread.
func NewTracer() *Tracer {
	t := &Tracer{}
	t.start()
	return t
}

// Do trims one piece. Calls wait for each other.
func (t *Tracer) Do(p Piece) Answer {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !supported:
		return Answer{Refusal: Unsupported}
	case t.broken >= maxBroken:
		return Answer{Refusal: Broken}
	case p.Lo >= p.Hi:
		return Answer{Refusal: Changed}
	case t.calls == nil:
		t.start()
	}
	t.calls <- p
	a, whole := <-t.backs
	if !whole {
		// It panicked, which ended it.
		a.Refusal = Failed
	}
	if !whole || a.ended {
		t.calls = nil
		t.broken++
	}
	return a
}

func (t *Tracer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls != nil {
		close(t.calls)
		t.calls = nil
	}
	t.broken = maxBroken
}

func (t *Tracer) start() {
	t.calls, t.backs = make(chan Piece), make(chan Answer)
	go trace(t.calls, t.backs)
}

// trace serves on one thread until told to end, or until something cannot be
// left but by the thread's end.
func trace(calls <-chan Piece, backs chan<- Answer) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The runtime keeps a process's first thread: its end would detach from
		// nothing. It stays locked here, so that another one serves.
		done := make(chan struct{})
		go func() {
			defer close(done)
			trace(calls, backs)
		}()
		<-done
		runtime.UnlockOSThread()
		return
	}
	// A fault of ours ends this thread alone, and so lets go of the process.
	s := &session{self: unix.Getpid()}
	s.power.find()
	defer func() {
		if recover() != nil {
			s.ends.rest()
		}
		close(backs)
	}()
	// Waits here are of microseconds; the kernel would round them up by 50.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	for p := range calls {
		a := s.trim(p)
		a.ended = s.stuck
		backs <- a
		if s.stuck {
			return // locked still: the thread ends, and the kernel detaches
		}
	}
}

// session is one process being trimmed; its memory serves the next too.
type session struct {
	self  int
	power capability
	ends  ends
	id    rss.ProcID
	child bool // its end is for a waiter in this process
	stuck bool // something could not be stopped, or brought back

	task    *os.File // /proc/PID/task
	threads []thread
	began   time.Time
	listed  bool // the kernel lists mappings, and cannot be asked for one
}

// trim stops the process, has the range of p dropped, and lets go.
func (s *session) trim(p Piece) (a Answer) {
	s.id, s.threads, s.task = p.ID, s.threads[:0], nil
	if a.Refusal = s.look(); a.Refusal != None {
		return a
	}
	s.began = time.Now()
	s.ends.watch()
	a.Refusal = s.halt()
	a.Attached, a.Threads = time.Since(s.began), len(s.threads)
	if a.Refusal == None {
		a.Dropping, a.Refusal = s.drop(p)
	}
	a.Stop = s.release().Sub(s.began)
	s.ends.rest()
	s.task.Close() // a nil one says so
	if a.Refusal == None {
		a.Advised = rss.Bytes(p.Hi - p.Lo)
	}
	return a
}

// drop borrows a thread and has it call madvise, which took so long.
func (s *session) drop(p Piece) (took time.Duration, r Refusal) {
	t, r := s.lender()
	if r != None {
		return 0, r
	}
	if r := s.verify(p); r != None {
		return 0, r
	}
	b := borrowed{s: s, t: t, out: true}
	r = b.advise(p)
	if back := b.end(); r == None {
		r = back
	}
	return b.inside, r
}

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
