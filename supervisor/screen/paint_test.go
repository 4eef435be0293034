package screen

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

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

// write shows bytes; an error is what would break a screen.
func (e *emulator) write(b []byte) error {
	b = append(e.rest, b...)
	e.rest = nil
	for len(b) > 0 {
		if b[0] == 0x1b {
			if len(b) < 3 {
				e.rest = b
				return nil
			}
			end := strings.IndexFunc(string(b[2:]), func(r rune) bool { return r >= 0x40 && r <= 0x7e })
			if b[1] != '[' {
				return fmt.Errorf("not a sequence: %q", b[:3])
			}
			if end < 0 {
				e.rest = b
				return nil
			}
			if err := e.sequence(string(b[2:2+end]), b[2+end]); err != nil {
				return err
			}
			b = b[3+end:]
			continue
		}
		if !utf8.FullRune(b) {
			e.rest = b
			return nil
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		if err := e.put(r); err != nil {
			return err
		}
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
	if err := e.write(b); err != nil {
		t.Fatal(err)
	}
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
	if err := e.write(p.draw(f)); err != nil {
		t.Fatal(err)
	}
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
		m.Look.Colour = colour
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
