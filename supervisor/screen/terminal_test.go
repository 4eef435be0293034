package screen

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// session is a command on a terminal of its own.
type session struct {
	t           *testing.T
	master, tty *os.File
	cmd         *exec.Cmd
	before      unix.Termios
	mu          sync.Mutex
	out         strings.Builder
	screen      *emulator // shows what is written to the other screen
	broken      error
}

// start runs a command on a terminal of 80 columns and 24 lines. The output is
// read unless unread is set.
func start(t *testing.T, unread bool, argv ...string) *session {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	s := &session{t: t, master: master, tty: tty, cmd: exec.Command(argv[0], argv[1:]...)}
	s.screen = newEmulator(80, 24)
	s.resize(80, 24)
	s.before = s.termios()
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.Env = append(os.Environ(), "PS1=READY ", "HISTFILE=", "TERM=xterm", "ENV=")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !unread {
		go s.read()
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		master.Close()
		tty.Close()
		s.cmd.Wait()
		if t.Failed() {
			s.mu.Lock()
			out := s.out.String()
			t.Logf("screen:\n%sterminal: %q", s.screen.text(), out[max(0, len(out)-2000):])
			s.mu.Unlock()
		}
	})
	return s
}

func (s *session) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.out.Write(buf[:n])
		s.emulate(string(buf[:n]))
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// emulate shows what is for the other screen.
func (s *session) emulate(text string) {
	for text != "" && s.broken == nil {
		part, mark := text, altScreen
		if s.screen.other {
			mark = mainScreen
		}
		if i := strings.Index(text, mark); i >= 0 {
			part, text = text[:i], text[i+len(mark):]
			if s.screen.other {
				s.broken = s.screen.write([]byte(part))
			}
			s.screen.other = !s.screen.other
			continue
		}
		text = ""
		if s.screen.other {
			s.broken = s.screen.write([]byte(part))
		}
	}
}

// shows waits until the screen has all of the texts.
func (s *session) shows(texts ...string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%q on the screen", texts), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.broken != nil {
			s.t.Fatal(s.broken)
		}
		all := s.screen.text()
		return s.screen.other && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	})
}

func (s *session) send(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) resize(w, h uint16) {
	s.t.Helper()
	s.mu.Lock()
	if w > 0 && h > 0 && (int(w) != s.screen.w || int(h) != s.screen.h) {
		other := s.screen.other
		s.screen = newEmulator(max(200, int(w)), max(60, int(h)))
		s.screen.other = other
	}
	s.mu.Unlock()
	if err := pty.Setsize(s.master, &pty.Winsize{Cols: w, Rows: h}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) termios() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

func (s *session) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("not in time: ", what)
		}
	}
}

// expect waits for texts one behind the other and forgets all up to the last.
func (s *session) expect(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		s.until(fmt.Sprintf("%q on the terminal", text), func() bool {
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
}

// ended waits for the end and says how it came: "exit 0", "signal 15".
func (s *session) ended() string {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		s.cmd.Process.Kill()
		<-done
		s.t.Fatal("it does not end")
	}
	if ws, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("signal %d", ws.Signal())
	}
	return fmt.Sprintf("exit %d", s.cmd.ProcessState.ExitCode())
}

// restored says that the modes are those of before.
func (s *session) restored() {
	s.t.Helper()
	if now := s.termios(); now != s.before {
		s.t.Errorf("the modes are %+v, were %+v", now, s.before)
	}
}

func (s *session) raw() bool { return s.termios().Lflag&unix.ICANON == 0 }

// screenOf is the screen that behaves so.
func screenOf(how ...string) []string { return append([]string{os.Args[0], "screen"}, how...) }

// TestLeave: however the screen is left, the terminal is given back: its modes,
// its cursor, its first screen.
func TestLeave(t *testing.T) {
	for _, tt := range []struct {
		name, how string
		leave     func(*session)
		want      string
		then      string // what the first screen shows afterwards
	}{
		{"q", "well", func(s *session) { s.send("q") }, "exit 0", "left after"},
		{"^C", "well", func(s *session) { s.send("\x03") }, "exit 0", "left after"},
		{"SIGTERM", "well", func(s *session) { s.cmd.Process.Signal(syscall.SIGTERM) }, "signal 15", ""},
		{"SIGHUP", "well", func(s *session) { s.cmd.Process.Signal(syscall.SIGHUP) }, "signal 1", ""},
		{"SIGINT", "well", func(s *session) { s.cmd.Process.Signal(syscall.SIGINT) }, "signal 2", ""},
		{"SIGQUIT", "well", func(s *session) { s.cmd.Process.Signal(syscall.SIGQUIT) }, "exit 2", "goroutine"},
		{"a panic of the fetching", "panic", func(*session) {}, "exit 2", "of the fetching"},
		{"a panic of an order", "panic in an order", func(s *session) { s.send("C"); s.shows("y:yes"); s.send("y") }, "exit 2", "of the order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, false, screenOf(tt.how)...)
			s.expect(altScreen, hideCursor, "RANKS")
			if !s.raw() {
				t.Error("keys do not come at once")
			}
			tt.leave(s)
			s.expect(wrap, showCursor, mainScreen, tt.then)
			if got := s.ended(); got != tt.want {
				t.Errorf("ended by %s, want %s", got, tt.want)
			}
			s.restored()
		})
	}
}

// TestKeysOfATerminal: what is typed arrives, and an order is carried out.
func TestKeysOfATerminal(t *testing.T) {
	s := start(t, false, screenOf("well")...)
	s.shows("[RANKS 4]", " PROCESSES 36")
	s.send("\t")
	s.shows(" RANKS 4", "[PROCESSES 36]")
	s.send("/pid=4000")
	s.shows("filter: pid=4000", "0 meet")
	s.send("1\r")
	s.shows("1 meet", ">     0   40001", "?:help")
	s.send("\x1b[6~\x1b[5~\x1bOA?") // cursor keys are no Esc
	s.shows("one row", "q:back")
	s.send("q")
	s.shows("1 meet")
	s.send("R")
	s.shows("recycle worker 40001 of rank 0 on n1", "y:yes")
	s.send("y")
	s.shows("asked recycle of 40001 on n1: done")
	s.send("\x1b") // alone: all are shown again
	s.shows("[PROCESSES 36]  by rss")
	s.send("q")
	s.expect("left after 1 orders")
	if got := s.ended(); got != "exit 0" {
		t.Error(got)
	}
}

// TestResize: a change of the window is met by a frame of the new size.
func TestResize(t *testing.T) {
	s := start(t, false, screenOf("well")...)
	keyLine := func(y int) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return strings.HasPrefix(s.screen.line(y-1), "?:help")
		}
	}
	s.until("24 lines", keyLine(24))
	s.resize(100, 31)
	s.until("31 lines", keyLine(31))
	s.resize(0, 0) // as a serial line has it
	s.until("24 lines again", keyLine(24))
	s.send("q")
	s.ended()
	s.restored()
}

// TestSuspend: ^Z gives the terminal to the shell, fg takes it again.
func TestSuspend(t *testing.T) {
	s := start(t, false, "bash", "--norc", "--noprofile", "-i")
	s.expect("READY ")
	argv := screenOf("well")
	for i, a := range argv {
		argv[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	s.send(strings.Join(argv, " ") + "\n")
	for range 3 {
		s.expect(altScreen, "RANKS")
		s.send("\x1a")
		s.expect(mainScreen, "Stopped", "READY ")
		s.send("echo here-$((40+2)); stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | sort | tr '\\n' -\n")
		s.expect("here-42", "echo-icanon-")
		s.send("fg\n")
	}
	s.expect(altScreen, clearAll, "RANKS")
	s.resize(90, 33)
	s.expect("\x1b[33H")
	s.send("q")
	s.expect(mainScreen, "left after", "READY ")
	s.send("exit 7\n")
	if got := s.ended(); got != "exit 7" {
		t.Error(got)
	}
}

// TestSuspendAlone: where no shell could say fg, ^Z does not stop, and the screen
// comes back.
func TestSuspendAlone(t *testing.T) {
	s := start(t, false, screenOf("well")...)
	s.expect(altScreen, "RANKS")
	s.send("\x1a")
	s.expect(mainScreen, altScreen, clearAll, "RANKS")
	s.send("q")
	if got := s.ended(); got != "exit 0" {
		t.Error(got)
	}
	s.restored()
}

// TestContinued: somebody stopped us for good, and the shell took the terminal:
// after SIGCONT all is drawn again.
func TestContinued(t *testing.T) {
	s := start(t, false, screenOf("well")...)
	s.expect(altScreen, "RANKS")
	s.cmd.Process.Signal(syscall.SIGSTOP)
	s.until("the stop", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
	if err := unix.IoctlSetTermios(int(s.tty.Fd()), unix.TCSETS, &s.before); err != nil {
		t.Fatal(err)
	}
	s.cmd.Process.Signal(syscall.SIGCONT)
	s.expect(altScreen, clearAll, "RANKS")
	if !s.raw() {
		t.Error("keys do not come at once")
	}
	s.send("q")
	s.ended()
	s.restored()
}

// TestHangup: a terminal that is gone ends the screen.
func TestHangup(t *testing.T) {
	s := start(t, true, screenOf("well")...) // a file that is being read stays open
	for shown, buf := "", make([]byte, 4096); !strings.Contains(shown, "RANKS"); {
		n, err := s.master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(buf[:n])
	}
	s.tty.Close()
	s.master.Close()
	if got := s.ended(); got != "signal 1" && got != "exit 1" && got != "exit 0" {
		t.Errorf("ended by %s", got)
	}
}

// TestStuckTerminal: a terminal that takes nothing more does not keep a signal
// from ending us.
func TestStuckTerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "asked")
	s := start(t, true, screenOf("many", file)...)
	last, since := "", time.Now()
	s.until("a full terminal", func() bool {
		b, _ := os.ReadFile(file)
		if string(b) != last || last == "" {
			last, since = string(b), time.Now()
		}
		return time.Since(since) > time.Second
	})
	s.cmd.Process.Signal(syscall.SIGTERM)
	if got := s.ended(); got != "signal 15" {
		t.Errorf("ended by %s", got)
	}
	s.restored()
}

// TestNoTerminal: what is no terminal is an error, and nothing is written to it.
func TestNoTerminal(t *testing.T) {
	cmd := exec.Command(os.Args[0], "screen", "well")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "error: cannot read the modes of the terminal: ") {
		t.Errorf("%v: %q", err, out)
	}
}
