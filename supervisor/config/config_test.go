package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var testKeys = []Key{
	{Name: "limit"}, {Name: "stop-status"}, {Name: "quiet", Kind: Truth}, {Name: "dry-run", Kind: Truth}, {Name: "at", Kind: List},
	{Name: "worker-signal"}, {Name: "trim-private", Kind: Truth},
}

// TestParse: what is used of a file, and what is said about the rest. A name in capitals is
// that of a site's file, which may lock.
func TestParse(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct{ name, text string }{
		{"nothing", ""},
		{"comments", "# one\n\n  # two\n"},
		{"every kind", "limit = \"3G\"\nstop-status = 85\n quiet = true\ndry-run=false\nat = [\n \"none\", # first\n '95%:stop',\n]\n"},
		{"a list of one", `at = "95%:stop"`},
		{"a list of none", `at = []`},
		{"byte order mark, CRLF", "\xef\xbb\xbflimit = '3G'\r\nquiet = true\r\n"},
		{"quoted key", `"limit" = "3G"`},
		{"the rest is kept", "limt = '1'\nquiet = true\nfoo = 1\nlimit = [1]\n"},
		{"tables", "[worker]\nsignal = 'TERM'\n[other]\nx = 1\n[[stop]]\nstatus = 1\n"},
		{"a table of a known name", "limit = {max = '3G'}\nquiet.now = true\n"},
		{"wrong sorts", "quiet = 1\ndry-run = 'yes'\nlimit = 1.5\nat = 85\nstop-status = 1979-05-27\nworker-signal = true\n"},
		{"a list of numbers", "at = [1]"},
		{"unquoted", "quiet = true\nlimit = 3G\n"},
		{"a user's file may not lock", "lock = ['limit']\nquiet = true"},
		{"A SITE'S FILE MAY", "lock = ['trim-private', 'worker-signal']\ntrim-private = false"},
		{"LOCKS WHAT IS NOT THERE", "lock = ['limt', 'lock', 'quiet']"},
		{"LOCKS ALL", "lock = true"},
	} {
		f, problems := Parse("f.toml", []byte(c.text), testKeys, strings.ToUpper(c.name) == c.name)
		fmt.Fprintf(&got, "== %s\n", c.name)
		for _, k := range slices.Sorted(maps.Keys(f.Values)) {
			v := f.Values[k]
			fmt.Fprintf(&got, "%d:%d %s = %q\n", v.Line, v.Col, k, v.Values)
		}
		if len(f.Lock) > 0 {
			fmt.Fprintf(&got, "locks %q\n", slices.Sorted(maps.Keys(f.Lock)))
		}
		for _, p := range problems {
			fmt.Fprintf(&got, "%d:%d %s | %s\n", p.Line, p.Col, p.Says, p.Hint)
		}
	}
	golden.Check(t, "testdata/parse.txt", got.String())
}

func TestProblemNamesThePlace(t *testing.T) {
	f, _ := Parse("a/f.toml", []byte("\n  limit = 'lots'"), testKeys, false)
	if got := f.Problem("limit", `limit "lots" is not a size`, "").Error(); got != `a/f.toml:2:3: limit "lots" is not a size` {
		t.Error(got)
	}
	if got := (&Problem{Path: "f.toml", Says: "is odd"}).Error(); got != "f.toml: is odd" {
		t.Error(got)
	}
}

// FuzzParse: nothing panics, and whatever is in a file is either a value of
// a known key or a problem.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"limit = \"3G\"\nat = [\"none\"]\nquiet = true\nlock = [\"limit\"]\n", "limt = 1", "[worker]\nsignal=1", "a.b.c = 1",
		"limit = '''\nx'''", "at = [[[[]]]]", "limit = 1e400", "\"\" = 1", "limit = 1979-05-27T07:32:00Z", "\xff\xfe", "limit = 3G", "[[a]]\n[[a]]\nb=1",
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, locks bool) {
		file, problems := Parse("f", text, testKeys, locks)
		for _, p := range problems {
			if strings.Contains(p.Says, "cannot be read") {
				t.Errorf("the parser panicked: %v", p)
			}
			if p.Says == "" || p.Hint == "" || p.Path != "f" {
				t.Errorf("%+v says too little", p)
			}
			if p.Line < 0 || p.Line > strings.Count(string(text), "\n")+1 {
				t.Errorf("%v lies outside of %d bytes", p, len(text))
			}
		}
		for name, v := range file.Values {
			if v.Line == 0 || v.Values == nil {
				t.Errorf("%s has no place or no values: %+v", name, v)
			}
		}
		// One more unknown key is one more problem, unless the text
		// could not be read at all, or then no longer can.
		more, again := Parse("f", append([]byte("unheard-of = 1\n"), text...), testKeys, locks)
		if len(more.Values) != len(file.Values) {
			return
		}
		for _, p := range again {
			if p.Says == `unknown key "unheard-of"` && p.Line == 1 {
				return
			}
		}
		if len(again) != 1 || len(more.Values) != 0 {
			t.Errorf("an unknown key was not reported: %v", again)
		}
	})
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for size, want := range map[int]string{MaxSize: "<nil>", MaxSize + 1: "longer than 64 KiB"} {
		path := filepath.Join(dir, "file")
		wardentest.Write(t, path, strings.Repeat("#", size))
		if text, err := Read(path); fmt.Sprint(err) != want || err == nil && len(text) != size {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	}
	if _, err := Read("/dev/zero"); err == nil || err.Error() != "longer than 64 KiB" {
		t.Error(err)
	}
	if text, err := Read("/dev/null"); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Read(dir); !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), dir) {
		t.Errorf("%v does not say ENOENT, or repeats the path", err)
	}
}

// TestReadTrusted: only root's file is obeyed, and that as root alone can have made it.
func TestReadTrusted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site.toml")
	wardentest.Write(t, path, "quiet = true\n")
	if text, err := ReadTrusted(path); (err == nil) != (os.Getuid() == 0) || err == nil && string(text) != "quiet = true\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ReadTrusted("/dev/null"); err == nil {
		t.Error("a device was read")
	}
	for _, c := range []struct {
		owner uint32
		mode  fs.FileMode
		want  string
	}{
		{0, 0o644, "<nil>"},
		{0, 0o755, "<nil>"},
		{0, 0o664, "its mode 0664 lets others than root write it"},
		{0, 0o646, "its mode 0646 lets others than root write it"},
		{1000, 0o644, "it belongs to user 1000, not to root"},
		{0, fs.ModeDir | 0o755, "it is not a regular file"},
		{0, fs.ModeNamedPipe | 0o644, "it is not a regular file"},
		{0, fs.ModeDevice | 0o644, "it is not a regular file"},
	} {
		if got := fmt.Sprint(distrust(c.owner, c.mode)); got != c.want {
			t.Errorf("%d %v: %q, want %q", c.owner, c.mode, got, c.want)
		}
	}
}
