package screen

import (
	"slices"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		in    string
		final bool
		want  []Key
		rest  string
	}{
		{in: "jq", want: []Key{"j", "q"}},
		{in: "\x1b[A\x1b[B\x1b[C\x1b[D", want: []Key{KeyUp, KeyDown, KeyRight, KeyLeft}},
		{in: "\x1bOA\x1bOH\x1bOF\x1bOM", want: []Key{KeyUp, KeyHome, KeyEnd, KeyEnter}},
		{in: "\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[7~\x1b[8~", want: []Key{KeyPageUp, KeyPageDown, KeyHome, KeyEnd, KeyHome, KeyEnd}},
		{in: "\x1b[1;5A", want: []Key{KeyUp}}, // with Ctrl
		{in: "\t\r\n\x7f\x08\x15\x03\x1a\x0c\x1c", want: []Key{KeyTab, KeyEnter, KeyEnter, KeyBackspace, KeyBackspace, KeyCtrlU, KeyCtrlC, KeyCtrlZ, KeyCtrlL, KeyCtrlC}},
		{in: "ä数", want: []Key{"ä", "数"}},
		{in: "a\xe6\x95", want: []Key{"a"}, rest: "\xe6\x95"},
		{in: "\xff\xfeq", want: []Key{"q"}},
		// An escape alone is a key once nothing follows it.
		{in: "\x1b", rest: "\x1b"},
		{in: "\x1b", final: true, want: []Key{KeyEscape}},
		{in: "\x1b\x1b[A", want: []Key{KeyEscape, KeyUp}},
		{in: "\x1b[", rest: "\x1b["},
		{in: "\x1b[", final: true},
		{in: "\x1b[1;", rest: "\x1b[1;"},
		// What means nothing here is no key: Alt-q, F5, F1 of the Linux console, a
		// mouse, a terminal's answer, text pasted in brackets.
		{in: "\x1bqx", want: []Key{"x"}},
		{in: "\x1b[15~x", want: []Key{"x"}},
		{in: "\x1b[[Ax", want: []Key{"x"}},
		{in: "\x1b[<0;3;4mx", want: []Key{"x"}},
		{in: "\x1b[?62;1cx", want: []Key{"x"}},
		{in: "\x1b[200~x\x1b[201~", want: []Key{"x"}},
		{in: "\x1b[12\x03", want: []Key{KeyCtrlC}}, // broken off
	} {
		got, rest := decode([]byte(tt.in), tt.final)
		if !slices.Equal(got, tt.want) || string(rest) != tt.rest {
			t.Errorf("decode(%q, %v) = %q, rest %q; want %q, %q", tt.in, tt.final, got, rest, tt.want, tt.rest)
		}
	}
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
