package wardentest

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Talk is a process that a test talks to by its standard input and output.
type Talk struct {
	t      testing.TB
	Cmd    *exec.Cmd
	In     *os.File
	Lines  *bufio.Scanner // of its standard output
	Stderr Text
}

// StartTalk starts one. At the end of the test its input is closed, and its end waited for.
func StartTalk(t testing.TB, cmd *exec.Cmd) *Talk {
	t.Helper()
	r, w, err := os.Pipe()
	NoError(t, err)
	p := &Talk{t: t, Cmd: cmd, In: w}
	cmd.Stdin, cmd.Stderr = r, &p.Stderr
	out, err := cmd.StdoutPipe()
	NoError(t, err)
	p.Lines = bufio.NewScanner(out)
	NoError(t, cmd.Start())
	r.Close()
	t.Cleanup(func() {
		w.Close()
		late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
	})
	return p
}

// Hear is the next line that it says.
func (p *Talk) Hear() string {
	p.t.Helper()
	if !p.Lines.Scan() {
		p.t.Fatalf("the process has ended\n%s", &p.Stderr)
	}
	return p.Lines.Text()
}

// EndsWith closes its input and wants its exit status, 128 + N after signal N.
func (p *Talk) EndsWith(status int) {
	p.t.Helper()
	p.In.Close()
	p.Cmd.Wait()
	if got := ExitStatus(p.Cmd.ProcessState); got != status {
		p.t.Errorf("it ended with %v, want %d\n%s", p.Cmd.ProcessState, status, &p.Stderr)
	}
}

// PID is its number, as a word.
func (p *Talk) PID() string { return strconv.Itoa(p.Cmd.Process.Pid) }
