package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	rsstest.BeEater()
	os.Exit(wardentest.Main(m, map[string]*string{wardentest.Daemon: &binary}, slurmtest.Shutdown))
}

// instance is a daemon that runs.
type instance struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	done    chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// environ is ours without the job that the tests may be in.
func environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SLURM") {
			env = append(env, kv)
		}
	}
	return env
}

// start runs the daemon on a free port, until it listens.
func start(t *testing.T, args ...string) *instance {
	t.Helper()
	return startCommand(t, append([]string{binary, "--interval", "1s"}, args...)...)
}

// startCommand is start of a command that ends in the daemon and its options.
func startCommand(t *testing.T, command ...string) *instance {
	t.Helper()
	d := &instance{t: t, done: make(chan struct{})}
	d.cmd = exec.Command(command[0], append(command[1:], "--listen", "127.0.0.1:0")...)
	d.cmd.Env = environ()
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := d.cmd.StderrPipe()
	must(t, err)
	must(t, d.cmd.Start())
	listening := make(chan string, 1)
	go func() {
		defer close(d.done)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			d.mu.Lock()
			d.log.WriteString(line)
			d.mu.Unlock()
			if _, address, ok := strings.Cut(line, `msg="Listening on" address=`); ok {
				listening <- strings.TrimSpace(address)
			}
			if err == io.EOF || err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			d.cmd.Process.Kill()
			<-d.done
			d.cmd.Wait()
		}
	})
	select {
	case d.address = <-listening:
	case <-d.done:
		t.Fatalf("it ended: %s", d.said())
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not listen: %s", d.said())
	}
	return d
}

// said is the content of stderr.
func (d *instance) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// end sends SIGTERM and returns the exit status.
func (d *instance) end() int {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.done:
	case <-time.After(20 * time.Second):
		d.t.Fatalf("it does not end: %s", d.said())
	}
	d.cmd.Wait()
	return d.cmd.ProcessState.ExitCode()
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

// sleeper starts a process in a group.
func sleeper(t *testing.T, in rsstest.Group) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	in.Join(cmd.Process.Pid)
}

// must ends the test where there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
