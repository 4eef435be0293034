package tell

import (
	"context"
	"slices"
	"sync"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Clients are those who follow the events by the control socket. They come and go by
// goroutines of the server.
type Clients struct {
	mu     sync.Mutex
	all    []chan []byte
	closed bool
}

// clientRoom is how many events a client may be behind before it loses some: the gap in
// "seq" shows it.
const clientRoom = 256

// Add returns the events from now on as lines of JSON, until ctx is done.
func (c *Clients) Add(ctx context.Context) (<-chan []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, control.ErrEnded
	}
	lines := make(chan []byte, clientRoom)
	c.all = append(c.all, lines)
	context.AfterFunc(ctx, func() { c.remove(lines) })
	return lines, nil
}

func (c *Clients) remove(lines chan []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.all, lines); i >= 0 {
		c.all = slices.Delete(c.all, i, i+1)
		close(lines)
	}
}

// Takes implements [Sink]: every event where there is a client.
func (c *Clients) Takes(event.Name) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

// open has clients come again.
func (c *Clients) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = false
}

// Close ends all, and those that come later.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, lines := range c.all {
		close(lines)
	}
	c.all = nil
}

// Event gives an event to all that have room for it.
func (c *Clients) Event(_ event.Name, e any) {
	line, err := event.Line(e)
	if err != nil {
		return // the stream and the record count it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, lines := range c.all {
		select {
		case lines <- line:
		default:
		}
	}
}
