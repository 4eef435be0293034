package text

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
