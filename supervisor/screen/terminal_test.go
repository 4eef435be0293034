package screen

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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
	wardentest.NoError(t, s.cmd.Start())
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
		mark := altScreen
		if s.screen.other {
			mark = mainScreen
		}
		part, rest, changes := strings.Cut(text, mark)
		if s.screen.other {
			s.broken = s.screen.write([]byte(part))
		}
		s.screen.other = s.screen.other != changes
		text = rest
	}
}

// shows waits until the screen has all of the texts.
func (s *session) shows(texts ...string) {
	s.t.Helper()
	wardentest.Until(s.t, fmt.Sprintf("%q on the screen", texts), func() bool {
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
	_, err := s.master.WriteString(text)
	wardentest.NoError(s.t, err)
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
	wardentest.NoError(s.t, pty.Setsize(s.master, &pty.Winsize{Cols: w, Rows: h}))
}

func (s *session) termios() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.tty.Fd()), unix.TCGETS)
	wardentest.NoError(s.t, err)
	return *m
}

// expect waits for texts one behind the other and forgets all up to the last.
func (s *session) expect(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		wardentest.Until(s.t, fmt.Sprintf("%q on the terminal", text), func() bool {
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
	late := time.AfterFunc(30*time.Second, func() { s.cmd.Process.Kill() })
	_ = s.cmd.Wait() // ProcessState says how it ended
	if !late.Stop() {
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
	s.shows("1 meet", ">     0   40001", "? help")
	s.send("\x1b[6~\x1b[5~\x1bOA?") // cursor keys are no Esc
	s.shows("one row", "q back")
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
			return strings.HasPrefix(s.screen.line(y-1), "q back")
		}
	}
	s.send("?")
	wardentest.Until(s.t, "24 lines", keyLine(24))
	s.resize(100, 31)
	wardentest.Until(s.t, "31 lines", keyLine(31))
	s.resize(0, 0) // as a serial line has it
	wardentest.Until(s.t, "24 lines again", keyLine(24))
	s.send("qq")
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
	s.send("?")
	s.expect("\x1b[33H")
	s.send("qq")
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

// TestContinued: we were stopped for good, and the shell took the terminal:
// after SIGCONT all is drawn again.
func TestContinued(t *testing.T) {
	s := start(t, false, screenOf("well")...)
	s.expect(altScreen, "RANKS")
	s.cmd.Process.Signal(syscall.SIGSTOP)
	wardentest.Until(s.t, "the stop", func() bool {
		return strings.Contains(wardentest.Read(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)), ") T ")
	})
	wardentest.NoError(t, unix.IoctlSetTermios(int(s.tty.Fd()), unix.TCSETS, &s.before))
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
		wardentest.NoError(t, err)
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
	wardentest.Until(s.t, "a full terminal", func() bool {
		if now := wardentest.Read(file); now != last || last == "" {
			last, since = now, time.Now()
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

// emulator is a terminal that knows the sequences the screen writes, and no
// others.
type emulator struct {
	w, h   int
	cells  []cell
	x, y   int
	styles map[string]bool
	// wideAs is how many columns the terminal gives to wide characters.
	wideAs int
	other  bool // the other screen is shown
	rest   []byte
}

func newEmulator(w, h int) *emulator {
	e := &emulator{w: w, h: h, cells: make([]cell, w*h), styles: map[string]bool{}, wideAs: 2}
	for i := range e.cells {
		e.cells[i] = cell{'#', Plain} // what was there before
	}
	return e
}

var aSequence = regexp.MustCompile(`^\x1b\[([^@-~]*)([@-~])`)

// write shows bytes; an error is what would break a screen.
func (e *emulator) write(b []byte) error {
	b = append(e.rest, b...)
	for e.rest = nil; len(b) > 0; {
		var err error
		r, n := utf8.DecodeRune(b)
		switch m := aSequence.FindSubmatch(b); {
		case m != nil:
			n, err = len(m[0]), e.sequence(string(m[1]), m[2][0])
		case b[0] == 0x1b && len(b) > 1 && b[1] != '[':
			err = fmt.Errorf("not a sequence: %q", b[:2])
		case b[0] == 0x1b, !utf8.FullRune(b):
			e.rest = b
			return nil
		default:
			err = e.put(r)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (e *emulator) sequence(args string, final byte) error {
	switch final {
	case 'H':
		e.y, e.x = 1, 1
		if _, err := fmt.Sscanf(args, "%d;%d", &e.y, &e.x); err != nil {
			e.x = 1
		}
		e.x, e.y = e.x-1, e.y-1
	case 'J':
		for i := range e.cells {
			e.cells[i] = blank
		}
	case 'K':
		for x := e.x; x < e.w; x++ {
			e.cells[e.y*e.w+x] = blank
		}
	case 'm':
		e.styles[args] = true
	case 'h', 'l':
		if args == "?1049" {
			e.other = final == 'h'
		}
	default:
		return fmt.Errorf("unknown sequence: %q %c", args, final)
	}
	return nil
}

func (e *emulator) put(r rune) error {
	if r < ' ' || r == 0x7f || r == utf8.RuneError {
		return fmt.Errorf("%q reached the terminal", r)
	}
	wide := text.Width(r)
	if wide == 2 {
		wide = e.wideAs
	}
	if e.y >= e.h || e.x >= e.w {
		return fmt.Errorf("%q at %d,%d of %dx%d", r, e.x, e.y, e.w, e.h)
	}
	e.cells[e.y*e.w+e.x] = cell{r: r}
	if wide == 2 && e.x+1 < e.w {
		e.cells[e.y*e.w+e.x+1] = cell{}
	}
	e.x += wide
	return nil
}

func (e *emulator) line(y int) string {
	var b strings.Builder
	for _, c := range e.cells[y*e.w : (y+1)*e.w] {
		if c.r != 0 {
			b.WriteRune(c.r)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

func (e *emulator) text() string {
	var b strings.Builder
	for y := range e.h {
		b.WriteString(e.line(y) + "\n")
	}
	return b.String()
}

// shown writes bytes that must make the screen show f.
func (e *emulator) shown(t *testing.T, b []byte, f *Frame) {
	t.Helper()
	wardentest.NoError(t, e.write(b))
	if diff := cmp.Diff(f.Text(), e.text()); diff != "" {
		t.Fatal(diff)
	}
}

// TestPaintDifferences: whatever was shown before, the terminal then shows the
// frame.
func TestPaintDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("     ab日🐍é█")
	e := newEmulator(20, 4)
	var p painter
	for n := range 3000 {
		f := newFrame(20, 4, plainLook)
		if n%3 != 0 && p.shown != nil {
			copy(f.cells, p.shown.cells)
		}
		for range rng.IntN(12) {
			var s []rune
			for range rng.IntN(6) {
				s = append(s, alphabet[rng.IntN(len(alphabet))])
			}
			x, y := rng.IntN(20), rng.IntN(4)
			// What half of a wide character is left over is a blank.
			f.put(x, y, 20, Style(rng.IntN(7)), string(s))
			mend(f.line(y))
		}
		if n%100 == 99 {
			p.forget()
		}
		e.shown(t, p.draw(f), f)
	}
}

// mend makes blanks of halves of wide characters, as texts beside one another
// never leave them.
func mend(line []cell) {
	for x := range line {
		right := x+1 < len(line) && line[x+1].r == 0
		wide := line[x].r != 0 && text.Width(line[x].r) == 2
		switch {
		case wide && !right:
			line[x] = blank
		case line[x].r == 0 && (x == 0 || text.Width(line[x-1].r) != 2 || line[x-1].r == 0):
			line[x] = blank
		}
	}
}

// TestPaintNarrowTerminal: a terminal that gives a wide character one column shows
// everything else in its place.
func TestPaintNarrowTerminal(t *testing.T) {
	e := newEmulator(80, 24)
	e.wideAs = 1
	var p painter
	f := shown(80, 24, oddNodes()).View()
	wardentest.NoError(t, e.write(p.draw(f)))
	for y := range f.H {
		for x, c := range f.line(y) {
			got := e.cells[y*80+x].r
			if c.r != 0 && text.Width(c.r) == 1 && got != c.r {
				t.Fatalf("at %d,%d stands %q, want %q", x, y, got, c.r)
			}
		}
	}
}

// TestPaintNothing: what has not changed costs nothing.
func TestPaintNothing(t *testing.T) {
	var p painter
	m := shown(80, 24, twoNodes())
	if len(p.draw(m.View())) == 0 {
		t.Fatal("the first frame is empty")
	}
	if b := p.draw(m.View()); len(b) != 0 {
		t.Errorf("the same frame again: %q", b)
	}
}

// TestPaintFewBytes: a screen is used through ssh. Of 64 ranks each grows in every
// second.
func TestPaintFewBytes(t *testing.T) {
	for _, size := range []struct{ w, h, most int }{{80, 24, 700}, {200, 60, 1500}} {
		var p painter
		total, n := 0, 20
		s := scene("n1", 0, 64, 16)
		m := shown(size.w, size.h, nodesOf(s))
		first := len(p.draw(m.View()))
		for i := range n {
			s = grown(s, i)
			m, _ = m.Update(Answer{nodesOf(s), nil, s.Time})
			total += len(p.draw(m.View()))
		}
		t.Logf("%dx%d: %d bytes at first, then %d a second", size.w, size.h, first, total/n)
		if total/n > size.most {
			t.Errorf("%dx%d: %d bytes a second, at most %d", size.w, size.h, total/n, size.most)
		}
		if total == 0 {
			t.Error("nothing has changed")
		}
	}
}

// TestNoColour: without colours the styles are the terminal's own alone.
func TestNoColour(t *testing.T) {
	for _, colour := range []bool{false, true} {
		m := shown(200, 60, twoNodes())
		m.Look.Color = colour
		e := newEmulator(200, 60)
		var p painter
		e.shown(t, p.draw(m.View()), m.View())
		coloured := false
		for s := range e.styles {
			coloured = coloured || strings.Contains(s, "3")
		}
		if coloured != colour {
			t.Errorf("colours %v: the styles are %v", colour, e.styles)
		}
		if styled := m.View().Styled(); strings.Contains(styled, ";31m") != colour || strings.Contains(styled, "\x1b[H") {
			t.Errorf("colours %v: for paper %q", colour, styled)
		}
	}
}

// TestDecode: what is typed, what may be the front of more, and what means nothing here: Alt-q,
// F5, F1 of the Linux console, a mouse, a terminal's answer, text pasted in brackets.
func TestDecode(t *testing.T) {
	var b strings.Builder
	for _, in := range []string{
		"jq", "\x1b[A\x1b[B\x1b[C\x1b[D", "\x1bOA\x1bOH\x1bOF\x1bOM", "\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[7~\x1b[8~", "\x1b[1;5A",
		"\t\r\n\x7f\x08\x15\x03\x1a\x0c\x1c", "ä数", "a\xe6\x95", "\xff\xfeq", "\x1b", "\x1b\x1b[A", "\x1b[", "\x1b[1;",
		"\x1bqx", "\x1b[15~x", "\x1b[[Ax", "\x1b[<0;3;4mx", "\x1b[?62;1cx", "\x1b[200~x\x1b[201~", "\x1b[12\x03",
	} {
		keys, rest := decode([]byte(in), false)
		last, never := decode(rest, true)
		if len(never) > 0 {
			t.Errorf("%q: %q is never taken", in, never)
		}
		fmt.Fprintf(&b, "%q: %q, then of %q %q\n", in, keys, rest, last)
	}
	golden.Check(t, "testdata/decoded.txt", b.String())
}

// FuzzDecode: nothing that a terminal sends is held back for good, and pieces
// give the keys of the whole.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"\x1b[A", "\x1bOA", "\x1b[[", "\x1b\x1b", "äq\xff", "\x1b[1;2;3;4;5;6;7;8;9;1;2;3;4;5;6"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, rest := decode(b, false)
		if len(rest) > longest+1 {
			t.Errorf("%d bytes are held back", len(rest))
		}
		var pieces []Key
		var left []byte
		for _, c := range b {
			var keys []Key
			keys, left = decode(append(left, c), false)
			pieces = append(pieces, keys...)
		}
		if !slices.Equal(whole, pieces) || string(rest) != string(left) {
			t.Errorf("%q: %q, rest %q; byte by byte %q, rest %q", b, whole, rest, pieces, left)
		}
		if _, end := decode(rest, true); len(end) != 0 {
			t.Errorf("%q: %q is never taken", b, end)
		}
	})
}
