package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// toldJob does as each line of its stdin says, answers each with a line, and
// ends with status 7 when told to, or when its stdin ends.
const toldJob = `
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR1, lambda n, frame: got.append(n))
kept = []
print("ready", flush=True)
while True:
    line = sys.stdin.readline().split()
    if not line or line[0] == "end":
        sys.exit(7)
    if line[0] == "grow":
        kept.append(bytearray(b"x") * (int(line[1]) << 20))
    if line[0] == "signals":
        while not got:
            time.sleep(0.01)
    if line[0] == "child":
        if os.fork() == 0:
            os._exit(0)
    print("done", len(got), flush=True)
`

// told is a process that does as it is told. It knows nothing of us.
type told struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func startTold(t *testing.T, env ...string) *told {
	t.Helper()
	if _, err := os.Stat(python); err != nil {
		t.Skip(err)
	}
	return startToldBy(t, os.Geteuid(), env...)
}

// startToldBy is startTold for another user's.
func startToldBy(t *testing.T, uid int, env ...string) *told {
	t.Helper()
	cmd := exec.Command(python, "-c", toldJob)
	cmd.Env = append(withoutSlurm(), env...)
	if uid != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		cmd.Dir = "/"
	}
	p := startTalk(t, cmd)
	p.hear()
	return p
}

// attachAs has root attach as another user.
func attachAs(t *testing.T, uid int) func(*exec.Cmd) {
	t.Helper()
	dir := openDir(t)
	return func(cmd *exec.Cmd) {
		if uid != os.Geteuid() {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		cmd.Args[3] = filepath.Join(dir, "events")
	}
}

// openDir is a directory of the test's that every user may write.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startTalk starts a process that is talked to by its standard input and output,
// and ends when the former does.
func startTalk(t *testing.T, cmd *exec.Cmd) *told {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = r, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() {
		w.Close()
		cmd.Wait()
	})
	return &told{t, cmd, w, bufio.NewScanner(out)}
}

func (p *told) hear() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatal("the process has ended")
	}
	return p.out.Text()
}

func (p *told) do(what string) string {
	p.t.Helper()
	fmt.Fprintln(p.in, what)
	return p.hear()
}

// end ends the process, and wants the status that it gives itself.
func (p *told) end() {
	p.t.Helper()
	fmt.Fprintln(p.in, "end")
	p.in.Close()
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 7 {
		p.t.Errorf("the process ended with %v, want its own status 7", p.cmd.ProcessState)
	}
}

func (p *told) pid() string { return strconv.Itoa(p.cmd.Process.Pid) }

// withoutSlurm is our environment without a job that we may run in.
func withoutSlurm() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SLURM") && !strings.HasPrefix(v, "RSSWARDEN") {
			env = append(env, v)
		}
	}
	return env
}

// watching is an attach that runs.
type watching struct {
	t      *testing.T
	cmd    *exec.Cmd
	err    lines
	events string
}

// lines collects what a process writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startAttach attaches and waits until that is done.
func startAttach(t *testing.T, change func(*exec.Cmd), args ...string) *watching {
	t.Helper()
	w := &watching{t: t, events: filepath.Join(t.TempDir(), "events")}
	w.cmd = exec.Command(binary, append([]string{"attach", "--events", w.events}, args...)...)
	w.cmd.Env = withoutSlurm()
	w.cmd.Stderr = &w.err
	if change != nil {
		change(w.cmd)
	}
	w.events = w.cmd.Args[3]
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.cmd.Process.Kill() })
	w.await("watching ")
	return w
}

// await waits until that was said.
func (w *watching) await(text string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(w.err.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not said: %q in\n%s", text, w.err.String())
		}
	}
}

// ended waits for the end and returns the events.
func (w *watching) ended(code int) map[event.Name][]map[string]any {
	w.t.Helper()
	w.cmd.Wait()
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		w.t.Errorf("attach ended with %v, want %d\n%s", w.cmd.ProcessState, code, w.err.String())
	}
	return events(w.t, w.events)
}
