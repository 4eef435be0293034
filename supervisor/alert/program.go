package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/memfile"
)

const (
	// SendTime is how long a request may take, and lastTime one that is sent when
	// the run has ended.
	SendTime = 10 * time.Second
	lastTime = 2 * time.Second
	// dieTime is how long a process that was killed is waited for: the kernel may
	// not let go of it.
	dieTime    = time.Second
	mostAnswer = 64 << 10
)

// Program starts the process that carries a request.
type Program struct {
	Path  string   // of rsswardend
	Env   []string // all of it
	Start func(*exec.Cmd) error
}

// NewProgram returns the program at a path in such an environment: without the variables
// that may hold secrets, which go in the request, and with one thread of Go, which saves a
// task or two of those that pids.max counts as the job's.
func NewProgram(path string, env []string, start func(*exec.Cmd) error) *Program {
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, secretVariables) || strings.HasPrefix(v, threadVariable)
	})
	return &Program{Path: path, Env: append(env, threadVariable+"1"), Start: start}
}

const (
	secretVariables = "RSSWARDEN_ALERT"
	threadVariable  = "GOMAXPROCS="
)

// Send carries a request and waits for its end, which comes at the latest when its
// time is over or ctx is done. The process dies with us.
func (p *Program) Send(ctx context.Context, r Request) Answer {
	// The kernel sends the death signal when the thread dies that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, out, err := p.begin(r, unix.SIGKILL)
	if err != nil {
		return Answer{Error: err.Error(), Retry: true}
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout+dieTime)
	defer cancel()
	said := listen(out)
	select {
	case a := <-said:
		go cmd.Wait() // it has said all, and ends
		return a
	case <-ctx.Done():
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // it is not waited for yet, so this is its own group
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(dieTime):
	}
	return Answer{Error: "no answer in time", Retry: true}
}

// Leave sends a request by a process that may outlive us, for as long as its own time
// lasts. The result comes on the channel.
func (p *Program) Leave(r Request) <-chan Answer {
	cmd, out, err := p.begin(r, 0)
	if err != nil {
		c := make(chan Answer, 1)
		c <- Answer{Error: err.Error(), Retry: true}
		return c
	}
	go cmd.Wait()
	return listen(out)
}

// begin starts a process with a session of its own: what ends a process group or a
// terminal, and signals to the job's, leave it alone.
func (p *Program) begin(r Request, death syscall.Signal) (*exec.Cmd, *os.File, error) {
	data, err := json.Marshal(r)
	if err == nil && len(data) > MostRequest {
		err = fmt.Errorf("it has %d bytes", len(data))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write the request: %w", err)
	}
	in, err := memfile.Of("rsswarden-alert", data) // what is secret in it is on no disk
	if err != nil {
		return nil, nil, fmt.Errorf("cannot write the request: %w", err)
	}
	defer in.Close()
	out, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	defer w.Close()
	cmd := exec.Command(p.Path, SendCommand)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout = p.Env, "/", in, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: death}
	if err := p.Start(cmd); err != nil {
		out.Close()
		return nil, nil, fmt.Errorf("cannot start %s: %w", p.Path, err)
	}
	return cmd, out, nil
}

func listen(out *os.File) <-chan Answer {
	c := make(chan Answer, 1)
	go func() {
		defer out.Close()
		data, err := io.ReadAll(io.LimitReader(out, mostAnswer))
		fault.Point("alert-answer")
		var a Answer
		if err == nil {
			err = json.Unmarshal(bytes.TrimSpace(data), &a)
		}
		if err != nil {
			a = Answer{Error: "rsswardend ended without an answer", Retry: true}
		}
		c <- a
	}()
	return c
}

// SendCommand is the command of rsswardend that carries a [Request]. It reads it
// from standard input and writes an [Answer] to standard output, as one line.
const SendCommand = "send"

// MostRequest bounds a request as it is written, in bytes.
const MostRequest = 1 << 20

// Request is the input of such a process.
type Request struct {
	URL string `json:"url"`
	// Token goes into the header Authorization; TokenFile has it in its first line.
	Token     string            `json:"token,omitempty"`
	TokenFile string            `json:"token_file,omitempty"`
	Bodies    []json.RawMessage `json:"bodies"` // posted in turn
	Timeout   time.Duration     `json:"timeout_ns"`
}

type Answer struct {
	Taken  int           `json:"taken"`            // how many of the bodies, from the first on
	Status int           `json:"status,omitempty"` // HTTP's, of the last
	Retry  bool          `json:"retry,omitempty"`  // the same may be taken later
	Later  time.Duration `json:"later_ns,omitempty"`
	Error  string        `json:"error,omitempty"` // without a secret
}

// Try sends the receiver one alert that says that nothing is wrong. To a webhook its
// resolution follows at once. Not to Alertmanager, which sends no notification for an alert
// that arrives resolved: there the alert ends by itself, after a minute.
func Try(ctx context.Context, node string, t Target, opt Options) Answer {
	s, r, now := &Sender{opt: opt, book: NewStore()}, newReceiver(t), time.Now()
	s.book.Set(now, []Alert{{
		Node: node, Rung: "test", Test: true, Since: now, Summary: "rsswarden doctor on " + node + " tries out alerts", Text: "nothing is wrong",
	}})
	told := func() Answer {
		l, err := r.load(s.book, now)
		if err == nil && t.Kind == Alertmanager {
			l.bodies[0], err = managerBody(s.book.sorted(), now, resend, func(string) bool { return true })
		}
		if err != nil {
			return Answer{Error: err.Error()}
		}
		a := opt.Send(ctx, s.request(r, l, SendTime))
		r.done(l, a, now, 1)
		return a
	}
	a := told()
	if a.Error != "" || t.Kind == Alertmanager {
		return a
	}
	s.book.End(time.Now())
	return told()
}
