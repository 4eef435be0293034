package screen

import (
	"strconv"
	"unicode/utf8"
)

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

func (p *painter) drawLine(y int, old, new []cell, look Look) {
	end := len(new) // from here on all is blank
	for end > 0 && new[end-1] == blank {
		end--
	}
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

// cell writes one character and returns how many columns it took. Terminals
// disagree on how wide some are: a wide one stands on blanks, and the cursor is
// put behind it.
func (p *painter) cell(x, y int, line []cell, look Look) int {
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

func (p *painter) setStyle(s Style, look Look) {
	if s == p.style {
		return
	}
	p.style = s
	p.buf = append(p.buf, look.sequence(s)...)
}

// sequence selects a style, and ends the one before.
func (l Look) sequence(s Style) string {
	if !l.Colour {
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

// Styled is the frame for a terminal that only scrolls: lines with styles and no
// other sequences.
func (f *Frame) Styled() string {
	p := painter{}
	for y := range f.H {
		line := f.line(y)
		end := len(line)
		for end > 0 && line[end-1] == blank {
			end--
		}
		for _, c := range line[:end] {
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
