// Package wake brings forward what would be done at the next tick: the kernel says that
// a file has changed, or that memory is short, and one channel yields. What is said is
// only a hint. Where the kernel does not say it, there is an error, and the waiter must
// look for itself from time to time.
package wake

import (
	"os"
	"sync"
	"sync/atomic"
)

// Cause is a set of reasons to wake. The owner of the bell gives each bit its meaning.
type Cause uint32

// Bell wakes one goroutine. What it rang for and was not answered yet counts once.
type Bell struct {
	c      chan struct{}
	causes atomic.Uint32

	mu      sync.Mutex
	fd      int             // inotify's
	file    *os.File        // … by which it is waited for without a thread: the user's tasks may be few
	watched map[int32]Cause // empty without an instance of inotify
}

// New returns a bell that nothing rings yet.
func New() *Bell { return &Bell{c: make(chan struct{}, 1), watched: map[int32]Cause{}} }

// C yields once the bell has rung.
func (b *Bell) C() <-chan struct{} { return b.c }

// Causes returns what the bell has rung for since the last call.
func (b *Bell) Causes() Cause { return Cause(b.causes.Swap(0)) }

// Ring rings the bell. It never waits.
func (b *Bell) Ring(why Cause) {
	b.causes.Or(uint32(why))
	select {
	case b.c <- struct{}{}:
	default:
	}
}
