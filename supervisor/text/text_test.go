package text

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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

// check wants a text of each value.
func check[V comparable](t *testing.T, name string, text func(V) string, cases map[V]string) {
	t.Helper()
	for v, want := range cases {
		if got := text(v); got != want {
			t.Errorf("%s(%.20v) = %q, want %q", name, v, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	const ms, day = time.Millisecond, 24 * time.Hour
	check(t, "About", About, map[float64]string{
		0: "0 s", 40: "40 s", 99: "99 s", 100: "2 min", 120: "2 min", 720: "12 min", 5400: "90 min",
		7200: "2.0 h", 12600: "3.5 h", 864000: "10 d",
	})
	check(t, "Count of processes", func(n int) string { return Count(n, "process") }, map[int]string{
		0: "0 processes", 1: "1 process", 2: "2 processes", 1200: "1,200 processes",
	})
	check(t, "Span", Span, map[time.Duration]string{
		0: "0 s", 400 * time.Microsecond: "0.4 ms", 7 * ms: "7 ms", 999 * ms: "999 ms", time.Second - time.Microsecond: "1 s",
		1200 * ms: "1.2 s", 3 * time.Second: "3 s", 9940 * ms: "9.9 s", 9990 * ms: "10 s", 40400 * ms: "40 s", 59600 * ms: "1 min 00 s",
		103 * time.Second: "1 min 43 s", time.Hour - 1: "1 h 00 min", 65 * time.Minute: "1 h 05 min", 3*day + 2*time.Hour: "3 d 02 h",
		-1200 * ms: "-1.2 s", math.MinInt64: "-106751 d 23 h",
	})
	check(t, "Seconds", Seconds, map[float64]string{0.25: "250 ms", 90: "1 min 30 s", math.Inf(1): Span(1e9 * time.Second)})
	check(t, "Percent", Percent, map[float64]string{
		0: "0 %", 0.414: "41 %", 0.984: "98 %", 0.992: "99.2 %", 0.9999: "99.9 %", 1: "100 %", 1.3: "130 %",
	})
}

func TestList(t *testing.T) {
	all := []int{12, 13, 14, 15}
	for want, got := range map[string]string{
		"": List(all[:0], All), "12": List(all[:1], All), "12 and 13": List(all[:2], 2), "12, 13 and 14": List(all[:3], 3),
		"12, 13, 14 and 15": List(all, 4), "12, 13 and 2 more": List(all, 3),
		"rank 12": Named("rank", all[:1]), "processes 12 and 13": Named("process", all[:2]),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSimilar(t *testing.T) {
	names := []string{"limit", "at", "dry-run", "trim", "trim-private", "worker-signal", "quiet"}
	check(t, "Similar", func(word string) string { return Similar(word, names) }, map[string]string{
		"limt": "limit", "limits": "limit", "Limit": "limit", "lmiit": "limit", "dry_run": "dry-run", "DRYRUN": "dry-run",
		"--limit": "limit", "worker.signal": "worker-signal", "trimm": "trim", "trim_priv": "", "At": "at", "it": "at",
		"": "", "x": "", "colour": "", "limitation": "", strings.Repeat("limit", 1000): "",
	})
}

// TestCommand: a command line is as a shell would read it, on one short line.
func TestCommand(t *testing.T) {
	for want, args := range map[string][]string{
		`python train.py --lr=1e-3`:                  {"python", "train.py", "--lr=1e-3"},
		`python3 -c $'import time\nx=[\'a\\b\']'`:    {"python3", "-c", "import time\nx=['a\\b']"},
		`sh -c 'echo "$HOME"; it'\''s' ''`:           {"sh", "-c", `echo "$HOME"; it's`, ""},
		`printf $'\x1b]0;owned\x07\t'`:               {"printf", "\x1b]0;owned\x07\t"},
		"rm '*' \uFFFDname":                          {"rm", "*", "\u202ename"},
		`python3 -c $'import numpy, torch\nimport …`: {"python3", "-c", "import numpy, torch\nimport time, sys"},
		`sh -c $'a\nb\x1b[31m'`:                      {"sh", "-c", "a\nb\x1b[31m"},
		"\uFFFDb\uFFFDé\uFFFD x":                     {"\u202eb\u009bé\xff\u2028x"},
	} {
		if got := Command(args, 42); got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

// FuzzCommand: whatever the words are, they are one line that steers nothing and
// has no more columns than it may.
func FuzzCommand(f *testing.F) {
	f.Add("python3", "-c", 20)
	f.Add("\x1b[2J", "\u202e\xff", 8)
	f.Add("数据加载器", "a\nb", 5)
	f.Fuzz(func(t *testing.T, one, two string, columns int) {
		columns = max(0, columns%200)
		got := Command([]string{one, two}, columns)
		if Columns(got) > columns || Plain(got) != got || strings.Contains(got, "\n") {
			t.Errorf("%q %q in %d: %q", one, two, columns, got)
		}
	})
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"python", 6, "python"}, {"python", 5, "pyth…"}, {"python", 1, "…"}, {"python", 0, ""}, {"", 0, ""},
		{"0123é6789", 5, "0123…"}, {"数据加", 6, "数据加"}, {"数据加", 5, "数据…"}, {"数据加", 4, "数…"},
	} {
		if got := Cut(c.in, c.columns); got != c.want || Columns(got) > c.columns {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"short", 10, "short"},
		{"/home/user/projects/train.py", 13, "/home/…ain.py"},
		{"漢字漢字漢字", 7, "漢字…字"},
		{"abc", 2, "a…"},
		{"abc", 0, ""},
	} {
		got := Middle(c.in, c.columns)
		if got != c.want || Columns(got) > c.columns {
			t.Errorf("%q in %d columns: %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"one two three", 9, "one two|three"}, {"", 5, ""}, {"a 12.5 GiB of it", 6, "a|12.5 GiB|of it"},
		{"/a/long/path is one", 6, "/a/long/path|is one"}, {"数据 加载", 5, "数据|加载"},
	} {
		if got := strings.Join(Wrap(c.in, c.width), "|"); got != c.want {
			t.Errorf("Wrap(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

// TestHang: no line is wider than the stream; where little room is left text is below head.
func TestHang(t *testing.T) {
	for _, c := range []struct {
		head, text    string
		indent, width int
		want          []string
	}{
		{"ok", "a limit of 3 GiB was read from RLIMIT_RSS", 10, 40, []string{"ok        a limit of 3 GiB was read from", "          RLIMIT_RSS"}},
		{"  ok", "a limit of 3 GiB was read from RLIMIT_RSS", 10, 30, []string{"  ok", "    a limit of 3 GiB was read", "    from RLIMIT_RSS"}},
		{"", "do: this", 10, 30, []string{"  do: this"}},
		{"ok", "at /sys/fs/cgroup/memory/slurm/uid_1000/job_4711", 10, 40, []string{"ok        at", "          /sys/fs/cgroup/…_1000/job_4711"}},
		{"", "a word", 0, 3, []string{"a", "w…d"}},
	} {
		if diff := cmp.Diff(c.want, Hang(c.head, c.indent, c.text, c.width)); diff != "" {
			t.Errorf("%q at %d:\n%s", c.text, c.width, diff)
		}
	}
}

func TestBar(t *testing.T) {
	utf, ascii := Style{}, Style{ASCII: true}
	for _, c := range []struct {
		share       float64
		utf8, ascii string
	}{
		{0, "░░░░░░░░░░", ".........."},
		{0.53, "█████▎░░░░", "#####....."},
		{0.999, "█████████▉", "#########."},
		{1.52, "██████████", "##########"},
		{-1, "░░░░░░░░░░", ".........."},
	} {
		if got := utf.Bar(c.share, 10); got != c.utf8 {
			t.Errorf("%v: %q, want %q", c.share, got, c.utf8)
		}
		if got := ascii.Bar(c.share, 10); got != c.ascii {
			t.Errorf("%v: %q, want %q", c.share, got, c.ascii)
		}
	}
}

func TestStyleWithoutUTF8(t *testing.T) {
	s := Style{ASCII: true, Color: true}
	if got, want := s.Paint(Red, s.Plain("✖ 1.5 × peak é")), "\x1b[31mx 1.5 x peak ?\x1b[0m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
