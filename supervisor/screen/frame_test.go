package screen

import (
	"strings"
	"testing"
	"unicode"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

func TestClean(t *testing.T) {
	for _, tt := range []struct {
		in, unicode, ascii string
		width              int
	}{
		{"python3", "python3", "python3", 7},
		{"\x1b[31mred\x1b[0m", "?[31mred?[0m", "?[31mred?[0m", 12},
		{"a\tb\nc\rd\x00\x7f", "a b c d??", "a b c d??", 9},
		{"数据", "数据", "??", 4},
		{"한글か", "한글か", "???", 6},
		{"🐍", "🐍", "?", 2},
		{"é", "é", "?", 1},
		{"e\u0301x", "ex", "e?x", 2},
		{"\xff\xfe", "??", "??", 2},
		{"a\u202eb\u200bc\u009bd", "a?b?c?d", "a?b?c?d", 7},
	} {
		if got := clean(tt.in, text.Style{}); got != tt.unicode || text.Columns(got) != tt.width {
			t.Errorf("clean(%q) = %q of %d columns, want %q of %d", tt.in, got, text.Columns(got), tt.unicode, tt.width)
		}
		if got := clean(tt.in, text.Style{ASCII: true}); got != tt.ascii {
			t.Errorf("clean(%q) in ASCII = %q, want %q", tt.in, got, tt.ascii)
		}
	}
}

// FuzzPut: whatever a name has in it, a text stays in its place and steers
// nothing.
func FuzzPut(f *testing.F) {
	for _, s := range []string{"python", "数据加载器", "\x1b[2J", "e\u0301", "\xff", "a🐍b", "\u202e"} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, s string, end int) {
		for _, look := range []text.Style{{ASCII: true}, {}} {
			frame := newFrame(12, 1, look)
			end = max(3, min(end, 12))
			last := frame.put(3, 0, end, Plain, s)
			for x, c := range frame.line(0) {
				switch {
				case (x < 3 || x >= last || x >= end) && c != blank:
					t.Fatalf("%q: %q at %d, outside 3 to %d of %d", s, c.r, x, last, end)
				case c.r == 0 && (x == 0 || text.Width(frame.line(0)[x-1].r) != 2):
					t.Fatalf("%q: half a character at %d", s, x)
				case c.r != 0 && !unicode.IsPrint(c.r), look.ASCII && c.r > '~':
					t.Fatalf("%q: %q at %d", s, c.r, x)
				}
			}
			for _, line := range folded(clean(s, look), 10) {
				if text.Columns(line) > 10 {
					t.Fatalf("%q: folded to %q", s, line)
				}
			}
		}
	})
}

func TestFolded(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"  name    one two three", 20, "  name    one two|          three"},
		{"  name    one two three", 16, "  name    one|  two three"},
		{"one two three", 11, "one two|  three"},
		{"abcdefghijklmnopqrst", 10, "abcdefghij|  klmnopqr|  st"},
		{"", 5, ""},
	} {
		if got := strings.Join(folded(tt.in, tt.width), "|"); got != tt.want {
			t.Errorf("folded(%q, %d) = %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}
