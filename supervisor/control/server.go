package control

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/socket"
)

const (
	// maxServed is how many are answered at a time, maxHeard how many more are
	// told that it is too many. Who comes then waits in the kernel.
	maxServed = 16
	maxHeard  = 16

	readPatience  = 5 * time.Second
	writePatience = 5 * time.Second
	// turnPatience is how long somebody is listened to who gets nothing: who closes
	// on an unread request breaks the connection before the answer is read.
	turnPatience = 500 * time.Millisecond
	// sourcePatience is how long the source may take to begin an answer.
	sourcePatience = 2 * time.Second
	// endPatience is how long answers that end by themselves may take to when all
	// of it ends.
	endPatience = 80 * time.Millisecond
	// shortPause is between two attempts where there is no descriptor left.
	shortPause = 100 * time.Millisecond
)

// SocketName is the socket's name in the directory of whoever leads.
const SocketName = "control"

// Server answers on one socket.
type Server struct {
	source  Source
	at      *socket.Listener
	ctx     context.Context
	cancel  context.CancelFunc
	closing chan struct{}
	all     sync.WaitGroup
	room    chan struct{} // a place for each connection
	calls   chan struct{} // … for each call of the source that has not ended

	// toWrite and toAsk are the patience with clients and with the source.
	toWrite, toAsk time.Duration

	mu     sync.Mutex
	open   map[*os.File]struct{}
	served int
	forced bool // no deadline is put off any more
	closed bool
}

// Listen answers on the socket NAME in a directory until [Server.Close]. The
// directory must be one that only this user can enter. A socket of that name is
// replaced: whoever listens must be sure to be the one that leads.
func Listen(dir *os.File, name string, source Source) (*Server, error) {
	at, err := socket.Listen(dir, name, maxServed)
	if err != nil {
		return nil, err
	}
	s := &Server{
		source: source, at: at, closing: make(chan struct{}), open: map[*os.File]struct{}{},
		room: make(chan struct{}, maxServed+maxHeard), calls: make(chan struct{}, maxServed),
		toWrite: writePatience, toAsk: sourcePatience,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(s.accept)
	return s, nil
}

// Close ends all that goes on and removes the socket. What the source has given
// by now is still written for up to 80 ms.
func (s *Server) Close() {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return
	}
	close(s.closing)
	s.at.Close()
	ended := make(chan struct{})
	go func() {
		s.all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endPatience):
	}
	s.cancel()
	s.mu.Lock()
	s.forced = true
	for c := range s.open {
		_ = c.SetDeadline(time.Unix(1, 0))
	}
	s.mu.Unlock()
	<-ended
}

func (s *Server) accept() {
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.closing:
			return
		}
		c, err := s.at.Accept()
		fault.Point("control")
		switch {
		case err == nil && s.begin(c):
			continue
		case socket.Short(err):
			select {
			case <-time.After(shortPause):
			case <-s.closing:
				return
			}
		case err != nil:
			return
		}
		<-s.room
	}
}

// begin answers a connection in a goroutine of its own.
func (s *Server) begin(c *os.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.open[c] = struct{}{}
	turned := s.served >= maxServed
	if !turned {
		s.served++
	}
	s.all.Go(func() {
		defer s.end(c, turned)
		s.answer(c, turned)
	})
	return true
}

func (s *Server) end(c *os.File, turned bool) {
	c.Close()
	s.mu.Lock()
	delete(s.open, c)
	if !turned {
		s.served--
	}
	s.mu.Unlock()
	<-s.room
}

var errClosing = errors.New("the server ends")

// allow gives a connection more time, to read or to write.
func (s *Server) allow(set func(time.Time) error, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forced {
		return errClosing
	}
	if d == 0 {
		return set(time.Time{})
	}
	return set(time.Now().Add(d))
}

// write writes all of b, or gives the client up.
func (s *Server) write(c *os.File, b []byte) error {
	if err := s.allow(c.SetWriteDeadline, s.toWrite); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}
