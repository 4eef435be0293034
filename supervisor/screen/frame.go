package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Style is how a cell looks. What it means is there in words too.
type Style uint8

// The styles.
const (
	Plain Style = iota
	Bold
	Dim
	Reverse
	Red
	Amber
	Green
)

// cell is one column of one line. The right half of a wide character is rune 0.
type cell struct {
	r     rune
	style Style
}

var blank = cell{' ', Plain}

// Frame is what the screen shows at one moment, W columns by H lines.
type Frame struct {
	W, H  int
	cells []cell
	look  text.Style
}

func newFrame(w, h int, look text.Style) *Frame {
	f := &Frame{W: w, H: h, cells: make([]cell, w*h), look: look}
	for i := range f.cells {
		f.cells[i] = blank
	}
	return f
}

func (f *Frame) line(y int) []cell { return f.cells[y*f.W : (y+1)*f.W] }

// put writes a text at a place and returns the column behind it. It writes nothing beyond
// column end: a text that is cut off ends with an ellipsis.
func (f *Frame) put(x, y, end int, style Style, s string) int {
	if y < 0 || y >= f.H {
		return x
	}
	end = min(end, f.W)
	s = clean(s, f.look)
	if x+len(s) > end && x+text.Columns(s) > end {
		s = f.cut(s, end-x)
	}
	line := f.line(y)
	for _, r := range s {
		n := text.Width(r)
		if x < 0 || x+n > end {
			break
		}
		line[x] = cell{r, style}
		if n == 2 {
			line[x+1] = cell{0, style}
		}
		x += n
	}
	return x
}

// cut shortens a clean text to so many columns.
func (f *Frame) cut(s string, columns int) string { return text.CutWith(s, columns, f.ellipsis()) }

func (f *Frame) ellipsis() string { return f.look.Glyph("…") }

// right writes a text so that it ends before column end.
func (f *Frame) right(x, y, end int, style Style, s string) {
	s = clean(s, f.look)
	f.put(max(x, end-text.Columns(s)), y, end, style, s)
}

// paint gives all of a line one style.
func (f *Frame) paint(y int, style Style) {
	if y < 0 || y >= f.H {
		return
	}
	for i := range f.line(y) {
		f.line(y)[i].style = style
	}
}

// Text is the frame without styles, a line each, blanks at their ends left out.
func (f *Frame) Text() string {
	var b strings.Builder
	for y := range f.H {
		var text []rune
		for _, c := range f.line(y) {
			if c.r != 0 {
				text = append(text, c.r)
			}
		}
		b.WriteString(strings.TrimRight(string(text), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// clean makes a name fit for a grid: what does not print, or is no UTF-8, is a
// question mark, and marks that join the letter before them are left out.
// Where the stream takes ASCII alone it is ASCII.
func clean(s string, look text.Style) string {
	plain := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range look.Plain(text.Plain(s)) {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case r == utf8.RuneError:
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// mib gives bytes in MiB, rounded as in a limit's line.
func mib(b rss.Bytes) string { return strconv.FormatFloat(float64(b)/float64(rss.MiB), 'f', 0, 64) }

func since(now, then time.Time) string { return text.About(max(0, now.Sub(then).Seconds())) }

// count gives a number where it was counted.
func count[T int | uint64](n T) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// task gives a rank's number, "-" outside Slurm.
func task(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
