package hold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// terminal is a session on a pseudo terminal, as srun --pty makes one.
type terminal struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd
	mu  sync.Mutex
	out strings.Builder
}

func newTerminal(t *testing.T, argv ...string) *terminal {
	t.Helper()
	s := &terminal{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	s.cmd.Env = append(os.Environ(), "PS1=READY ", "HISTFILE=", "TERM=dumb", "ENV=", "BASH_SILENCE_DEPRECATION_WARNING=1")
	s.cmd.Dir = t.TempDir()
	var err error
	if s.tty, err = pty.Start(s.cmd); err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.tty.Read(buf)
			s.mu.Lock()
			s.out.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		s.tty.Close()
		s.cmd.Wait()
		if t.Failed() {
			t.Logf("terminal: %q", s.text())
		}
	})
	return s
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (s *terminal) send(text string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits for text and forgets all up to it.
func (s *terminal) expect(text string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%q on the terminal", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, rest, ok := strings.Cut(s.out.String(), text)
		if ok {
			s.out.Reset()
			s.out.WriteString(rest)
		}
		return ok
	})
}

const ctrlC, ctrlZ, ctrlBackslash = "\x03", "\x1a", "\x1c"

func quoted(argv []string) string {
	for i, a := range argv {
		argv[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(argv, " ")
}

// TestTerminalSignalsOnce: the terminal sends ^C, ^\ and ^Z to the whole foreground group,
// and the holder may get the same signal from elsewhere.
func TestTerminalSignalsOnce(t *testing.T) {
	for _, watch := range []string{"", "good"} {
		t.Run("watcher "+watch, func(t *testing.T) {
			k, argv := newCounted(t, config{Watch: watch})
			s := newTerminal(t, argv...)
			k.await(t)
			for i, key := range []string{ctrlC, ctrlBackslash, ctrlZ} {
				sig := []int{2, 3, 20}[i]
				s.send(key)
				k.comes(t, sig, 1)
				k.settled(t)
				kill(t, k.holder, sig)
				k.comes(t, sig, 2)
			}
			wardentest.NoError(t, pty.Setsize(s.tty, &pty.Winsize{Rows: 33, Cols: 77}))
			k.comes(t, int(unix.SIGWINCH), 1)
			kill(t, k.holder, 64)
			k.comes(t, 64, 1)
			for sig, want := range map[int]int{2: 2, 3: 2, 20: 2, int(unix.SIGWINCH): 1} {
				if n := k.count(sig); n != want {
					t.Errorf("signal %d: %d times, want %d", sig, n, want)
				}
			}
			unix.Kill(k.command, unix.SIGKILL)
		})
	}
}

// A hangup goes to the session's leader alone: here that is the holder.
func TestHangup(t *testing.T) {
	for _, watch := range []string{"", "good"} {
		k, argv := newCounted(t, config{Watch: watch})
		k.cmd = exec.Command(argv[0], argv[1:]...)
		tty, err := pty.Start(k.cmd)
		if err != nil {
			t.Skip("no pseudo terminal: ", err)
		}
		k.await(t)
		tty.Close()
		k.comes(t, 1, 1)
		k.end(t)
	}
}

// newShell is an interactive shell, by wrap where that is given.
func newShell(t *testing.T, wrap ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	s := newTerminal(t, append(wrap, "bash", "--norc", "--noprofile", "-i")...)
	s.expect("READY")
	s.send("stty -echo; bind 'set enable-bracketed-paste off' 2>/dev/null; echo ready''now\n")
	s.expect("readynow")
	s.expect("READY")
	return s
}

// ^Z, jobs, fg, bg and ^C under an interactive shell, as without us.
func TestJobControl(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		t.Run(fmt.Sprint("wrapped ", wrap), func(t *testing.T) {
			s := newShell(t)
			argv := []string{probe, "job"}
			if wrap {
				argv = held(config{Watch: "good", Log: filepath.Join(t.TempDir(), "log")}, argv...)
			}
			s.send(quoted(argv) + "\n")
			s.expect("begun")
			leader := foreground(s)
			foregroundIs := func(what string) {
				t.Helper()
				until(t, what+" in the foreground", func() bool {
					return foreground(s) == what && lineMode(s) == (what != "bash")
				})
			}
			for range 3 {
				s.send(ctrlZ)
				s.expect("Stopped")
				foregroundIs("bash")
				s.send("bg\n")
				s.expect("continued")
				s.send("jobs\n")
				s.expect("Running")
				s.send("fg\n")
				foregroundIs(leader)
				s.send(ctrlZ)
				s.expect("Stopped")
				foregroundIs("bash")
				s.send("fg\n")
				foregroundIs(leader)
				s.expect("continued")
			}
			s.send(ctrlC)
			s.expect("READY")
			s.send("echo status $?\n")
			s.expect("status 130")
			s.send("exit 5\n")
			if st := waitStatus(t, s.cmd); st.ExitStatus() != 5 {
				t.Errorf("the shell ended with %v", st)
			}
		})
	}
}

// TestStopsItself: a command in the foreground that stops itself, as a shell's suspend does,
// gives the terminal back, as without us.
func TestStopsItself(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		s := newShell(t)
		argv := []string{"sh", "-c", "kill -STOP $$; echo ba''ck; exit 4"}
		if wrap {
			argv = held(config{Watch: "good", Log: filepath.Join(t.TempDir(), "log")}, argv...)
		}
		s.send(quoted(argv) + "\n")
		s.expect("Stopped")
		s.send("fg\n")
		s.expect("back")
		s.expect("READY")
		s.send("echo status $?; exit\n")
		s.expect("status 4")
		waitStatus(t, s.cmd)
	}
}

// An interactive shell as the command of a holder that leads the session, as
// under srun --pty; and another holder under that shell.
func TestShellUnderHolder(t *testing.T) {
	dir := t.TempDir()
	c := config{Watch: "good", Log: filepath.Join(dir, "log")}
	s := newShell(t, held(c)...)
	for range 2 {
		sleeps := func() bool { return foreground(s) == "sleep" && lineMode(s) }
		s.send("sleep 100\n")
		until(t, "sleep in the foreground", sleeps)
		s.send(ctrlZ)
		s.expect("Stopped")
		s.expect("READY")
		s.send("fg\n")
		until(t, "sleep in the foreground", sleeps)
		s.send(ctrlC)
		s.expect("READY")
	}
	inner := config{Watch: "good", Log: filepath.Join(dir, "inner")}
	s.send(quoted(held(inner, "cat")) + "\n")
	awaitLine(t, inner.Log, "begin")
	s.send("hello\n")
	s.expect("hello")
	s.send(ctrlZ)
	s.expect("Stopped")
	s.expect("READY")
	s.send("fg\n")
	s.expect("cat")
	s.send("again\n")
	s.expect("again")
	s.send(ctrlC)
	s.expect("READY")
	s.send("echo status $?\n")
	s.expect("status 130")
	s.send("exit 7\n")
	if st := waitStatus(t, s.cmd); st.ExitStatus() != 7 {
		t.Errorf("got %v, want 7", st)
	}
}

// foreground is the name of the process that leads the foreground group.
func foreground(s *terminal) string {
	pgid, err := unix.IoctlGetInt(int(s.tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(wardentest.Read(fmt.Sprintf("/proc/%d/comm", pgid)))
}

// lineMode: the shell's line editor has given the terminal back.
func lineMode(s *terminal) bool {
	m, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	return err == nil && m.Lflag&unix.ICANON != 0
}

// A stop signal to the holder alone reaches the command; when that has
// stopped, so has the holder; SIGCONT to the holder alone continues both.
func TestStopThroughHolder(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		// Its group must not be orphaned, or the kernel ignores these: we are
		// its parent, in the same session.
		cmd := run(t, held(config{}, "sleep", "100")...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		wardentest.NoError(t, cmd.Start())
		holder := cmd.Process.Pid
		command := 0
		until(t, "sleep", func() bool {
			for _, command = range wardentest.Children(holder) {
				if strings.HasPrefix(wardentest.Read(fmt.Sprintf("/proc/%d/comm", command)), "sleep") {
					return true
				}
			}
			return false
		})
		kill(t, holder, int(sig))
		until(t, "a stopped command", func() bool { return stateOf(t, command) == 'T' })
		until(t, "a stopped holder", func() bool { return stateOf(t, holder) == 'T' })
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(holder, &ws, syscall.WUNTRACED, nil); err != nil || ws.StopSignal() != sig {
			t.Errorf("the parent saw %v, %v, want a stop by %v", ws, err, sig)
		}
		kill(t, holder, int(unix.SIGCONT))
		until(t, "a running command", func() bool { return stateOf(t, command) == 'S' })
		until(t, "a running holder", func() bool { return stateOf(t, holder) == 'S' })
		kill(t, command, 9)
		waitStatus(t, cmd)
	}
}
