package screen

import (
	"fmt"
	"os"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// terminal is a terminal whose modes can be changed and are given back.
type terminal struct {
	in, out *os.File
	before  *term.State // the modes as they were found
	inside  bool        // ours are set now
}

func openTerminal(in, out *os.File) (*terminal, error) {
	state, err := term.GetState(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot read the modes of the terminal: %w", err)
	}
	return &terminal{in: in, out: out, before: state}, nil
}

// enter takes the terminal over: keys come at once, unseen, and the other screen
// is shown. The modes are set first: in the background that stops us until we are
// in front.
func (t *terminal) enter() error {
	t.inside = true
	if _, err := term.MakeRaw(int(t.in.Fd())); err != nil {
		return fmt.Errorf("cannot set the modes of the terminal: %w", err)
	}
	return t.write([]byte(enterScreen))
}

// leave gives the terminal back as it was. What fails on the way does not keep it
// from the rest.
func (t *terminal) leave() {
	if !t.inside {
		return
	}
	t.inside = false
	_ = t.write([]byte(leaveScreen)) // the terminal may be gone
	t.restoreModes()
}

func (t *terminal) restoreModes() { _ = term.Restore(int(t.in.Fd()), t.before) }

func (t *terminal) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := t.out.Write(b); err != nil {
		return fmt.Errorf("cannot write to the terminal: %w", err)
	}
	return nil
}

func (t *terminal) size() Size { return SizeOf(t.out) }

// SizeOf returns columns and lines of a terminal, 80 and 24 where it does not know.
func SizeOf(f *os.File) Size {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return Size{80, 24}
	}
	return Size{min(w, 1000), min(h, 500)}
}

// patience is how long the rest of an escape sequence may take, in milliseconds:
// what comes later was a key by itself.
const patience = 50

// keys sends what is typed until stop can be read from or the terminal is gone; its last value
// is [gone] then.
func (t *terminal) keys(stop *os.File, send func(any)) {
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(stop.Fd()), Events: unix.POLLIN}}
	var rest []byte
	buf := make([]byte, 256)
	for {
		wait := -1
		if len(rest) > 0 {
			wait = patience
		}
		n, err := unix.Poll(fds, wait)
		var keys []Key
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			send(gone{})
			return
		case fds[1].Revents != 0:
			return
		case n == 0:
			keys, rest = decode(rest, true)
		default:
			got, err := unix.Read(int(fds[0].Fd), buf)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if err != nil || got <= 0 {
				send(gone{})
				return
			}
			keys, rest = decode(append(rest, buf[:got]...), false)
		}
		for _, k := range keys {
			send(k)
		}
	}
}

// gone says that the terminal has ended.
type gone struct{}

// A painter turns frames into bytes for a terminal, of each frame only what
// differs from the one before. The sequences are those of ECMA-48 that every
// terminal has had since the VT100; none of them makes a terminal answer.
type painter struct {
	shown *Frame // nil: nothing is known of the screen
	buf   []byte
	style Style
}

// sequences of ECMA-48 and xterm.
const (
	altScreen  = "\x1b[?1049h" // the other screen, with the cursor kept
	mainScreen = "\x1b[?1049l"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	noWrap     = "\x1b[?7l" // what is written in the last column stays there
	wrap       = "\x1b[?7h"
	clearAll   = "\x1b[2J"
	clearLine  = "\x1b[K" // from the cursor on
	noStyle    = "\x1b[0m"

	enterScreen = altScreen + hideCursor + noWrap
	leaveScreen = noStyle + wrap + showCursor + mainScreen
)

// joined is how many equal cells between two that differ are written anyway: to
// move the cursor over them costs as much.
const joined = 6

// forget has the next frame drawn whole.
func (p *painter) forget() { p.shown = nil }

// draw returns the bytes that make the terminal show f. They are valid until the
// next call.
func (p *painter) draw(f *Frame) []byte {
	p.buf = p.buf[:0]
	if p.shown == nil || p.shown.W != f.W || p.shown.H != f.H {
		p.buf = append(p.buf, noStyle+clearAll...)
		p.style = Plain
		p.shown = newFrame(f.W, f.H, f.look)
	}
	for y := range f.H {
		p.drawLine(y, p.shown.line(y), f.line(y), f.look)
	}
	p.setStyle(Plain, f.look)
	p.shown = f
	return p.buf
}

func (p *painter) drawLine(y int, old, new []cell, look text.Style) {
	end := written(new)
	at := -1 // where the cursor is in this line, -1 for elsewhere
	for x := 0; x < end; x++ {
		if old[x] == new[x] {
			continue
		}
		if new[x].r == 0 && x > 0 {
			x-- // a wide character is written whole
		}
		switch {
		case at < 0 || x < at || x-at > joined:
			p.move(x, y)
		default:
			for ; at < x; at++ {
				at += p.cell(at, y, new, look) - 1
			}
			x = at
		}
		at = x + p.cell(x, y, new, look)
		x = at - 1
	}
	for x := end; x < len(old); x++ {
		if old[x] != blank {
			if at != end {
				p.move(end, y)
			}
			p.setStyle(Plain, look)
			p.buf = append(p.buf, clearLine...)
			return
		}
	}
}

// written is how many columns of a line have something; from there on all is blank.
func written(line []cell) int {
	end := len(line)
	for end > 0 && line[end-1] == blank {
		end--
	}
	return end
}

// cell writes one character and returns how many columns it took. Terminals
// disagree on how wide some are: below a wide one are blanks, and the cursor is
// put behind it.
func (p *painter) cell(x, y int, line []cell, look text.Style) int {
	c := line[x]
	p.setStyle(c.style, look)
	if x+1 < len(line) && line[x+1].r == 0 {
		p.buf = append(p.buf, "  "...)
		p.move(x, y)
		p.buf = utf8.AppendRune(p.buf, c.r)
		p.move(x+2, y)
		return 2
	}
	p.buf = utf8.AppendRune(p.buf, c.r)
	return 1
}

func (p *painter) move(x, y int) {
	p.buf = append(p.buf, "\x1b["...)
	p.buf = strconv.AppendInt(p.buf, int64(y+1), 10)
	if x > 0 {
		p.buf = append(p.buf, ';')
		p.buf = strconv.AppendInt(p.buf, int64(x+1), 10)
	}
	p.buf = append(p.buf, 'H')
}

func (p *painter) setStyle(s Style, look text.Style) {
	if s == p.style {
		return
	}
	p.style = s
	p.buf = append(p.buf, sequence(look, s)...)
}

// sequence selects a style, and ends the one before.
func sequence(look text.Style, s Style) string {
	if !look.Color {
		switch s {
		case Red, Amber:
			s = Bold
		case Green:
			s = Plain
		}
	}
	return [...]string{Plain: noStyle, Bold: "\x1b[0;1m", Dim: "\x1b[0;2m", Reverse: "\x1b[0;7m",
		Red: "\x1b[0;1;31m", Amber: "\x1b[0;33m", Green: "\x1b[0;32m"}[s]
}

// Styled is the frame as it is printed once: in colour lines with styles and no other
// sequences, else text alone.
func (f *Frame) Styled() string {
	if !f.look.Color {
		return f.Text()
	}
	p := painter{}
	for y := range f.H {
		line := f.line(y)
		for _, c := range line[:written(line)] {
			if c.r != 0 {
				p.setStyle(c.style, f.look)
				p.buf = utf8.AppendRune(p.buf, c.r)
			}
		}
		p.setStyle(Plain, f.look)
		p.buf = append(p.buf, '\n')
	}
	return string(p.buf)
}

// Key is what a person pressed: a character, or the name of a key.
type Key string

// Keys that are no characters.
const (
	KeyUp        Key = "up"
	KeyDown      Key = "down"
	KeyLeft      Key = "left"
	KeyRight     Key = "right"
	KeyPageUp    Key = "page up"
	KeyPageDown  Key = "page down"
	KeyHome      Key = "home"
	KeyEnd       Key = "end"
	KeyTab       Key = "tab"
	KeyEnter     Key = "enter"
	KeyEscape    Key = "escape"
	KeyBackspace Key = "backspace"
	KeyCtrlC     Key = "ctrl-c"
	KeyCtrlL     Key = "ctrl-l"
	KeyCtrlU     Key = "ctrl-u"
	KeyCtrlZ     Key = "ctrl-z"
)

var controls = map[byte]Key{
	0x02: KeyPageUp, 0x03: KeyCtrlC, 0x06: KeyPageDown, 0x08: KeyBackspace, '\t': KeyTab, '\n': KeyEnter,
	0x0c: KeyCtrlL, '\r': KeyEnter, 0x15: KeyCtrlU, 0x1a: KeyCtrlZ, 0x1c: KeyCtrlC, 0x7f: KeyBackspace,
}

// finals are the last bytes of the sequences that cursor keys send, behind
// ESC [ and, in application mode, ESC O.
var finals = map[byte]Key{
	'A': KeyUp, 'B': KeyDown, 'C': KeyRight, 'D': KeyLeft, 'H': KeyHome, 'F': KeyEnd, 'Z': KeyTab, 'M': KeyEnter,
}

// numbered are the keys that send ESC [ NUMBER ~.
var numbered = map[string]Key{
	"1": KeyHome, "7": KeyHome, "4": KeyEnd, "8": KeyEnd, "5": KeyPageUp, "6": KeyPageDown,
}

// decode reads the keys that a terminal sent, and returns what may be the front of
// another. With final nothing more comes at once: an ESC is the key then.
// Sequences that mean nothing here are left out whole.
func decode(b []byte, final bool) (keys []Key, rest []byte) {
	for len(b) > 0 {
		k, n := decodeOne(b, final)
		if n == 0 {
			return keys, b
		}
		if k != "" {
			keys = append(keys, k)
		}
		b = b[n:]
	}
	return keys, nil
}

// decodeOne returns the first key and its length; 0 where more must come.
func decodeOne(b []byte, final bool) (Key, int) {
	switch {
	case b[0] == 0x1b:
		return escape(b, final)
	case b[0] < ' ' || b[0] == 0x7f:
		return controls[b[0]], 1
	case !utf8.FullRune(b) && !final:
		return "", 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return "", n
	}
	return Key(r), n
}

// longest is more than any key sends: what goes on beyond is no sequence.
const longest = 32

func escape(b []byte, final bool) (Key, int) {
	if len(b) == 1 {
		if final {
			return KeyEscape, 1
		}
		return "", 0
	}
	switch b[1] {
	case 0x1b:
		return KeyEscape, 1
	case 'O':
		if len(b) > 2 {
			return finals[b[2]], 3
		}
	case '[':
		if len(b) > 2 && b[2] == '[' { // function keys of the Linux console
			if len(b) > 3 {
				return "", 4
			}
			break
		}
		for i := 2; i < len(b); i++ {
			switch c := b[i]; {
			case c == '~':
				return numbered[string(b[2:i])], i + 1
			case c >= 0x40 && c < 0x7f:
				return finals[c], i + 1
			case c < 0x20 || c >= 0x7f || i >= longest:
				return "", i
			}
		}
	default:
		return "", 2 // with Alt
	}
	if final {
		return "", len(b)
	}
	return "", 0
}
