package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testKeys = []Key{
	{Name: "limit"}, {Name: "stop-status"}, {Name: "quiet", Kind: Truth}, {Name: "dry-run", Kind: Truth}, {Name: "at", Kind: List},
	{Name: "worker-signal"}, {Name: "trim-private", Kind: Truth}, {Name: "limit-soft", Removed: "write limit = SIZE"},
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		locks      bool
		want       map[string]Value
		lock       []string
		problems   []string // "line:col says | hint"
	}{
		{name: "nothing", text: "", want: map[string]Value{}},
		{name: "comments", text: "# one\n\n  # two\n", want: map[string]Value{}},
		{
			name: "every kind", text: "limit = \"3G\"\nstop-status = 85\n quiet = true\ndry-run=false\nat = [\n \"none\", # first\n '95%:stop',\n]\n",
			want: map[string]Value{
				"limit": {[]string{"3G"}, Place{1, 1}}, "stop-status": {[]string{"85"}, Place{2, 1}},
				"quiet": {[]string{"true"}, Place{3, 2}}, "dry-run": {[]string{"false"}, Place{4, 1}},
				"at": {[]string{"none", "95%:stop"}, Place{5, 1}},
			},
		},
		{name: "a list of one", text: `at = "95%:stop"`, want: map[string]Value{"at": {[]string{"95%:stop"}, Place{1, 1}}}},
		{name: "a list of none", text: `at = []`, want: map[string]Value{"at": {[]string{}, Place{1, 1}}}},
		{name: "byte order mark, CRLF", text: "\xef\xbb\xbflimit = '3G'\r\nquiet = true\r\n", want: map[string]Value{
			"limit": {[]string{"3G"}, Place{1, 1}}, "quiet": {[]string{"true"}, Place{2, 1}},
		}},
		{name: "quoted key", text: `"limit" = "3G"`, want: map[string]Value{"limit": {[]string{"3G"}, Place{1, 1}}}},
		{
			name: "the rest is kept", text: "limt = '1'\nquiet = true\nfoo = 1\nlimit = [1]\n",
			want: map[string]Value{"quiet": {[]string{"true"}, Place{2, 1}}},
			problems: []string{
				`1:1 unknown key "limt" | did you mean limit?`,
				`3:1 unknown key "foo" | keys are the names of the options without their dashes: limit, stop-status, quiet, dry-run, at, worker-signal, trim-private`,
				`4:1 limit cannot be a list | write it in quotes: limit = "…"`,
			},
		},
		{
			name: "tables", text: "[worker]\nsignal = 'TERM'\n[other]\nx = 1\n[[stop]]\nstatus = 1\n", want: map[string]Value{},
			problems: []string{
				`1:2 unknown key "worker" | there are no tables; write worker-signal = …`,
				`3:2 unknown key "other" | there are no tables: every line is NAME = VALUE, with the name of an option`,
				`5:3 unknown key "stop" | keys are the names of the options without their dashes: limit, stop-status, quiet, dry-run, at, worker-signal, trim-private`,
			},
		},
		{
			name: "a table of a known name", text: "limit = {max = '3G'}\nquiet.now = true\n", want: map[string]Value{},
			problems: []string{
				`1:1 limit cannot be a table | write it in quotes: limit = "…"`,
				`2:1 quiet cannot be a table | write quiet = true or quiet = false, without quotes`,
			},
		},
		{
			name: "wrong sorts", text: "quiet = 1\ndry-run = 'yes'\nlimit = 1.5\nat = 85\nstop-status = 1979-05-27\nworker-signal = true\n", want: map[string]Value{},
			problems: []string{
				"1:1 quiet cannot be a number | write quiet = true or quiet = false, without quotes",
				"2:1 dry-run cannot be a string | write dry-run = true or dry-run = false, without quotes",
				`3:1 limit cannot be a number with a fraction | write it in quotes: limit = "…"`,
				`4:1 at cannot be a number | write a list of strings: at = ["…", "…"]`,
				`5:1 stop-status cannot be a date or time | write it in quotes: stop-status = "…"`,
				`6:1 worker-signal cannot be true or false | write it in quotes: worker-signal = "…"`,
			},
		},
		{name: "unquoted", text: "quiet = true\nlimit = 3G\n", want: map[string]Value{}, problems: []string{
			`2:10 strings must be quoted | a line is NAME = VALUE: limit = "3G", quiet = true, at = ["85%:trim"]; text is in quotes`,
		}},
		{name: "a user's file may not lock", text: "lock = ['limit']\nquiet = true", want: map[string]Value{"quiet": {[]string{"true"}, Place{2, 1}}}, problems: []string{
			"1:1 only the site's own file may lock options | leave this line out",
		}},
		{name: "a site's file may", text: "lock = ['trim-private', 'worker-signal']\ntrim-private = false", locks: true,
			want: map[string]Value{"trim-private": {[]string{"false"}, Place{2, 1}}}, lock: []string{"trim-private", "worker-signal"}},
		{name: "locks what is not there", text: "lock = ['limt', 'lock', 'quiet']", locks: true, want: map[string]Value{}, lock: []string{"quiet"}, problems: []string{
			`1:1 unknown key "limt" in lock | did you mean limit?`,
			`1:1 unknown key "lock" in lock | keys are the names of the options without their dashes: limit, stop-status, quiet, dry-run, at, worker-signal, trim-private`,
		}},
		{
			name: "removed", text: "limit-soft = '3G'\nquiet = true\nlock = ['limit-soft', 'quiet']", locks: true,
			want: map[string]Value{"quiet": {[]string{"true"}, Place{2, 1}}}, lock: []string{"quiet"},
			problems: []string{"1:1 the option limit-soft was removed | write limit = SIZE", "3:1 the option limit-soft in lock was removed | write limit = SIZE"},
		},
		{name: "locks all", text: "lock = true", locks: true, want: map[string]Value{}, problems: []string{
			`1:1 lock cannot be true or false | write a list of names, such as lock = ["trim-private"]`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, problems := Parse("f.toml", []byte(c.text), testKeys, c.locks)
			if diff := cmp.Diff(c.want, f.Values); diff != "" {
				t.Errorf("values differ:\n%s", diff)
			}
			lock := map[string]bool{}
			for _, k := range c.lock {
				lock[k] = true
			}
			if diff := cmp.Diff(lock, f.Lock); diff != "" {
				t.Errorf("locks differ:\n%s", diff)
			}
			var got []string
			for _, p := range problems {
				got = append(got, fmt.Sprintf("%d:%d %s | %s", p.Line, p.Col, p.Says, p.Hint))
			}
			if diff := cmp.Diff(c.problems, got); diff != "" {
				t.Errorf("problems differ:\n%s", diff)
			}
		})
	}
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
