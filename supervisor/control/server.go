// Package control lets people and programs ask the watcher that leads on a node:
// the state, events, and to recycle, trim or checkpoint now. It speaks
// HTTP/1.1 with JSON over a unix socket (mode 0600, other users are turned away
// by SO_PEERCRED), so that curl can:
//
//	curl --unix-socket /tmp/rsswarden-1000/lead.46@n1/control http://rsswarden/v1/status
//
// The server has no state of the watcher's and never holds it up: it asks by a
// [Source], whose answers may be late or not come, and a client that reads slowly
// loses lines of its own only. Package net/http would add 2 MiB to
// every watcher, of which Slurm counts one a rank; what is needed of HTTP is
// little: one request a connection, no body above 64 KiB, an answer, the end.
package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/socket"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// maxServed is how many are answered at a time, maxHeard how many more are
	// refused as too many. Later clients wait in the kernel.
	maxServed = 16
	maxHeard  = 16

	readPatience  = 5 * time.Second
	writePatience = 5 * time.Second
	// turnPatience is how long a client that is refused is still read: closing with an
	// unread request breaks the connection before the client has read the answer.
	turnPatience = 500 * time.Millisecond
	// sourcePatience is how long the source may take to begin an answer.
	sourcePatience = 2 * time.Second
	// endPatience is how long answers that end by themselves may take to when all
	// of it ends.
	endPatience = 80 * time.Millisecond
	// shortPause is between two attempts where there is no descriptor left.
	shortPause = 100 * time.Millisecond
)

// SocketName is the socket's name in the leader's directory.
const SocketName = "control"

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

	mu    sync.Mutex
	open  map[*os.File]struct{}
	ended sync.Once
}

// Listen answers on the socket NAME in a directory until [Server.Close]. The
// directory must be one that only this user can enter. A socket of that name is
// replaced: only the leader may listen.
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
	s.ended.Do(func() {
		close(s.closing)
		s.at.Close()
		all := make(chan struct{})
		go func() {
			s.all.Wait()
			close(all)
		}()
		select {
		case <-all:
		case <-time.After(endPatience):
		}
		s.cancel()
		s.mu.Lock()
		for c := range s.open {
			c.Close()
		}
		s.mu.Unlock()
		<-all
	})
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
	select {
	case <-s.closing:
		c.Close()
		return false
	default:
	}
	s.open[c] = struct{}{}
	turned := len(s.room) > maxServed
	s.all.Go(func() {
		s.answer(c, turned)
		c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
		<-s.room
	})
	return true
}

// write writes all of b, or gives the client up.
func (s *Server) write(c *os.File, b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(s.toWrite)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// answer is one connection, from its request to the last byte; turned says that there are too
// many.
func (s *Server) answer(c *os.File, turned bool) {
	method, p := s.heard(c, turned)
	if p == nil || s.write(c, p.whole(method)) != nil {
		return
	}
	socket.Finish(c)
	// What the client has still to say is read, that it may read the answer.
	if c.SetReadDeadline(time.Now().Add(turnPatience)) == nil {
		_, _ = io.CopyN(io.Discard, c, 2*maxBody)
	}
}

// heard reads the request and answers it, or says why not.
func (s *Server) heard(c *os.File, turned bool) (method string, p *problem) {
	defer func() {
		if r := recover(); r != nil {
			p = &problem{status: 500, Text: fmt.Sprintf("internal error: %v", r)}
		}
	}()
	pid, uid, err := socket.Peer(c)
	if err != nil || uid != 0 && uid != os.Geteuid() {
		return "", &problem{status: 403, Text: "this is another user's"}
	}
	patience := readPatience
	if turned {
		patience = turnPatience
	}
	if c.SetReadDeadline(time.Now().Add(patience)) != nil {
		return "", nil
	}
	q, err := readRequest(c)
	switch {
	case turned && !errors.Is(err, errGone):
		return q.method, &problem{status: 503, Text: fmt.Sprintf("%d are being answered already", maxServed), Hint: "ask again in a moment"}
	case errors.As(err, &p):
		return q.method, p
	case err != nil:
		return "", nil
	}
	name, command, p := route(q)
	if p == nil {
		command.By = pid
		p = s.serve(c, name, command)
	}
	return q.method, p
}

func (s *Server) serve(c *os.File, name string, command Command) *problem {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.all.Go(func() { untilGone(c, cancel) })
	switch name {
	case "status":
		st, release, p := ask(ctx, s, s.source.Status, func(*Status) {})
		if p != nil {
			return p
		}
		release()
		return s.status(c, st)
	case "events":
		return stream(ctx, c, s, s.source.Events, func(line []byte) ([]byte, error) { return line, nil })
	}
	do := func(ctx context.Context) (<-chan Result, error) { return s.source.Do(ctx, command) }
	return stream(ctx, c, s, do, func(r Result) ([]byte, error) {
		line, err := json.Marshal(r)
		return text.JSON(line), err
	})
}

// status writes the state. Lists are never null.
func (s *Server) status(c *os.File, st *Status) *problem {
	if st == nil {
		return &problem{status: 503, Text: "nothing has been read yet", Hint: "ask again in a moment"}
	}
	out := *st
	out.V = Version
	out.Ranks, out.Limits, out.Procs = some(out.Ranks), some(out.Limits), some(out.Procs)
	out.Rules, out.Last = some(out.Rules), some(out.Last)
	body, err := json.Marshal(&out)
	if err != nil {
		return &problem{status: 500, Text: "internal error: " + err.Error()}
	}
	body = append(text.JSON(body), '\n')
	_ = s.write(c, append(headOf(200, oneObject, len(body), ""), body...))
	return nil
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// stream passes on what comes by a channel of the source's, a line each, until it
// is closed or the client has gone.
func stream[T any](ctx context.Context, c *os.File, s *Server, open func(context.Context) (<-chan T, error), format func(T) ([]byte, error)) *problem {
	discard := func(ch <-chan T) {
		for range ch {
		}
	}
	ch, release, p := ask(ctx, s, open, discard)
	if p != nil {
		return p
	}
	// What the source still sends must find a taker, after this connection and this
	// server too.
	defer func() {
		go func() {
			discard(ch)
			release()
		}()
	}()
	if s.write(c, headOf(200, manyLines, -1, "")) != nil {
		return nil
	}
	for {
		select {
		case v, ok := <-ch:
			if !ok {
				return nil
			}
			line, err := format(v)
			if err != nil || s.write(c, append(line[:len(line):len(line)], '\n')) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// ask calls the source, which may never answer: there are no more calls at a time
// than connections that are served. release says that nothing comes of the call
// any more; late is given an answer that came after it.
func ask[T any](ctx context.Context, s *Server, call func(context.Context) (T, error), late func(T)) (T, func(), *problem) {
	type answer struct {
		v   T
		err error
	}
	var none T
	select {
	case s.calls <- struct{}{}:
	default:
		return none, nil, silent()
	}
	release := func() { <-s.calls }
	answered, left := make(chan answer), make(chan struct{})
	go func() {
		a := answer{}
		a.v, a.err = guarded(ctx, call)
		select {
		case answered <- a:
		case <-left:
			if a.err == nil {
				late(a.v)
			}
			release()
		}
	}()
	patience := time.NewTimer(s.toAsk)
	defer patience.Stop()
	select {
	case a := <-answered:
		if a.err != nil {
			release()
			return none, nil, refusal(a.err)
		}
		return a.v, release, nil
	case <-ctx.Done():
	case <-patience.C:
	}
	close(left)
	return none, nil, silent()
}

// guarded makes an error of a panic: the watcher must not end by a question.
func guarded[T any](ctx context.Context, call func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	return call(ctx)
}

func silent() *problem {
	return &problem{status: 503, Text: "the watcher does not answer", Hint: "ask again in a moment"}
}

func refusal(err error) *problem {
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return &problem{status: 409, Text: cmp.Or(refused.Detail, string(refused.Reason)), Hint: refused.Hint, Reason: refused.Reason}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return silent()
	case errors.Is(err, ErrEnded):
		return &problem{status: 410, Text: err.Error()}
	}
	return &problem{status: 500, Text: err.Error()}
}

// untilGone reads what the client says on, which is nothing, until it has gone or
// the connection is closed. One that has only said its last word, as nc does, is
// still there.
func untilGone(c *os.File, cancel func()) {
	if c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	_, err := io.CopyN(io.Discard, c, maxBody)
	if err != nil && !errors.Is(err, os.ErrClosed) && (!errors.Is(err, io.EOF) || socket.HungUp(c)) {
		cancel()
	}
}

// problem is why a request gets no good answer, and the body of the answer it gets.
type problem struct {
	status int
	allow  string // the methods there are, with 405

	V      int          `json:"v"`
	Text   string       `json:"error"`
	Hint   string       `json:"hint,omitempty"`
	Reason event.Reason `json:"reason,omitempty"` // with 409
}

func (p *problem) Error() string { return p.Text }

var statusText = map[int]string{
	200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
	408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 413: "Content Too Large",
	431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
}

const (
	oneObject = "application/json"
	manyLines = "application/x-ndjson"
)

// headOf is an answer up to its body. A length below 0 is not told: the body ends
// with the connection.
func headOf(status int, contentType string, length int, more string) []byte {
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\nConnection: close\r\n",
		status, statusText[status], time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), contentType)
	if length >= 0 {
		b = append(b, "Content-Length: "+strconv.Itoa(length)+"\r\n"...)
	}
	return append(b, more+"\r\n"...)
}

// whole is the answer with that problem; a HEAD request gets its head alone.
func (p *problem) whole(method string) []byte {
	p.V = Version
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // strings are always encoded
	}
	body = append(body, '\n')
	more := ""
	if p.allow != "" {
		more = "Allow: " + p.allow + "\r\n"
	}
	if p.status == 503 {
		more = "Retry-After: 1\r\n"
	}
	b := headOf(p.status, oneObject, len(body), more)
	if method == "HEAD" {
		return b
	}
	return append(b, body...)
}
