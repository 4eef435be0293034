package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/socket"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestClientAsks(t *testing.T) {
	s := serve(t, source{
		status: func(context.Context) (*Status, error) {
			return &Status{Node: "n1", Procs: make([]Proc, 3000), Gaps: rss.Gaps{}}, nil
		},
		do: func(ctx context.Context, c Command) (<-chan Result, error) {
			if c.Do == event.ActionTrim {
				return nil, &Refused{Reason: event.ReasonNothing, Detail: "no process has anything", Hint: "wait"}
			}
			return results(Result{PID: 5, OK: true}, Result{PID: 6, Reason: event.ReasonRecent}, Result{Done: true})(ctx, c)
		},
		events: func(context.Context) (<-chan []byte, error) {
			return closed([]byte(`{"seq":1}`), []byte(`{"seq":2}`))
		},
	})
	c := s.client()
	st, err := c.Status(t.Context())
	if err != nil || st.Node != "n1" || len(st.Procs) != 3000 {
		t.Fatalf("%+v, %v", st, err)
	}
	var got []Result
	for r, err := range c.Do(t.Context(), Command{Do: event.ActionRecycle, PIDs: []int{5, 6}}) {
		wardentest.NoError(t, err)
		got = append(got, r)
	}
	if len(got) != 3 || got[1].Reason != event.ReasonRecent || !got[2].Done {
		t.Errorf("%+v", got)
	}
	for range c.Do(t.Context(), Command{Do: event.ActionRecycle}) {
		break // who stops reading gets no more
	}
	for _, err := range c.Do(t.Context(), Command{Do: event.ActionTrim}) {
		var refused *Refused
		if !errors.As(err, &refused) || refused.Reason != event.ReasonNothing || refused.Detail != "no process has anything" || refused.Hint != "wait" {
			t.Errorf("%v", err)
		}
	}
	for _, cmd := range []Command{{Do: event.ActionStop}, {Do: event.ActionRecycle, PIDs: []int{}}} {
		for r, err := range c.Do(t.Context(), cmd) {
			if err == nil {
				t.Errorf("%+v came to %+v", cmd, r)
			}
		}
	}
	if lines, err := follow(t.Context(), c); err != nil || strings.Join(lines, " ") != `{"seq":1} {"seq":2}` {
		t.Errorf("%q, %v", lines, err)
	}
}

// follow collects the lines of the event stream until it ends.
func follow(ctx context.Context, c *Client) (all []string, err error) {
	err = c.ask(ctx, "GET", "events", nil, func(conn *os.File, r io.Reader) error {
		return lines(ctx, conn, r, func(line []byte) (bool, error) {
			all = append(all, string(line))
			return true, nil
		})
	})
	return all, err
}

// TestCutAnswer: results without a last line are an error, and a context ends the
// waiting.
func TestCutAnswer(t *testing.T) {
	s := serve(t, source{
		do: results(Result{PID: 5, OK: true}),
		events: func(ctx context.Context) (<-chan []byte, error) {
			return until[[]byte](ctx, func() {})
		},
	})
	c := s.client()
	var last error
	n := 0
	for _, err := range c.Do(t.Context(), Command{Do: event.ActionRecycle}) {
		n, last = n+1, err
	}
	if n != 2 || !errors.Is(last, ErrSilent) || !errors.Is(last, ErrCut) {
		t.Errorf("%d results, %v", n, last)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := follow(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// TestWhyNoAnswer: an error tells what the user can do.
func TestWhyNoAnswer(t *testing.T) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, SocketName)
	for _, p := range []string{dir, filepath.Join(dir, "no", "such"), filepath.Join(path, "x")} {
		if _, err := Dial(p); !errors.Is(err, ErrNoLeader) {
			t.Errorf("without a socket, %s: %v", p, err)
		}
	}
	f, err := os.Open(dir)
	wardentest.NoError(t, err)
	defer f.Close()
	b, err := socket.Listen(f, SocketName, 1) // listens and accepts no connection, like a stopped process
	wardentest.NoError(t, err)
	stopped, err := Dial(dir)
	wardentest.NoError(t, err)
	defer stopped.Close()
	stopped.patience = 50 * time.Millisecond
	for i := range 4 { // from the third on no connection is possible
		if _, err := stopped.Status(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("try %d: %v", i, err)
		}
	}
	if stopped.Leader() != os.Getpid() {
		t.Errorf("%d does not answer, want %d", stopped.Leader(), os.Getpid())
	}
	// As one that was killed: the file stays.
	wardentest.NoError(t, os.Rename(path, path+".kept"))
	b.Close()
	wardentest.NoError(t, os.Rename(path+".kept", path))
	if _, err := stopped.Status(t.Context()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("behind a dead leader: %v", err)
	}

	wardentest.NoError(t, os.Chmod(dir, 0o770))
	if _, err := Dial(dir); !errors.Is(err, ErrForeign) {
		t.Errorf("in a directory that others can write: %v", err)
	}
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	if os.Geteuid() == 0 {
		wardentest.NoError(t, os.Lchown(path, 65534, 65534))
		if _, err := Dial(dir); !errors.Is(err, ErrForeign) {
			t.Errorf("a socket of another user's: %v", err)
		}
	}
	other := t.TempDir()
	wardentest.NoError(t, os.WriteFile(filepath.Join(other, SocketName), nil, 0o600))
	if _, err := Dial(other); !errors.Is(err, ErrForeign) {
		t.Errorf("a file that is no socket: %v", err)
	}
	link := filepath.Join(other, "link")
	wardentest.NoError(t, os.Symlink(dir, link))
	if _, err := Dial(link); !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNoLeader) {
		t.Errorf("a link was followed: %v", err)
	}
}

// answered is what a leader says that sends this body.
func answered(t *testing.T, head, body string) (*Status, error) {
	t.Helper()
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	f, err := os.Open(dir)
	wardentest.NoError(t, err)
	defer f.Close()
	at, err := socket.Listen(f, SocketName, 1)
	wardentest.NoError(t, err)
	defer at.Close()
	go func() {
		c, err := at.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1<<10))
		_, _ = c.WriteString(head + body)
	}()
	client, err := Dial(dir)
	wardentest.NoError(t, err)
	defer client.Close()
	return client.Status(t.Context())
}

// TestOtherVersion: an answer in another version is none that is understood, and a
// leader that ends meanwhile is distinguished from one that is stuck.
func TestOtherVersion(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n\r\n"
	for _, body := range []string{`{"v":77,"version":"9.9"}`, `{}`, `{"v":2,"node":"n1"}`} {
		var other *VersionError
		if st, err := answered(t, head, body); !errors.As(err, &other) || st != nil {
			t.Errorf("%s: %+v, %v", body, st, err)
		}
	}
	if st, err := answered(t, head, `{"v":1,"node":"n1","more":[]}`); err != nil || st.Node != "n1" {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := answered(t, "", ""); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrSilent) {
		t.Errorf("%v", err)
	}
	ends := serve(t, source{status: func(context.Context) (*Status, error) { return nil, ErrEnded }})
	if _, err := ends.client().Status(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestForeignListener: who listens counts, not who owns the file.
func TestForeignListener(t *testing.T) {
	s := serve(t, source{status: func(context.Context) (*Status, error) { return &Status{}, nil }})
	c := s.client()
	c.uid = 1234 // the expected owner of the socket
	_, err := c.Status(t.Context())
	if os.Geteuid() == 0 && err != nil || os.Geteuid() != 0 && !errors.Is(err, ErrForeign) {
		t.Errorf("%v", err)
	}
}

// FuzzAnswer: whatever listens there, a client gets an error or an answer.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 409 Conflict\r\n\r\n{\"error\":\"no\",\"reason\":\"no worker\"}"))
	f.Add([]byte("SSH-2.0-OpenSSH\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReader(strings.NewReader(string(b)))
		status, length, err := readAnswer(r)
		if err != nil {
			return
		}
		if status < 200 || status > 999 || length < -1 {
			t.Errorf("%d, %d", status, length)
		}
		if status != 200 && badAnswer(status, r) == nil {
			t.Error("no error")
		}
	})
}

// FuzzRequest: whatever comes is a request within its bounds or an error that has
// an answer, however it is cut into pieces.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(get("GET", "/v1/status")))
	f.Add([]byte(post("/v1/recycle", `{"pids":[4711],"ranks":[0]}`)))
	f.Add([]byte("POST http://x/v1/checkpoint HTTP/1.0\nExpect: 100-continue\nContent-Length: 17\n\n{\"signal\":\"USR1\"}"))
	f.Add([]byte("\r\n\r\nGET /v9/status HTTP/1.1\r\nHost: x\r\nContent-Length: 00\r\n\r\n"))
	f.Add([]byte("POST /v1/gc HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Add([]byte("GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := readRequest(strings.NewReader(string(b)))
		slow, slowErr := readRequest(iotest.OneByteReader(strings.NewReader(string(b))))
		if (err == nil) != (slowErr == nil) || err == nil && (q.path != slow.path || q.method != slow.method || !slices.Equal(q.body, slow.body)) {
			t.Errorf("at once %+v, %v; a byte at a time %+v, %v", q, err, slow, slowErr)
		}
		var p *problem
		switch {
		case err == nil:
			if len(q.body) > maxBody || !strings.HasPrefix(q.path, "/") {
				t.Errorf("%+v", q)
			}
			name, c, bad := route(q)
			if p = bad; bad == nil && name != "status" && name != "events" && c.Do.Row().Command == "" {
				t.Errorf("nothing is asked for: %+v", q)
			}
		case errors.As(err, &p):
		case !errors.Is(err, errGone):
			t.Errorf("%v", err)
		}
		if p != nil && (statusText[p.status] == "" || p.Text == "" || !strings.HasPrefix(string(p.whole("GET")), "HTTP/1.1 ")) {
			t.Errorf("%+v", p)
		}
	})
}
