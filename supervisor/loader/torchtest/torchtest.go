// Package torchtest has the Pythons and the PyTorchs that tests run on.
package torchtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// Python is the interpreter of this machine whose torch the hook is claimed for.
const Python = "/usr/bin/python3"

// Stand is a Python with a torch.
type Stand struct {
	Name    string       // of subtests
	suite   debian.Suite // the root that it is in; empty for this machine
	torch   string       // the version's beginning; empty for any
	modules []string     // what else must be there
	once    sync.Once
	why     string // it cannot be used
	warm    warm
}

// Newest is the newest torch that Debian has: 2.14.1 on Python 3.14 when this was written.
var (
	Torch113 = &Stand{Name: "torch1.13", torch: "1.13.", modules: []string{"numpy", "lmdb"}}
	Torch26  = &Stand{Name: "torch2.6", suite: debian.Trixie, torch: "2.6.", modules: []string{"numpy", "lmdb", "h5py"}}
	Newest   = &Stand{Name: "torch of sid", suite: debian.Sid, modules: []string{"numpy", "lmdb", "h5py"}}
	Stands   = []*Stand{Torch113, Torch26, Newest}
)

// Command runs a program where the stand is; it skips the test where that cannot be.
func (s *Stand) Command(tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	if s.suite == "" {
		return exec.Command(name, args...)
	}
	return debian.Need(tb, s.suite).Command(name, args...)
}

// Need skips the test where the stand is not there.
func (s *Stand) Need(tb testing.TB) {
	tb.Helper()
	// Not by an import, which takes seconds.
	const find = `import importlib.util as u, sys
specs = {name: u.find_spec(name) for name in sys.argv[1:]}
assert all(specs.values()), specs
scope = {}
exec(open(specs["torch"].submodule_search_locations[0] + "/version.py").read(), scope)
print(scope["__version__"])`
	cmd := s.Command(tb, Python, append([]string{"-c", find, "torch"}, s.modules...)...)
	s.once.Do(func() {
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.why = fmt.Sprintf("no %s: %v: %s", s.Name, err, out)
		} else if !bytes.HasPrefix(out, []byte(s.torch)) {
			s.why = fmt.Sprintf("no %s: %s has torch %s", s.Name, Python, bytes.TrimSpace(out))
		}
	})
	if s.why != "" {
		tb.Skip(s.why)
	}
}

// Run returns what the stand's Python prints; an error of it ends the test. Without env it
// has the test's environment.
func (s *Stand) Run(tb testing.TB, env []string, args ...string) string {
	tb.Helper()
	return run(tb, s.Command(tb, Python, args...), env)
}

// Run returns what this machine's Python prints, with torch or without.
func Run(tb testing.TB, env []string, args ...string) string {
	tb.Helper()
	return run(tb, exec.Command(Python, args...), env)
}

func run(tb testing.TB, cmd *exec.Cmd, env []string) string {
	tb.Helper()
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%q: %v: %s", cmd.Args, err, out)
	}
	return string(out)
}

// Turn says whether the stand runs case i: each case has one stand, the newest has the
// first, and all stands run all of them with RSSWARDEN_ENDURANCE.
func (s *Stand) Turn(i int) bool {
	return wardentest.Few(1, 0) == 1 || slices.Index(Stands, s) == len(Stands)-1-i%len(Stands)
}

// Each runs a test on each stand.
func Each(t *testing.T, test func(t *testing.T, s *Stand)) {
	t.Helper()
	each(t, func(*Stand) bool { return true }, test)
}

func each(t *testing.T, keep func(*Stand) bool, test func(t *testing.T, s *Stand)) {
	t.Helper()
	for _, s := range Stands {
		if keep(s) {
			t.Run(s.Name, func(t *testing.T) {
				s.Need(t)
				test(t, s)
			})
		}
	}
}

// On runs a test on one stand, and with RSSWARDEN_ENDURANCE on all: of what does not depend
// on torch's version, or seldom.
func On(t *testing.T, one *Stand, test func(t *testing.T, s *Stand)) {
	t.Helper()
	each(t, func(s *Stand) bool { return s == one || wardentest.Few(1, 0) == 1 }, test)
}

// EachCase runs a test for each case on the stands whose turn it is, side by side. Without
// name a case is named by its text.
func EachCase[C any](t *testing.T, cases []C, name func(C) string, test func(t *testing.T, s *Stand, c C)) {
	t.Helper()
	if name == nil {
		name = func(c C) string { return fmt.Sprint(c) }
	}
	Each(t, func(t *testing.T, s *Stand) {
		for i, c := range cases {
			if s.Turn(i) {
				t.Run(name(c), func(t *testing.T) {
					t.Parallel()
					test(t, s, c)
				})
			}
		}
	})
}

// Interpreter is a Python of this machine.
type Interpreter struct {
	Path         string
	Name         string // "cpython 3.11"
	Major, minor int
}

// Run returns what it prints; an error of it ends the test.
func (i Interpreter) Run(tb testing.TB, env []string, args ...string) string {
	tb.Helper()
	return run(tb, exec.Command(i.Path, args...), env)
}

// AtLeast says whether it has that version.
func (i Interpreter) AtLeast(major, minor int) bool {
	return i.Major > major || i.Major == major && i.minor >= minor
}

// Armed says whether the hook does anything in it.
func (i Interpreter) Armed() bool { return strings.HasPrefix(i.Name, "cpython") && i.AtLeast(3, 8) }

// Interpreters returns every Python that keep takes: the one with torch, on PATH, and of
// pyenv. Where there is none the test is skipped.
func Interpreters(tb testing.TB, keep func(Interpreter) bool) []Interpreter {
	tb.Helper()
	list := slices.DeleteFunc(slices.Clone(interpreters()), func(i Interpreter) bool { return !keep(i) })
	if len(list) == 0 {
		tb.Skip("no such Python here")
	}
	return list
}

var interpreters = sync.OnceValue(func() (list []Interpreter) {
	candidates := []string{Python}
	for _, name := range []string{"python3", "python", "python2", "pypy3"} {
		if p, err := exec.LookPath(name); err == nil {
			candidates = append(candidates, p)
		}
	}
	home, _ := os.UserHomeDir()
	for _, root := range []string{os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")} {
		found, _ := filepath.Glob(filepath.Join(root, "versions/*/bin/python"))
		candidates = append(candidates, found...)
	}
	const ask = `import sys
try: name = sys.implementation.name
except AttributeError: name = "cpython"
print("%s %d %d %s" % ((name,) + sys.version_info[:2] + (sys.executable,)))`
	for _, c := range candidates {
		cmd := exec.Command(c, "-c", ask)
		cmd.Env = CleanEnv()
		out, err := cmd.Output()
		var i Interpreter
		var kind string
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(out), &kind, &i.Major, &i.minor, &i.Path); err != nil {
			continue
		}
		i.Name = fmt.Sprintf("%s %d.%d", kind, i.Major, i.minor)
		if !slices.ContainsFunc(list, func(o Interpreter) bool { return o.Name == i.Name }) {
			list = append(list, i)
		}
	}
	return list
})

// CleanEnv is the environment without what steers a Python.
func CleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PYTHON") || strings.HasPrefix(kv, "RSSWARDEN")
	})
}

// Inert reads what supervisor/loader/inert.md lists behind a paragraph that contains text: the
// keys of the probe that may differ in a Python of a job.
func Inert(tb testing.TB, text string) (keys []string) {
	tb.Helper()
	in := false
	for block := range strings.SplitSeq(wardentest.Read(wardentest.Path(tb, "supervisor/loader/inert.md")), "\n\n") {
		if !strings.HasPrefix(block, "- ") {
			in = strings.Contains(strings.ReplaceAll(block, "\n", " "), text)
			continue
		}
		for line := range strings.Lines(block) {
			if in {
				keys = append(keys, strings.Split(line, "`")[1])
			}
		}
	}
	if len(keys) == 0 {
		tb.Fatalf("inert.md lists nothing behind %q", text)
	}
	return keys
}

// Matches says whether a listed key, in which an asterisk stands for any text, slashes too, is
// this one.
func Matches(listed, key string) bool {
	flat := strings.NewReplacer("/", "\x01")
	ok, err := path.Match(flat.Replace(listed), flat.Replace(key))
	return err == nil && ok
}
