package wardentest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// puppetJob does as each line of its stdin says, answers each with a line, and
// ends with status 7 when Puppet to, or when its stdin ends.
const puppetJob = `
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

// Puppet is a Python that does what a test says. It knows nothing of us.
type Puppet struct {
	t   *testing.T
	Cmd *exec.Cmd
	In  *os.File
	out *bufio.Scanner
}

// StartPuppet starts one as a user.
func StartPuppet(t *testing.T, uid int, env ...string) *Puppet {
	t.Helper()
	if _, err := os.Stat(Python); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(Python, "-c", puppetJob)
	cmd.Env = Env(env...)
	if As(uid, cmd); uid != os.Geteuid() {
		cmd.Dir = "/"
	}
	p := startTalk(t, cmd)
	p.Hear()
	return p
}

// startTalk starts a process that is talked to by its standard input and output,
// and ends when the former does.
func startTalk(t *testing.T, cmd *exec.Cmd) *Puppet {
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
	return &Puppet{t, cmd, w, bufio.NewScanner(out)}
}

// Hear is the next line that it says.
func (p *Puppet) Hear() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatal("the process has ended")
	}
	return p.out.Text()
}

// Do has it do something, and is what it answers.
func (p *Puppet) Do(what string) string {
	p.t.Helper()
	fmt.Fprintln(p.In, what)
	return p.Hear()
}

// End ends the process, and wants the status that it gives itself.
func (p *Puppet) End() {
	p.t.Helper()
	fmt.Fprintln(p.In, "end")
	p.In.Close()
	p.Cmd.Wait()
	if code := p.Cmd.ProcessState.ExitCode(); code != 7 {
		p.t.Errorf("the process ended with %v, want its own status 7", p.Cmd.ProcessState)
	}
}

// PID is its number, as a word.
func (p *Puppet) PID() string { return strconv.Itoa(p.Cmd.Process.Pid) }
