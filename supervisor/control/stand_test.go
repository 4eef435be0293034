package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/socket"
	"golang.org/x/sys/unix"
)

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

var errUnexpected = errors.New("nobody was to ask for this")

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

// results is a command that comes to these at once.
func results(all ...Result) func(context.Context, Command) (<-chan Result, error) {
	return func(context.Context, Command) (<-chan Result, error) {
		ch := make(chan Result, len(all))
		for _, r := range all {
			ch <- r
		}
		close(ch)
		return ch, nil
	}
}

// until waits for something to come true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s\n%s", what, ourGoroutines())
		}
	}
}

// ourGoroutines are the stacks in which a function of this package's stands that
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
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return serveIn(t, dir, src, change...)
}

func serveIn(t *testing.T, dir string, src source, change ...func(*Server)) *stand {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Listen(f, SocketName, src)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(s)
	}
	if _, twice := looked.LoadOrStore(t, true); !twice {
		t.Cleanup(func() { until(t, "no goroutine is left", func() bool { return ourGoroutines() == "" }) })
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

// say writes a request and returns all that is answered.
func (s *stand) say(request string) string {
	s.t.Helper()
	c := s.connect()
	defer c.Close()
	return hear(s.t, c, request)
}

func hear(t *testing.T, c *os.File, request string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
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
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	exe := filepath.Join(t.TempDir(), "client")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(exe, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(exe); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
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
