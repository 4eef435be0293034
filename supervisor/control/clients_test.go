package control

import (
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/socket"
)

// TestTooMany: the seventeenth is told so, and whoever asks when there is room
// again is answered.
func TestTooMany(t *testing.T) {
	var open atomic.Int32
	s := serve(t, source{
		events: func(ctx context.Context) (<-chan []byte, error) {
			ch := make(chan []byte)
			open.Add(1)
			context.AfterFunc(ctx, func() {
				open.Add(-1)
				close(ch)
			})
			return ch, nil
		},
		status: func(context.Context) (*Status, error) { return &Status{}, nil },
	})
	var all []*os.File
	for range maxServed {
		c := s.connect()
		if _, err := io.WriteString(c, get("GET", "/v1/events")); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	until(t, "all are served", func() bool { return open.Load() == maxServed })
	for range 2 * maxHeard {
		if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(said, "Retry-After: 1\r\n") {
			t.Fatalf("%q", said)
		}
	}
	// Those who say nothing hold nobody up for long.
	for range maxHeard + 4 {
		s.connect()
	}
	if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 503 ") {
		t.Errorf("%q", said)
	}
	all[3].Close()
	until(t, "there is room again", func() bool { return strings.HasPrefix(s.say(get("GET", "/v1/status")), "HTTP/1.1 200 ") })
	if n := open.Load(); n != maxServed-1 {
		t.Errorf("%d streams are open", n)
	}
}

// TestClientLeaves: the source learns of it, and what it still sends is taken. A
// client that has only ended its request, as nc does, has not left.
func TestClientLeaves(t *testing.T) {
	called, over := make(chan context.Context, 1), make(chan struct{})
	s := serve(t, source{do: func(ctx context.Context, _ Command) (<-chan Result, error) {
		ch := make(chan Result)
		go func() {
			defer close(over)
			defer close(ch)
			ch <- Result{PID: 1}
			<-ctx.Done()
			for range 100 { // of what had begun
				ch <- Result{PID: 2}
			}
		}()
		called <- ctx
		return ch, nil
	}})
	c := s.connect()
	if _, err := io.WriteString(c, get("POST", "/v1/recycle")); err != nil {
		t.Fatal(err)
	}
	ctx := <-called
	socket.Finish(c)
	b := make([]byte, 1<<10)
	for !strings.Contains(string(b), `"pid":1`) {
		n, err := c.Read(b[:cap(b)])
		if b = b[:n]; err != nil {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("a client that ended its request was taken for gone")
	}
	c.Close()
	s.Close() // what comes after that is taken too
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the source is stuck")
	}
}

func TestClientHangsUp(t *testing.T) {
	called, over := make(chan struct{}), make(chan struct{})
	s := serve(t, source{do: func(ctx context.Context, _ Command) (<-chan Result, error) {
		ch := make(chan Result)
		go func() {
			defer close(over)
			defer close(ch)
			<-ctx.Done()
			for range 100 {
				ch <- Result{PID: 2}
			}
		}()
		close(called)
		return ch, nil
	}})
	c := s.connect()
	if _, err := io.WriteString(c, get("POST", "/v1/recycle")); err != nil {
		t.Fatal(err)
	}
	<-called
	c.Close()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the source is stuck")
	}
}

// TestSlowClient: who does not read loses the connection, and nobody else waits.
func TestSlowClient(t *testing.T) {
	dropped := make(chan struct{})
	s := serve(t, source{
		events: func(ctx context.Context) (<-chan []byte, error) {
			ch := make(chan []byte)
			context.AfterFunc(ctx, func() { close(dropped) })
			go func() {
				defer close(ch)
				line := []byte(`"` + strings.Repeat("x", 4<<10) + `"`)
				for ctx.Err() == nil {
					select {
					case ch <- line:
					case <-ctx.Done():
					}
				}
			}()
			return ch, nil
		},
		status: func(context.Context) (*Status, error) { return &Status{}, nil },
	}, func(s *Server) { s.toWrite = 200 * time.Millisecond })
	slow := s.connect()
	if _, err := io.WriteString(slow, get("GET", "/v1/events")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
			t.Fatal(said)
		}
	}
	select {
	case <-dropped:
	case <-time.After(10 * time.Second):
		t.Error("a client that reads nothing is still served")
	}
}

// TestSilentSource: a watcher that hangs is told of, and neither gathers callers
// nor holds up the end.
func TestSilentSource(t *testing.T) {
	hang := make(chan struct{})
	var calls atomic.Int32
	s := serve(t, source{
		status: func(context.Context) (*Status, error) { calls.Add(1); <-hang; return &Status{}, nil },
		events: func(context.Context) (<-chan []byte, error) {
			calls.Add(1)
			<-hang
			ch := make(chan []byte, 1)
			ch <- []byte("late")
			close(ch)
			return ch, nil
		},
	}, func(s *Server) { s.toAsk = 20 * time.Millisecond })
	defer close(hang)
	for i := range 2 * maxServed {
		path := []string{"/v1/status", "/v1/events"}[i%2]
		if said := s.say(get("GET", path)); !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(said, "the watcher does not answer") {
			t.Fatal(said)
		}
	}
	if n := calls.Load(); n != maxServed {
		t.Errorf("%d calls hang", n)
	}
	begun := time.Now()
	s.Close()
	if d := time.Since(begun); d > time.Second {
		t.Errorf("the end took %v", d)
	}
}
