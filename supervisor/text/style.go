package text

import (
	"math"
	"strings"
)

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
