package wardentest

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// Terminal is a program on a terminal of 80 columns and 24 lines.
type Terminal struct {
	t     *testing.T
	File  *os.File
	Cmd   *exec.Cmd
	Shown Text
	read  chan struct{} // closed when nothing more comes
}

// OnTerminal runs a command on one.
func OnTerminal(t *testing.T, cmd *exec.Cmd) *Terminal {
	t.Helper()
	s := &Terminal{t: t, Cmd: cmd, read: make(chan struct{})}
	var err error
	if s.File, err = pty.StartWithSize(s.Cmd, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.read)
		io.Copy(&s.Shown, s.File) // ends with the terminal
	}()
	t.Cleanup(func() {
		s.Cmd.Process.Kill()
		s.File.Close()
	})
	return s
}

// Await waits until it shows a text.
func (s *Terminal) Await(text string) {
	s.t.Helper()
	s.Shown.Await(s.t, text, 1)
}

// Send types.
func (s *Terminal) Send(text string) {
	s.t.Helper()
	if _, err := s.File.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Ended waits for the end, and is how that was and all that was shown.
func (s *Terminal) Ended() (string, string) {
	s.t.Helper()
	_ = s.Cmd.Wait() // ProcessState says how it ended
	<-s.read
	ws, _ := s.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return "signal " + strconv.Itoa(int(ws.Signal())), s.Shown.String()
	}
	return "exit " + strconv.Itoa(ws.ExitStatus()), s.Shown.String()
}
