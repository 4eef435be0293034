// Package probe reads beside a loop what may hang: a file of /proc for which the kernel
// takes a process's mmap_lock, a /dev/shm, a network file system, slurmctld. The loop asks,
// goes on, and takes the answer when it is there. A read that hangs costs one goroutine and
// holds up only its own reader.
package probe

import (
	"sync"
	"time"
)

// Set wakes a loop for the answers of its readers. The zero value is ready.
type Set struct {
	once sync.Once
	bell chan struct{}
}

// C yields when an answer has come that was to wake the loop, and once for several. What
// has come is in the readers; it may have been taken already.
func (s *Set) C() <-chan struct{} {
	s.once.Do(func() { s.bell = make(chan struct{}, 1) })
	return s.bell
}

func (s *Set) ring() {
	s.C()
	select {
	case s.bell <- struct{}{}:
	default: // it rings already
	}
}

// Reader has questions answered one after the other, in their order, on a goroutine that
// lives for as long as there are any. Its methods are for the goroutine of the loop. A panic
// in a read ends the program, as in any other goroutine. A nil Reader takes no questions.
type Reader[Q, A any] struct {
	set     *Set
	read    func(Q) A
	asks    chan ask[Q]
	answers chan A
	open    int // questions whose answer was not taken
	first   *A  // the answer that Wait has seen

	mu   sync.Mutex
	runs bool // a goroutine reads
}

type ask[Q any] struct {
	question Q
	wake     bool
}

// Run has done beside the loop what may hang and has no answer.
func Run(do func()) { go do() }

// New returns a reader that takes one question at a time. What read keeps between two calls
// needs no lock. The set may be nil where no answer is to wake the loop.
func New[Q, A any](s *Set, read func(Q) A) *Reader[Q, A] { return NewQueue(s, 1, read) }

// NewQueue returns a reader that takes this many questions before the first is answered.
func NewQueue[Q, A any](s *Set, size int, read func(Q) A) *Reader[Q, A] {
	return &Reader[Q, A]{set: s, read: read, asks: make(chan ask[Q], size), answers: make(chan A, size)}
}

// Ask has a question answered, and the loop woken for the answer if wake is set. It returns
// false where as many are under way as the reader takes.
func (r *Reader[Q, A]) Ask(q Q, wake bool) bool {
	if r == nil || r.open == cap(r.asks) {
		return false
	}
	r.open++
	r.asks <- ask[Q]{q, wake} // there is room, as for its answer
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.runs {
		r.runs = true
		go r.run()
	}
	return true
}

func (r *Reader[Q, A]) run() {
	for {
		a, ok := r.next()
		if !ok {
			return
		}
		r.answers <- r.read(a.question)
		if a.wake {
			r.set.ring()
		}
	}
}

// next is the question to answer; without one the goroutine ends.
func (r *Reader[Q, A]) next() (a ask[Q], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case a = <-r.asks:
		return a, true
	default:
		r.runs = false
		return a, false
	}
}

// Busy says that an answer was not taken yet: it may still be on its way.
func (r *Reader[Q, A]) Busy() bool { return r != nil && r.open > 0 }

// Take returns the next answer, if there is one. It never waits.
func (r *Reader[Q, A]) Take() (a A, ok bool) {
	if r == nil {
		return a, false
	}
	if r.first != nil {
		a, r.first, ok = *r.first, nil, true
	} else {
		select {
		case a = <-r.answers:
			ok = true
		default:
			return a, false
		}
	}
	r.open--
	return a, ok
}

// Wait waits for an answer to take, and says whether one came within that time.
func (r *Reader[Q, A]) Wait(within time.Duration) bool {
	if r.first != nil || r.open == 0 {
		return r.first != nil
	}
	select {
	case a := <-r.answers:
		r.first = &a
		return true
	case <-time.After(within):
		return false
	}
}

// Bucket is processor time to spend: it fills at a share of the time that passes, and a
// debt must be paid before anything is spent again.
type Bucket struct {
	Most  time.Duration // that it holds; it is full at first
	Share float64       // of a core, above 0

	has   time.Duration // below 0 it is a debt
	at    time.Duration
	begun bool
}

// Fill adds what has come since the last call, and returns what there is now.
func (b *Bucket) Fill(now time.Duration) time.Duration {
	if !b.begun {
		b.begun, b.has = true, b.Most
	}
	b.has, b.at = min(b.has+time.Duration(float64(now-b.at)*b.Share), b.Most), now
	return b.has
}

// Spend takes out what something has cost.
func (b *Bucket) Spend(cost time.Duration) { b.has -= cost }

// Dry is how long after the last Fill a debt is paid.
func (b *Bucket) Dry() time.Duration {
	if b.has >= 0 {
		return 0
	}
	return time.Duration(float64(-b.has) / b.Share)
}

// Renew fills it up.
func (b *Bucket) Renew() { b.has = b.Most }
