package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// steering is every character that moves a terminal, breaks a line or turns the direction
// of writing.
func steering() string {
	var b strings.Builder
	for r := rune(0); r < 0xa0; r++ {
		if r < ' ' || r >= 0x7f {
			b.WriteRune(r)
		}
	}
	b.WriteString("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\U000e0001")
	return b.String()
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"python3 train.py é 漢 …": "python3 train.py é 漢 …",
		"a\x1b[31m\tb\r\nc":      "a\ufffd[31m b  c",
		"\u009b31m\u202eb\xff":   "\ufffd31m\ufffdb\ufffd",
		"a\u00a0b\u2028c\u0085d": "a b c d",
	} {
		if got := Plain(in); got != want || Plain(got) != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := strings.Trim(Plain(steering()), " \ufffd"); got != "" {
		t.Errorf("left as they are: %q", got)
	}
}

func TestJSON(t *testing.T) {
	in := steering() + "é漢😀\"\\"
	doc, err := json.Marshal(map[string]string{"comm": in})
	if err != nil {
		t.Fatal(err)
	}
	got := JSON(doc)
	for _, r := range steering() {
		if strings.ContainsRune(string(got), r) {
			t.Errorf("%U is in it as it is", r)
		}
	}
	var out map[string]string
	if err := json.Unmarshal(got, &out); err != nil || out["comm"] != in {
		t.Errorf("read %q, %v", out, err)
	}
	if got := JSON([]byte("\"a\xffb\"")); string(got) != `"a\ufffdb"` || !utf8.Valid(got) {
		t.Errorf("no UTF-8: %q", got)
	}
	if plain := []byte(`{"a":"é漢"}`); &JSON(plain)[0] != &plain[0] {
		t.Error("copied what needs no change")
	}
}

// FuzzPlain: whatever comes in, one line comes out that is UTF-8, of what prints alone,
// and the same again where it comes in twice.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"python3", "\x1b]0;owned\x07", "\u009b31m", "\u202e\u2066", "a\r\nb", "\xff\xc0\x80", "\ue000\U000e0001", "\u2028", "漢 é 😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Plain(s)
		if !utf8.ValidString(got) || Plain(got) != got {
			t.Errorf("%q: %q", s, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%q: %U is left", s, r)
			}
		}
	})
}
