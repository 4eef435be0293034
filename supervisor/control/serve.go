package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/socket"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// answer is one connection, from its request to the last byte.
func (s *Server) answer(c *os.File, turned bool) {
	method := "GET"
	p := s.heard(c, turned, &method)
	if p == nil {
		return
	}
	if s.write(c, p.whole(method)) == nil {
		socket.Finish(c)
		s.drain(c)
	}
}

// heard reads the request and answers it, or says why not.
func (s *Server) heard(c *os.File, turned bool, method *string) (p *problem) {
	defer func() {
		if r := recover(); r != nil {
			p = &problem{status: 500, text: fmt.Sprintf("internal error: %v", r)}
		}
	}()
	pid, uid, err := socket.Peer(c)
	if err != nil || uid != 0 && uid != os.Geteuid() {
		return &problem{status: 403, text: "this is another user's"}
	}
	patience := readPatience
	if turned {
		patience = turnPatience
	}
	if s.allow(c.SetReadDeadline, patience) != nil {
		return nil
	}
	q, err := readRequest(c, func() error { return s.write(c, []byte("HTTP/1.1 100 Continue\r\n\r\n")) })
	if q.method != "" {
		*method = q.method
	}
	switch {
	case turned && !errors.Is(err, errGone):
		return &problem{status: 503, text: fmt.Sprintf("%d are being answered already", maxServed), hint: "ask again in a moment"}
	case errors.As(err, &p):
		return p
	case err != nil:
		return nil
	}
	a, p := route(q)
	if p != nil {
		return p
	}
	a.command.By = pid
	return s.serve(c, a)
}

// drain reads what the client has still to say, that it may read the answer.
func (s *Server) drain(c *os.File) {
	if s.allow(c.SetReadDeadline, turnPatience) == nil {
		_, _ = io.CopyN(io.Discard, c, 2*maxBody)
	}
}

// serve asks the source and passes on what it says.
func (s *Server) serve(c *os.File, a asked) *problem {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.all.Go(func() { s.untilGone(c, cancel) })
	switch {
	case a.status:
		st, release, p := ask(ctx, s, s.source.Status, func(*Status) {})
		if p != nil {
			return p
		}
		release()
		return s.status(c, st)
	case a.events:
		return stream(ctx, c, s, s.source.Events, func(line []byte) ([]byte, error) { return line, nil })
	}
	do := func(ctx context.Context) (<-chan Result, error) { return s.source.Do(ctx, a.command) }
	return stream(ctx, c, s, do, func(r Result) ([]byte, error) {
		line, err := json.Marshal(r)
		return text.JSON(line), err
	})
}

// status writes what stands. Lists are never null.
func (s *Server) status(c *os.File, st *Status) *problem {
	if st == nil {
		return &problem{status: 503, text: "nothing has been read yet", hint: "ask again in a moment"}
	}
	out := *st
	out.V = Version
	out.Ranks, out.Limits, out.Procs = some(out.Ranks), some(out.Limits), some(out.Procs)
	out.Rules, out.Last = some(out.Rules), some(out.Last)
	body, err := json.Marshal(&out)
	if err != nil {
		return &problem{status: 500, text: "internal error: " + err.Error()}
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
// any more; late is given what came when nobody waited for it.
func ask[T any](ctx context.Context, s *Server, call func(context.Context) (T, error), late func(T)) (T, func(), *problem) {
	type answer struct {
		v   T
		err error
	}
	silent := &problem{status: 503, text: "the watcher does not answer", hint: "ask again in a moment"}
	var none T
	select {
	case s.calls <- struct{}{}:
	default:
		return none, nil, silent
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
	return none, nil, silent
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

// refusal is what an error of the source comes to.
func refusal(err error) *problem {
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		text := refused.Detail
		if text == "" {
			text = string(refused.Reason)
		}
		return &problem{status: 409, text: text, hint: refused.Hint, reason: refused.Reason}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{status: 503, text: "the watcher does not answer", hint: "ask again in a moment"}
	}
	return &problem{status: 500, text: err.Error()}
}

// untilGone reads what the client says on, which is nothing, until it has gone or
// the connection is closed. One that has only said its last word, as nc does, is
// still there.
func (s *Server) untilGone(c *os.File, cancel func()) {
	if s.allow(c.SetReadDeadline, 0) != nil {
		return
	}
	_, err := io.CopyN(io.Discard, c, maxBody)
	if errors.Is(err, io.EOF) && !socket.HungUp(c) {
		return
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		cancel()
	}
}
