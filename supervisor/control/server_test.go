package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/socket"
)

func TestStatusAnswer(t *testing.T) {
	s := serve(t, source{status: func(context.Context) (*Status, error) {
		return &Status{Node: "n1", Job: "46", Ranks: []Rank{{Task: 0, PID: 4711}}}, nil
	}})
	said := s.say(get("GET", "/v1/status"))
	headers, body, _ := strings.Cut(said, "\r\n\r\n")
	for _, want := range []string{"HTTP/1.1 200 OK\r\n", "\r\nConnection: close", "\r\nContent-Type: application/json", fmt.Sprintf("\r\nContent-Length: %d", len(body))} {
		if !strings.Contains(headers, want) {
			t.Errorf("no %q in %q", want, headers)
		}
	}
	// A program in another language must not meet null where a list is.
	for _, want := range []string{`"v":1`, `"node":"n1"`, `"pid":4711`, `"limits":[]`, `"procs":[]`, `"rules":[]`, `"last":[]`, `"action":null`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	// Absolute paths, and HTTP/1.0 without Host, as RFC 9112 has them.
	for _, q := range []string{get("GET", "http://rsswarden/v1/status"), "GET /v1/status HTTP/1.0\r\n\r\n", "\r\nGET /v1/status HTTP/1.1\nHost: x\n\n"} {
		if said := s.say(q); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
			t.Errorf("%q: %s", q, said)
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := serve(t, source{do: func(_ context.Context, c Command) (<-chan Result, error) {
		if len(c.Ranks) > 0 {
			return nil, &Refused{Reason: event.ReasonNoWorker, Detail: "rank 3 has no worker"}
		}
		return nil, errUnexpected
	}, status: func(context.Context) (*Status, error) { panic("oh") }})
	const host = "Host: rsswarden\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		says    string // in the body
	}{
		"no HTTP":             {"hello\r\n\r\n", 400, "not that of an HTTP/1.1 request"},
		"binary":              {"\x16\x03\x01\x02\x00\x01\x00\n\n", 400, "control character"},
		"HTTP/2":              {"PRI * HTTP/2.0\r\n\r\n", 505, "HTTP/2.0"},
		"no version":          {"GET /v1/status\r\n\r\n", 400, ""},
		"no host":             {"GET /v1/status HTTP/1.1\r\n\r\n", 400, "one Host"},
		"two hosts":           {"GET /v1/status HTTP/1.1\r\n" + host + host + "\r\n", 400, "one Host"},
		"folded header":       {"GET /v1/status HTTP/1.1\r\n" + host + " folded\r\n\r\n", 400, "header line"},
		"space before colon":  {"GET /v1/status HTTP/1.1\r\nHost : x\r\n\r\n", 400, "header line"},
		"carriage return":     {"GET /v1/status HTTP/1.1\r\nHost: x\ry\r\n\r\n", 400, "control character"},
		"parameters":          {get("POST", "/v1/trim?pid=5"), 400, "no parameters"},
		"another version":     {get("GET", "/v2/status"), 404, "the only version is v1"},
		"no such path":        {get("GET", "/v1/nothing"), 404, "/v1/recycle"},
		"the root":            {get("GET", "/"), 404, ""},
		"a longer path":       {get("GET", "/v1/status/x"), 404, ""},
		"wrong method":        {get("GET", "/v1/recycle"), 405, "POST"},
		"delete":              {get("DELETE", "/v1/status"), 405, "GET"},
		"chunked":             {"POST /v1/gc HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411, "Content-Length"},
		"huge body":           {"POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 65537\r\n\r\n", 413, ""},
		"absurd length":       {"POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999999\r\n\r\n", 413, ""},
		"negative length":     {"POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400, "Content-Length"},
		"two lengths":         {"POST /v1/gc HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, "Content-Length"},
		"long line":           {"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\n\r\n", 431, "8 KiB"},
		"long head":           {"GET /v1/status HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 9000) + "\r\n\r\n", 431, "8 KiB"},
		"many headers":        {"GET /v1/status HTTP/1.1\r\n" + host + strings.Repeat("X: y\r\n", 64) + "\r\n", 431, "64 header lines"},
		"other expectation":   {"POST /v1/gc HTTP/1.1\r\n" + host + "Expect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417, ""},
		"body of a GET":       {"GET /v1/status HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 400, "no body"},
		"unknown field":       {post("/v1/recycle", `{"pid":[5]}`), 400, `unknown field \"pid\"`},
		"no object":           {post("/v1/recycle", `[5]`), 400, "no JSON object"},
		"null":                {post("/v1/recycle", `null`), 400, "no JSON object"},
		"no JSON":             {post("/v1/recycle", `{pids:5}`), 400, ""},
		"a field of null":     {post("/v1/recycle", `{"pids":null}`), 400, "empty list"},
		"nobody":              {post("/v1/recycle", `{"pids":[]}`), 400, "leave it out for everybody"},
		"no rank":             {post("/v1/recycle", `{"ranks":[-1]}`), 400, "below 0"},
		"no PID":              {post("/v1/recycle", `{"pids":[0]}`), 400, "above 0"},
		"a number":            {post("/v1/recycle", `{"pids":5}`), 400, ""},
		"two bodies":          {post("/v1/recycle", `{}{}`), 400, "behind"},
		"a signal to recycle": {post("/v1/recycle", `{"signal":"USR1"}`), 400, "checkpoint alone"},
		"refused":             {post("/v1/recycle", `{"ranks":[3]}`), 409, `"reason":"no worker"`},
		"the source fails":    {post("/v1/recycle", ``), 500, errUnexpected.Error()},
		"the source panics":   {get("GET", "/v1/status"), 500, "internal error: oh"},
	} {
		t.Run(name, func(t *testing.T) {
			said := (&stand{s.Server, t, s.dir}).say(c.request)
			headers, body, _ := strings.Cut(said, "\r\n\r\n")
			if want := fmt.Sprintf("HTTP/1.1 %d %s\r\n", c.status, statusText[c.status]); !strings.HasPrefix(headers, want) {
				t.Errorf("not %q: %s", want, said)
			}
			if (c.status == 405) != strings.Contains(headers, "\r\nAllow: ") {
				t.Errorf("Allow goes with 405: %q", headers)
			}
			var f failure
			if err := json.Unmarshal([]byte(body), &f); err != nil || f.V != 1 || f.Error == "" || !strings.Contains(body, c.says) {
				t.Errorf("%s (%v) does not say %q", body, err, c.says)
			}
		})
	}
	if said := s.say(get("HEAD", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 405 ") || !strings.HasSuffix(said, "\r\n\r\n") {
		t.Errorf("HEAD was answered by %q", said)
	}
	// Who closes without a word gets none.
	c := s.connect()
	socket.Finish(c)
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	c = s.connect()
	if _, err := io.WriteString(c, "GET /v1/sta"); err != nil {
		t.Fatal(err)
	}
	socket.Finish(c)
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSlowRequest: who does not say what is wanted is told so after 5 s.
func TestSlowRequest(t *testing.T) {
	s := serve(t, source{})
	if said := s.say("GET /v1/status HTT"); !strings.HasPrefix(said, "HTTP/1.1 408 ") {
		t.Errorf("%q", said)
	}
}

func TestContinue(t *testing.T) {
	s := serve(t, source{do: results(Result{Done: true, OK: true})})
	c := s.connect()
	if _, err := io.WriteString(c, "POST /v1/gc HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	const told = "HTTP/1.1 100 Continue\r\n\r\n"
	b := make([]byte, len(told))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != told {
		t.Fatalf("%q, %v", b, err)
	}
	if said := hear(t, c, "{}"); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
		t.Errorf("%q", said)
	}
}

// TestCommandAnswer: what is asked for arrives as it was written, with who asked.
func TestCommandAnswer(t *testing.T) {
	var got Command
	s := serve(t, source{do: func(ctx context.Context, c Command) (<-chan Result, error) {
		got = c
		return results(Result{PID: 5, Task: 1, OK: true, Freed: 7}, Result{Task: -1, OK: true, Done: true})(ctx, c)
	}})
	said := s.say(post("/v1/checkpoint", `{"pids":[5],"ranks":[1],"signal":"USR1"}`))
	_, body, _ := strings.Cut(said, "\r\n\r\n")
	if want := `{"pid":5,"task":1,"ok":true,"freed_bytes":7}` + "\n" + `{"task":-1,"ok":true,"done":true}` + "\n"; body != want {
		t.Errorf("%s, not %s", body, want)
	}
	if !strings.Contains(said, "Content-Type: application/x-ndjson") {
		t.Error(said)
	}
	if got.Do != event.ActionSignal || !slices.Equal(got.PIDs, []int{5}) || !slices.Equal(got.Ranks, []int{1}) || got.Signal != "USR1" || got.By != os.Getpid() {
		t.Errorf("%+v", got)
	}
	for path, want := range map[string]event.Action{"/v1/recycle": event.ActionRecycle, "/v1/trim": event.ActionTrim, "/v1/gc": event.ActionGC} {
		if s.say(get("POST", path)); got.Do != want || got.PIDs != nil || got.Ranks != nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// TestOthersAreTurnedAway: not even where the file modes would let them.
func TestOthersAreTurnedAway(t *testing.T) {
	dir := t.TempDir()
	s := serveIn(t, dir, source{})
	if said := runStranger(t, dir); !strings.Contains(said, "connect: permission denied") || !strings.Contains(said, "true\n") {
		t.Errorf("with mode 0600 another user was told %s", said)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, SocketName), 0o666); err != nil {
		t.Fatal(err)
	}
	said := runStranger(t, dir)
	if !strings.HasPrefix(said, "HTTP/1.1 403 ") || !strings.Contains(said, `"error":"this is another user's"`) {
		t.Errorf("another user was told %s", said)
	}
	if !strings.HasSuffix(said, "it belongs to somebody else true\n") {
		t.Errorf("Dial of another user's socket said %s", said)
	}
	_ = s
}

// TestClose: what is there is written, then all ends and the socket is gone.
func TestClose(t *testing.T) {
	began := make(chan struct{})
	lines := make(chan []byte) // a line is sent once the answer has begun
	s := serve(t, source{
		events: func(context.Context) (<-chan []byte, error) { return lines, nil },
		do: func(ctx context.Context, _ Command) (<-chan Result, error) {
			ch := make(chan Result)
			context.AfterFunc(ctx, func() { close(ch) })
			close(began)
			return ch, nil
		},
	})
	stuck, silent, events := s.connect(), s.connect(), s.connect()
	if _, err := io.WriteString(stuck, get("POST", "/v1/recycle")); err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := io.WriteString(events, get("GET", "/v1/events")); err != nil {
		t.Fatal(err)
	}
	lines <- []byte(`{"event":"exit"}`)
	close(lines)
	begun := time.Now()
	s.Close()
	if d := time.Since(begun); d > time.Second {
		t.Errorf("the end took %v", d)
	}
	s.Close() // once more harms nobody
	if _, err := os.Lstat(filepath.Join(s.dir, SocketName)); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if b, err := io.ReadAll(events); err != nil || !strings.HasSuffix(string(b), "\r\n\r\n"+`{"event":"exit"}`+"\n") {
		t.Errorf("the last line is lost: %q, %v", b, err)
	}
	for _, c := range []*os.File{stuck, silent} {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is still open")
		}
	}
	if _, err := connectIn(s.dir); err == nil {
		t.Error("somebody still listens")
	}
}

// TestSocketFile: of mode 0600 whatever the umask is, in a directory of any depth;
// only a socket is replaced, and only one's own removed.
func TestSocketFile(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o777} {
		old := unix.Umask(mask)
		dir, err := os.MkdirTemp(t.TempDir(), "x")
		if err == nil {
			err = os.Chmod(dir, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		serveIn(t, dir, source{})
		unix.Umask(old)
		info, err := os.Lstat(filepath.Join(dir, SocketName))
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("umask %#o: %v, %v", mask, info.Mode(), err)
		}
	}

	deep := t.TempDir()
	for range 12 {
		deep = filepath.Join(deep, "a-directory-with-a-long-name")
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	src := source{status: func(context.Context) (*Status, error) { return &Status{Node: "deep"}, nil }}
	first := serveIn(t, deep, src)
	if st, err := first.client().Status(t.Context()); err != nil || st.Node != "deep" {
		t.Errorf("%v, %v", st, err)
	}
	second := serveIn(t, deep, src) // a leader that takes over
	first.Close()
	if st, err := second.client().Status(t.Context()); err != nil || st.Node != "deep" {
		t.Errorf("the end of the old leader took the new one's socket along: %v, %v", st, err)
	}

	for name, make := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink(filepath.Join(t.TempDir(), "aim"), path) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, SocketName)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := Listen(f, SocketName, source{}); err == nil {
			s.Close()
			t.Errorf("%s was replaced", name)
		}
		f.Close()
	}
}
