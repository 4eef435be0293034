package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/socket"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
	// HTTP/1.0, and line breaks as RFC 9112 tolerates them.
	for _, q := range []string{"GET /v1/status HTTP/1.0\r\n\r\n", "\r\nGET /v1/status HTTP/1.1\nHost: x\n\n"} {
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
		"HTTP/2":              {"PRI * HTTP/2.0\r\n\r\n", 400, ""},
		"no version":          {"GET /v1/status\r\n\r\n", 400, ""},
		"folded header":       {"GET /v1/status HTTP/1.1\r\n" + host + " folded\r\n\r\n", 400, "header line"},
		"space before colon":  {"GET /v1/status HTTP/1.1\r\nHost : x\r\n\r\n", 400, "header line"},
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
		"body of a GET":       {"GET /v1/status HTTP/1.1\r\n" + host + "Content-Length: 2\r\n\r\n{}", 400, "no body"},
		"unknown field":       {post("/v1/recycle", `{"pid":[5]}`), 400, `unknown field \"pid\"`},
		"no object":           {post("/v1/recycle", `[5]`), 400, "no JSON object"},
		"null":                {post("/v1/recycle", `null`), 400, "no JSON object"},
		"no JSON":             {post("/v1/recycle", `{pids:5}`), 400, ""},
		"a field of null":     {post("/v1/recycle", `{"pids":null}`), 400, "empty list"},
		"an empty list":       {post("/v1/recycle", `{"pids":[]}`), 400, "leave it out for all"},
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
			var f problem
			if err := json.Unmarshal([]byte(body), &f); err != nil || f.V != 1 || f.Text == "" || !strings.Contains(body, c.says) {
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
	c = s.send("GET /v1/sta")
	socket.Finish(c)
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSlowRequest: a client that sends no whole request gets an error after 5 s.
func TestSlowRequest(t *testing.T) {
	s := serve(t, source{})
	if said := s.say("GET /v1/status HTT"); !strings.HasPrefix(said, "HTTP/1.1 408 ") {
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
		wardentest.NoError(t, os.Chmod(d, 0o755))
	}
	wardentest.NoError(t, os.Chmod(filepath.Join(dir, SocketName), 0o666))
	said := runStranger(t, dir)
	if !strings.HasPrefix(said, "HTTP/1.1 403 ") || !strings.Contains(said, `"error":"this is another user's"`) {
		t.Errorf("another user was told %s", said)
	}
	if !strings.HasSuffix(said, "it belongs to another user true\n") {
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
			close(began)
			return until[Result](ctx, func() {})
		},
	})
	stuck, silent := s.send(get("POST", "/v1/recycle")), s.connect()
	<-began
	events := s.send(get("GET", "/v1/events"))
	lines <- []byte(`{"event":"exit"}`)
	close(lines)
	begun := time.Now()
	s.Close()
	if d := time.Since(begun); d > time.Second {
		t.Errorf("the end took %v", d)
	}
	s.Close() // a second call does nothing
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
		t.Error("the socket still listens")
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
		wardentest.NoError(t, err)
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
	wardentest.NoError(t, os.MkdirAll(deep, 0o700))
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
		wardentest.NoError(t, make(filepath.Join(dir, SocketName)))
		f, err := os.Open(dir)
		wardentest.NoError(t, err)
		if s, err := Listen(f, SocketName, source{}); err == nil {
			s.Close()
			t.Errorf("%s was replaced", name)
		}
		f.Close()
	}
}

// as is what the test binary does when it is a client of another user's.
const as = "RSSWARDEN_TEST_CLIENT"

func TestMain(m *testing.M) {
	if path := os.Getenv(as); path != "" {
		os.Exit(stranger(path))
	}
	os.Exit(m.Run())
}

// source answers by functions; one that is nil fails the test by an error.
type source struct {
	status func(context.Context) (*Status, error)
	do     func(context.Context, Command) (<-chan Result, error)
	events func(context.Context) (<-chan []byte, error)
}

var errUnexpected = errors.New("this was not to be asked for")

func (s source) Status(ctx context.Context) (*Status, error) {
	if s.status == nil {
		return nil, errUnexpected
	}
	return s.status(ctx)
}

func (s source) Do(ctx context.Context, c Command) (<-chan Result, error) {
	if s.do == nil {
		return nil, errUnexpected
	}
	return s.do(ctx, c)
}

func (s source) Events(ctx context.Context) (<-chan []byte, error) {
	if s.events == nil {
		return nil, errUnexpected
	}
	return s.events(ctx)
}

// closed is a channel with these in it and no more.
func closed[T any](all ...T) (<-chan T, error) {
	ch := make(chan T, len(all))
	for _, v := range all {
		ch <- v
	}
	close(ch)
	return ch, nil
}

// until is a channel that nothing comes of, and that is closed when ctx ends.
func until[T any](ctx context.Context, end func()) (<-chan T, error) {
	ch := make(chan T)
	context.AfterFunc(ctx, func() {
		end()
		close(ch)
	})
	return ch, nil
}

// results is a command that comes to these at once.
func results(all ...Result) func(context.Context, Command) (<-chan Result, error) {
	return func(context.Context, Command) (<-chan Result, error) { return closed(all...) }
}

// ourGoroutines are the stacks that have a function of this package that
// is not a test's.
func ourGoroutines() string {
	buf := make([]byte, 1<<20)
	var ours []string
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "control.(*Server)") || strings.Contains(g, "control.ask[") || strings.Contains(g, "control.stream[") || strings.Contains(g, "control.(*Client)") {
			ours = append(ours, g)
		}
	}
	return strings.Join(ours, "\n\n")
}

// looked are the tests at whose end goroutines are looked for.
var looked sync.Map

type stand struct {
	*Server
	t   *testing.T
	dir string
}

// serve starts a server, and makes sure at the end that nothing is left of it.
func serve(t *testing.T, src source, change ...func(*Server)) *stand {
	t.Helper()
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	return serveIn(t, dir, src, change...)
}

func serveIn(t *testing.T, dir string, src source, change ...func(*Server)) *stand {
	t.Helper()
	f, err := os.Open(dir)
	wardentest.NoError(t, err)
	defer f.Close()
	s, err := Listen(f, SocketName, src)
	wardentest.NoError(t, err)
	for _, c := range change {
		c(s)
	}
	if _, twice := looked.LoadOrStore(t, true); !twice {
		t.Cleanup(func() { wardentest.Until(t, "no goroutine left", func() bool { return ourGoroutines() == "" }) })
	}
	t.Cleanup(s.Close)
	return &stand{s, t, dir}
}

// connect is a client of nothing but bytes.
func (s *stand) connect() *os.File {
	s.t.Helper()
	c, err := connectIn(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func connectIn(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for {
		if c, err := socket.Dial(f, SocketName); !errors.Is(err, unix.EAGAIN) {
			return c, err
		}
	}
}

// send is a client that has written a request.
func (s *stand) send(request string) *os.File {
	s.t.Helper()
	c := s.connect()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := io.WriteString(c, request)
	wardentest.NoError(s.t, err)
	return c
}

// say writes a request and returns all that is answered.
func (s *stand) say(request string) string {
	s.t.Helper()
	c := s.send(request)
	defer c.Close()
	b, err := io.ReadAll(c)
	wardentest.NoError(s.t, err)
	return string(b)
}

// get is a request without a body.
func get(method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: rsswarden\r\n\r\n"
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: rsswarden\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func (s *stand) client() *Client {
	s.t.Helper()
	c, err := Dial(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// runStranger runs this binary as another user's client of the socket in dir.
func runStranger(t *testing.T, dir string) string {
	t.Helper()
	wardentest.NeedRoot(t, "needs root, to become another user")
	exe := filepath.Join(t.TempDir(), "client")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(exe, b, 0o755)
	}
	wardentest.NoError(t, err)
	for d := filepath.Dir(exe); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		wardentest.NoError(t, os.Chmod(d, 0o755))
	}
	cmd := exec.Command(exe)
	cmd.Env = []string{as + "=" + dir}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	return out.String()
}

// stranger prints what a client gets, by its own means and by Dial.
func stranger(dir string) int {
	c, err := connectIn(dir)
	if err != nil {
		fmt.Println("connect:", err)
	} else {
		_, _ = io.WriteString(c, get("GET", "/v1/status"))
		b, _ := io.ReadAll(c)
		fmt.Printf("%s\n", b)
	}
	_, err = Dial(dir)
	fmt.Println("dial:", err, errors.Is(err, ErrForeign))
	return 0
}

// TestTooMany: the seventeenth client is refused, and one that asks when there is room
// again gets an answer.
func TestTooMany(t *testing.T) {
	var open atomic.Int32
	s := serve(t, source{
		events: func(ctx context.Context) (<-chan []byte, error) {
			open.Add(1)
			return until[[]byte](ctx, func() { open.Add(-1) })
		},
		status: func(context.Context) (*Status, error) { return &Status{}, nil },
	})
	var all []*os.File
	for range maxServed {
		c := s.send(get("GET", "/v1/events"))
		all = append(all, c)
	}
	wardentest.Until(t, "all are served", func() bool { return open.Load() == maxServed })
	for range 2 * maxHeard {
		if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(said, "Retry-After: 1\r\n") {
			t.Fatalf("%q", said)
		}
	}
	// Silent clients do not hold others up for long.
	for range maxHeard + 4 {
		s.connect()
	}
	if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 503 ") {
		t.Errorf("%q", said)
	}
	all[3].Close()
	wardentest.Until(t, "there is room again", func() bool { return strings.HasPrefix(s.say(get("GET", "/v1/status")), "HTTP/1.1 200 ") })
	if n := open.Load(); n != maxServed-1 {
		t.Errorf("%d streams are open", n)
	}
}

// TestClientLeaves: the source learns of it, and what it still sends is taken. A
// client that has only ended its request, as nc does, has not left.
func TestClientLeaves(t *testing.T) {
	for _, answered := range []bool{true, false} {
		called, over := make(chan context.Context, 1), make(chan struct{})
		s := serve(t, source{do: func(ctx context.Context, _ Command) (<-chan Result, error) {
			ch := make(chan Result)
			go func() {
				defer close(over)
				defer close(ch)
				if answered {
					ch <- Result{PID: 1}
				}
				<-ctx.Done()
				for range 100 { // of what had begun
					ch <- Result{PID: 2}
				}
			}()
			called <- ctx
			return ch, nil
		}})
		c := s.send(get("POST", "/v1/recycle"))
		ctx := <-called
		if answered {
			socket.Finish(c)
			said := ""
			for b := make([]byte, 1<<10); !strings.Contains(said, `"pid":1`); {
				n, err := c.Read(b)
				wardentest.NoError(t, err)
				said += string(b[:n])
			}
			if ctx.Err() != nil {
				t.Fatal("a client that ended its request was taken for gone")
			}
		}
		c.Close()
		if answered {
			s.Close() // what comes after that is taken too
		}
		within(t, over, "the source is stuck")
	}
}

// within waits for the end of something.
func within(t *testing.T, end <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-end:
	case <-time.After(10 * time.Second):
		t.Error(why)
	}
}

// TestSlowClient: a client that does not read loses the connection, and no other waits.
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
	s.send(get("GET", "/v1/events")) // which is not read
	for range 20 {
		if said := s.say(get("GET", "/v1/status")); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
			t.Fatal(said)
		}
	}
	within(t, dropped, "a client that reads nothing is still served")
}

// TestSilentSource: a watcher that hangs gives an error, and neither gathers callers
// nor holds up the end.
func TestSilentSource(t *testing.T) {
	hang := make(chan struct{})
	var calls atomic.Int32
	s := serve(t, source{
		status: func(context.Context) (*Status, error) { calls.Add(1); <-hang; return &Status{}, nil },
		events: func(context.Context) (<-chan []byte, error) {
			calls.Add(1)
			<-hang
			return closed([]byte("late"))
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

// TestCurl: the documented way to ask without a program of ours.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	s := serve(t, source{
		status: func(context.Context) (*Status, error) { return &Status{Node: "n1"}, nil },
		do:     results(Result{PID: 5, OK: true}, Result{Task: -1, OK: true, Done: true}),
		events: func(context.Context) (<-chan []byte, error) {
			return closed([]byte(`{"event":"exit"}`))
		},
	})
	ask := func(args ...string) (string, error) {
		args = append([]string{"-sS", "--max-time", "20", "--unix-socket", filepath.Join(s.dir, SocketName)}, args...)
		out, err := exec.Command(curl, args...).CombinedOutput()
		return string(out), err
	}
	const at = "http://rsswarden"
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"status":    {[]string{"-f", at + "/v1/status"}, `"node":"n1"`},
		"recycle":   {[]string{"-f", "-X", "POST", at + "/v1/recycle"}, `{"pid":5,"task":0,"ok":true}` + "\n" + `{"task":-1,"ok":true,"done":true}`},
		"of a PID":  {[]string{"-f", "-d", `{"pids":[5]}`, at + "/v1/recycle"}, `"done":true`},
		"events":    {[]string{"-f", "-N", at + "/v1/events"}, `{"event":"exit"}`},
		"a mistake": {[]string{"-d", `{"pid":5}`, at + "/v1/recycle"}, `unknown field \"pid\"`},
		"no path":   {[]string{"-w", "%{http_code}", at + "/v1/x"}, "404"},
		"huge":      {[]string{"-w", "%{http_code}", "-d", strings.Repeat("x", 100<<10), at + "/v1/recycle"}, "413"},
		"chunked":   {[]string{"-w", "%{http_code}", "-H", "Transfer-Encoding: chunked", "-d", "{}", at + "/v1/recycle"}, "411"},
	} {
		if out, err := ask(c.args...); err != nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	if out, err := ask("-f", at+"/v1/x"); err == nil {
		t.Errorf("an error is none for curl -f: %s", out)
	}
}
