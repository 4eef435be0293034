package rsstest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// Child is a program that a test talks to by lines, most often the test binary
// in a role. It is to end when its standard input does, which is with the test at
// the latest.
type Child struct {
	PID int
	In  io.WriteCloser
	cmd *exec.Cmd
	out *bufio.Reader
}

// StartChild starts c, whose standard input and output are the test's to use.
func StartChild(t testing.TB, c *exec.Cmd) *Child {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	child := &Child{PID: c.Process.Pid, In: in, cmd: c, out: bufio.NewReader(out)}
	t.Cleanup(child.End)
	return child
}

// Line returns the next line that it says, io.EOF where it has ended.
func (c *Child) Line() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// End closes its standard input and waits for it.
func (c *Child) End() {
	c.In.Close()
	_ = c.cmd.Wait()
}

// Sleeper starts a process that does nothing and lasts until the test ends it, at its end
// at the latest.
func Sleeper(t testing.TB) (*exec.Cmd, rss.ProcID) {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	start, err := strconv.ParseUint(fields[19], 10, 64) // field 22, starttime
	if err != nil {
		t.Fatal(err)
	}
	return c, rss.ProcID{PID: c.Process.Pid, Start: start}
}

// DefaultSignals gives each child that this process starts from now on the default
// disposition of SIGHUP and SIGINT, which nohup and background shells have them ignore:
// execve(2) resets what is caught, never what is ignored. The other signals need
// nothing, the Go runtime catches them itself. A TestMain calls it after its roles.
func DefaultSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// WithoutDescriptors calls f while this process can open no file more. No other test may
// run beside it.
func WithoutDescriptors(t testing.TB, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	f()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
}

// BusyDir is a directory like that of T.TempDir, for programs that may outlive the test by a
// moment: what they still write does not keep it from being removed.
func BusyDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "busy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
			if err := os.RemoveAll(dir); err == nil {
				return
			} else if time.Now().After(end) {
				t.Error(err)
				return
			}
		}
	})
	return dir
}
