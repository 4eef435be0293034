package text

import (
	"fmt"
	"math"
	"strings"
)

// wide lists what takes two columns: the ranges of Markus Kuhn's wcwidth.c, and
// the pictures that came to Unicode since.
var wide = []struct{ from, to rune }{
	{0x1100, 0x115f}, {0x2329, 0x232a}, {0x2e80, 0x303e}, {0x3040, 0xa4cf}, {0xac00, 0xd7a3},
	{0xf900, 0xfaff}, {0xfe10, 0xfe19}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
	{0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}

// Width is how many columns of a terminal a printable rune takes: 1 or 2.
func Width(r rune) int {
	if r < wide[0].from {
		return 1
	}
	for _, w := range wide {
		if r >= w.from && r <= w.to {
			return 2
		}
	}
	return 1
}

// Columns is how many columns of a terminal a plain text takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += Width(r)
	}
	return n
}

// Cut shortens a plain text to so many columns, and ends what it cut with "…".
func Cut(s string, columns int) string { return CutWith(s, columns, "…") }

// CutWith is [Cut] with another ending, of one column.
func CutWith(s string, columns int, end string) string {
	switch {
	case len(s) <= columns:
		return s
	case columns <= 0:
		return ""
	}
	n, keep := 0, 0
	for i, r := range s {
		if n < columns {
			keep = i // what is before it leaves room for the ending
		}
		if n += Width(r); n > columns {
			return s[:keep] + end
		}
	}
	return s
}

// Wrap breaks a text into lines of at most width columns. A word that is longer
// has a line of its own; a number stays with its unit.
func Wrap(s string, width int) (lines []string) {
	line, length := "", 0
	words := strings.Fields(s)
	for i := 0; i < len(words); i++ {
		word := words[i]
		if i+1 < len(words) && isNumber(word) && isUnit(words[i+1]) {
			i++
			word += " " + words[i]
		}
		n := Columns(word)
		if length > 0 && length+1+n > width {
			lines = append(lines, line)
			line, length = "", 0
		}
		if length > 0 {
			line, length = line+" ", length+1
		}
		line, length = line+word, length+n
	}
	return append(lines, line)
}

// Middle shortens a plain text to so many columns by what is in its middle: of a path or
// a command both ends tell most.
func Middle(s string, columns int) string {
	if Columns(s) <= columns {
		return s
	}
	if columns < 3 {
		return Cut(s, columns)
	}
	r := []rune(s)
	head, tail, n := 0, len(r), 1
	for head < tail {
		if w := Width(r[head]); n+w <= columns && (head <= len(r)-tail) {
			n += w
			head++
			continue
		}
		w := Width(r[tail-1])
		if n+w > columns {
			break
		}
		n += w
		tail--
	}
	return string(r[:head]) + "…" + string(r[tail:])
}

// leastHang is the least width that is worth a hanging indent.
const leastHang = 24

// Hang is head, and text beside it from the column indent on, in lines of at most width
// columns: a longer word is cut in its middle. Where little room is left text is below head.
func Hang(head string, indent int, text string, width int) (lines []string) {
	first := head + strings.Repeat(" ", max(indent-Columns(head), 0))
	if width-indent < leastHang && indent > 0 {
		if indent = 2 + len(head) - len(strings.TrimLeft(head, " ")); strings.TrimSpace(head) != "" {
			lines = append(lines, strings.TrimRight(head, " "))
		}
		first = strings.Repeat(" ", indent)
	}
	for _, line := range Wrap(text, width-indent) {
		line = Middle(line, max(width-indent, 1))
		if len(lines) == 0 {
			lines = append(lines, first+line)
			continue
		}
		lines = append(lines, strings.Repeat(" ", indent)+line)
	}
	return lines
}

func isNumber(s string) bool {
	return strings.Trim(strings.TrimLeft(s, "("), "0123456789.,") == "" && strings.ContainsAny(s, "0123456789")
}

func isUnit(s string) bool {
	switch strings.TrimRight(s, ".,;:)") {
	case "%", "B", "KiB", "MiB", "GiB", "TiB", "ms", "s", "min", "h", "d":
		return true
	}
	return false
}

// Command is a command line as a shell would read it, on one line of so many columns.
func Command(args []string, columns int) string {
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = Plain(Quote(w))
	}
	return Cut(strings.Join(words, " "), columns)
}

// Quote is a word of a command line as a shell would read it.
func Quote(w string) string {
	switch {
	case strings.ContainsFunc(w, func(r rune) bool { return r < ' ' || r == 0x7f }):
		var b strings.Builder
		for _, c := range []byte(w) {
			switch {
			case c == '\n':
				b.WriteString(`\n`)
			case c == '\t':
				b.WriteString(`\t`)
			case c == '\'' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c < ' ' || c == 0x7f:
				fmt.Fprintf(&b, `\x%02x`, c)
			default:
				b.WriteByte(c)
			}
		}
		return "$'" + b.String() + "'"
	case w == "" || strings.ContainsAny(w, " \"'\\$`|&;<>()*?[]#~!{}"):
		return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return w
}

// Style is how a stream shows text: its zero value is a log file in UTF-8, 80 columns wide.
type Style struct {
	Color bool
	ASCII bool // the stream does not take UTF-8
	Width int  // columns, 0 for 80
}

// Columns is the width of the stream.
func (s Style) Columns() int {
	if s.Width <= 0 {
		return 80
	}
	return s.Width
}

// Paint is a kind of emphasis, as ECMA-48 SGR writes it. Meaning never rests on it alone.
type Paint string

// The kinds.
const (
	Bold   Paint = "1"
	Dim    Paint = "2"
	Green  Paint = "32"
	Yellow Paint = "33"
	Red    Paint = "31"
)

// Paint emphasises a text where the stream has colour.
func (s Style) Paint(how Paint, text string) string {
	if !s.Color || text == "" || how == "" {
		return text
	}
	return "\x1b[" + string(how) + "m" + text + "\x1b[0m"
}

// glyphs are the signs that a stream without UTF-8 shows in other words.
var glyphs = map[string]string{
	"✔": "ok", "✖": "x", "…": ">", "↻": ">", "▶": ">", "×": "x", "–": "-", "−": "-", "·": "-", "▲": "^", "▼": "v", "▒": ":", "≤": "<=", "≥": ">=",
	"█": "#", "░": ".",
}

// Glyph is one of ✔ ! ✖ ? … ↻ × as the stream shows it.
func (s Style) Glyph(g string) string {
	if s.ASCII {
		if plain, ok := glyphs[g]; ok {
			return plain
		}
	}
	return g
}

// Plain is a text of ours as the stream shows it: in ASCII where it takes no UTF-8.
func (s Style) Plain(text string) string {
	if !s.ASCII {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch plain, ok := glyphs[string(r)]; {
		case ok:
			b.WriteString(plain)
		case r > '~':
			b.WriteByte('?')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Bar draws a share as a bar of so many columns. What is not full never looks full.
func (s Style) Bar(share float64, columns int) string {
	if math.IsNaN(share) {
		share = 0
	}
	share = max(0, min(share, 1))
	if s.ASCII {
		n := min(int(share*float64(columns)), columns)
		return strings.Repeat("#", n) + strings.Repeat(".", columns-n)
	}
	eighths := min(int(share*float64(columns)*8), columns*8)
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return bar + strings.Repeat("░", columns-Columns(bar))
}
