package loader

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func age(dir string, days int) error {
	_, err := exec.Command("touch", "-d", fmt.Sprintf("%d days ago", days), dir).CombinedOutput()
	return err
}

// load is a program of testdata/loads, which imports what the hook waits for in its own way
// and prints the same bare. Its first line has the rest.
type load struct {
	name, code string
	hello      int  // how many processes say hello
	since      int  // the minor version of Python 3 from which on they do; 0: any
	one        bool // tried with one Python
}

func readLoads(t *testing.T) (list []load) {
	t.Helper()
	files, err := filepath.Glob("testdata/loads/*.py")
	wardentest.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		wardentest.NoError(t, err)
		head, code, _ := strings.Cut(string(text), "\n")
		l := load{name: strings.TrimSuffix(filepath.Base(file), ".py"), code: code, one: strings.Contains(head, "with one Python")}
		if _, err := fmt.Sscanf(head, "# hello: %d", &l.hello); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if _, since, ok := strings.Cut(head, "from Python 3."); ok {
			fmt.Sscan(since, &l.since)
		}
		list = append(list, l)
	}
	return list
}

// layTorch puts into dir what of torch the hook looks at, for Pythons that have none.
func layTorch(t testing.TB, dir string) {
	t.Helper()
	wardentest.NoError(t, os.CopyFS(dir, os.DirFS("testdata/liketorch")))
}

// saidIn counts the hellos in a run directory, and returns the reports of hooks that are
// off.
func saidIn(t testing.TB, dir string) (hello int, off string) {
	t.Helper()
	names, err := readDirNames(dir, 1000)
	wardentest.NoError(t, err)
	for _, name := range names {
		if _, ok := nodedir.ProcOf(name, "hello"); ok {
			hello++
		} else if _, ok := nodedir.ProcOf(name, "log"); ok {
			text, err := os.ReadFile(filepath.Join(dir, name))
			wardentest.NoError(t, err)
			if strings.Contains(string(text), `"off"`) {
				off += string(text)
			}
		} else if name != identityFile && !strings.HasPrefix(name, hookPrefix) {
			t.Errorf("%s in the run directory", name)
		}
	}
	return hello, off
}

func anyPython(torchtest.Interpreter) bool { return true }

// TestHookRefused: a hook that another user may have written, or that is not
// what it was, is not used, and Prepare tells why.
func TestHookRefused(t *testing.T) {
	for name, s := range map[string]struct {
		do   func(hook, parent string) error
		why  string
		root bool
	}{
		"a file of another user":  {func(h, _ string) error { return os.Chown(h+"/sitecustomize.py", 12345, 12345) }, "belongs to another user", true},
		"all of another user":     {func(h, _ string) error { return os.Chown(h, 12345, 12345) }, "belongs to another user", true},
		"above it another user":   {func(_, p string) error { return os.Chown(p, 12345, 12345) }, "belongs to another user", true},
		"parent open to a group":  {func(_, p string) error { return os.Chmod(p, 0o770) }, "written by others (mode 0770", false},
		"parent open to all":      {func(_, p string) error { return os.Chmod(p, 0o707) }, "written by others (mode 0707", false},
		"above it open to all":    {func(_, p string) error { return os.Chmod(p+"/../..", 0o777) }, "written by others", false},
		"hook open to all":        {func(h, _ string) error { return os.Chmod(h, 0o777) }, "written by others", false},
		"package open to a group": {func(h, _ string) error { return os.Chmod(h+"/_rsswarden", 0o720) }, "written by others", false},
		"file open to all":        {func(h, _ string) error { return os.Chmod(h+"/_rsswarden/patch.py", 0o602) }, "written by others", false},
		"a link to it": {func(h, p string) error {
			return errors.Join(os.Rename(h, p+"/planted"), os.Symlink("planted", h))
		}, "neither file nor directory", false},
		"a link in it": {func(h, p string) error {
			return errors.Join(os.Rename(h+"/sitecustomize.py", p+"/planted.py"), os.Symlink("../planted.py", h+"/sitecustomize.py"))
		}, "neither file nor directory", false},
		"a pipe in it": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/sitecustomize.py"), syscall.Mkfifo(h+"/sitecustomize.py", 0o600))
		}, "neither file nor directory", false},
		"changed": {func(h, _ string) error {
			return os.WriteFile(h+"/_rsswarden/guard.py", []byte("print('evil')\n"), 0o600)
		}, "has been changed", false},
		"cut short":        {func(h, _ string) error { return os.Truncate(h+"/_rsswarden/guard.py", 10) }, "has been changed", false},
		"a file is gone":   {func(h, _ string) error { return os.Remove(h + "/_rsswarden/guard.py") }, "is not whole", false},
		"a package beside": {func(h, _ string) error { return os.Mkdir(h+"/sitecustomize", 0o700) }, "does not belong there", false},
		"a library beside": {func(h, _ string) error { return os.WriteFile(h+"/sitecustomize.so", nil, 0o600) }, "does not belong there", false},
		"compiled files": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/__pycache__"), os.Mkdir(h+"/__pycache__", 0o700))
		}, "does not belong there", false},
		"a compiled file": {func(h, _ string) error {
			return errors.Join(os.Remove(h+"/sitecustomize.pyc"), os.WriteFile(h+"/sitecustomize.pyc", nil, 0o600))
		}, "does not belong there", false},
		"a file in its place": {func(h, p string) error {
			return errors.Join(os.Rename(h, p+"/other"), os.WriteFile(h, nil, 0o600))
		}, "does not belong there", false},
	} {
		t.Run(name, func(t *testing.T) {
			if s.root && os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			env := atHome(t, cleanEnv())
			good, err := Prepare(Options{Env: env})
			if err != nil || good.Passed != nil {
				t.Fatal(err, good.Passed)
			}
			defer Remove(good.Dir)
			wardentest.NoError(t, s.do(good.Hook, filepath.Dir(good.Hook)))
			p := prepare(t, env)
			if !strings.HasPrefix(p.Hook, p.Dir+"/") || checkHook(p.Hook) != nil {
				t.Errorf("hook in %s, run directory %s: %v", p.Hook, p.Dir, checkHook(p.Hook))
			}
			if p.Passed == nil || !strings.Contains(p.Passed.Error(), s.why) {
				t.Errorf("told %v, want %q", p.Passed, s.why)
			}
		})
	}
}

// TestColon: a colon would part the hook's name on PYTHONPATH, and what follows
// it is a directory that any user may make.
func TestColon(t *testing.T) {
	env := atHome(t, cleanEnv())
	home := filepath.Join(getEnv(env, "HOME"), "a:b")
	wardentest.NoError(t, os.Mkdir(home, 0o700))
	env = setEnv(env, "HOME", home)
	p := prepare(t, env)
	if strings.Contains(p.Hook, ":") || p.Passed == nil {
		t.Errorf("hook in %s, told %v", p.Hook, p.Passed)
	}
	// And where the run directory has one too, there is no hook at all.
	env = setEnv(env, EnvRuntime, home)
	q, err := Prepare(Options{Env: env})
	if err == nil || !slices.Equal(q.Env, env) {
		t.Errorf("%+v, %v", q, err)
	}
	if left, _ := os.ReadDir(home); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepHooks(t *testing.T) {
	parent := t.TempDir()
	wardentest.NoError(t, os.Chmod(parent, 0o700))
	old := func(hex string) string { return hookPrefix + strings.Repeat(hex, 16) }
	for name, days := range map[string]int{
		old("a"): 91, old("b"): 89, old("c") + ".7.tmp": 2, old("d") + ".8.tmp": 0, old("e") + "0": 400, "other": 400, "hook-": 400,
	} {
		dir := filepath.Join(parent, name)
		wardentest.NoError(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(dir+"/f", nil, 0o600), age(dir, days)))
	}
	wardentest.NoError(t, os.Symlink("/etc", filepath.Join(parent, old("f"))))
	dir, err := layHookIn(parent)
	wardentest.NoError(t, err)
	left, err := readDirNames(parent, 100)
	want := []string{"hook-", old("b"), old("d") + ".8.tmp", old("e") + "0", old("f"), filepath.Base(dir), "other"}
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, want %q, %v", left, want, err)
	}

	// Each start of a run notes that it is in use, once a day.
	for days, noted := range map[int]bool{0: false, 100: true} {
		wardentest.NoError(t, age(dir, days))
		before, err1 := os.Stat(dir)
		_, err2 := layHookIn(parent)
		after, err3 := os.Stat(dir)
		wardentest.NoError(t, errors.Join(err1, err2, err3))
		if got := !after.ModTime().Equal(before.ModTime()); got != noted {
			t.Errorf("after %d days: noted %v", days, got)
		}
	}
	// And that keeps it from the next version.
	sweepHooks(parent, "")
	if err := checkHook(dir); err != nil {
		t.Error(err)
	}
}

// TestSignalPassesGuard has a handler of the program's raise while the hook is
// at work, as torch's of SIGCHLD does when a worker has died: it must arrive.
func TestSignalPassesGuard(t *testing.T) {
	t.Parallel()
	torch113.Need(t)
	env, _ := hooked(t)
	out := torchtest.Run(t, env, "testdata/signalguard.py")
	if want := strings.Repeat("theirs False\n", 6) + "ours True\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// TestModules runs modules of the hook without torch.
func TestModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct{ name, script, arg, want string }{
		{"one ctl file over another, in place and within what the clock of a file system may tell apart: each is read",
			"ctlseen.py", dir, "7\n70\n71\n3\n"},
		{"a file that is open for writing too stays shared, and one that is only a place stays as it is",
			"offsets.py", dir, "True\n3 ['before', 'child', 'parent']\n"},
		{"each request to collect is done once", "collecthere.py", "once", "collected 3  True\ncollected 4  True\ncollected 5  True\n"},
		{"a C library without malloc_trim", "collecthere.py", "musl", "collected 1 no malloc_trim in this C library True\n"},
		{"a forked worker that shares most of its memory with its trainer leaves the shared part alone", "collecthere.py", "shared",
			"collected 1 no gc.collect: most of its memory is shared with the trainer True\nTrue\nTrue\n"},
		{"a fork server reaps a worker first and reports its status later; where the program waits for its children it is unknown", "reaped.py", "",
			"True True 0 {'exit': 7, 'why': ''}\nTrue True 0 {'exit': -1, 'why': 'exit status unknown: its fork server does not report it'}\n" +
				"True False 0 {'exit': -1, 'why': 'exit status unknown: the program itself reaped it'}\n"},
	} {
		if out := inHook(t, c.script, c.arg); out != c.want {
			t.Errorf("%s: got %q, want %q", c.name, out, c.want)
		}
	}
}

// TestLoadsWhatItNeeds: a program that imports torch and loads nothing has a small part of
// the hook; the rest comes with its first loader, and where that is gone by then the
// program does not notice.
func TestLoadsWhatItNeeds(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		for _, gone := range []bool{false, true} {
			env, dir := hooked(t)
			args := []string{script(t, "needs.py")}
			if gone {
				args = append(args, dir)
			}
			cmd := s.Command(t, python, args...)
			cmd.Env = env
			var faults strings.Builder
			cmd.Stderr = &faults
			out, err := cmd.Output()
			want := "['_rsswarden.channel', '_rsswarden.guard', '_rsswarden.patch']\n28\n" + map[bool]string{false: "True\n", true: "False\n"}[gone]
			if err != nil || string(out) != want || strings.Contains(faults.String(), "Traceback") {
				t.Errorf("the hook's directory is gone: %v: %v: got %s, want %s; errors: %s", gone, err, out, want, faults.String())
			}
			if _, off := saidIn(t, getEnv(env, EnvDir)); (off != "") != gone {
				t.Errorf("the hook's directory is gone: %v: off: %s", gone, off)
			}
		}
	})
}

// TestParsesAsPython2: the grammar of 2.7, print statement and all; what it lacks of 3 fails.
func TestParsesAsPython2(t *testing.T) {
	t.Parallel()
	const parse = `import sys, warnings
warnings.simplefilter("ignore")
from lib2to3 import pygram, pytree
from lib2to3.pgen2 import driver
text = open("hook/sitecustomize.py").read()
driver.Driver(pygram.python_grammar, convert=pytree.convert).parse_string(text)
import re
assert not re.search(r"\bf\"|\bf'|nonlocal|async|yield from|:=", text), "newer than 2.7"
assert all(ord(c) < 128 for c in text), "not ASCII"
`
	if out, err := exec.Command(python, "-c", "import lib2to3").CombinedOutput(); err != nil {
		t.Skipf("no lib2to3: %s", out)
	}
	torchtest.Run(t, os.Environ(), "-c", parse)
}

// TestLoad: however the module that the hook waits for is imported, the program
// sees what it sees bare, and the hook says hello where it should.
func TestLoad(t *testing.T) {
	loads := readLoads(t)
	for n, py := range torchtest.Interpreters(t, func(i torchtest.Interpreter) bool { return i.AtLeast(3, 8) }) {
		t.Run(py.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			layTorch(t, dir)
			for i, l := range loads {
				if n > 0 && l.one && py.Name != "cpython 3.13" && wardentest.Few(1, 0) == 0 {
					continue
				}
				if strings.Contains(l.name, "before_specs") && py.AtLeast(3, 12) {
					continue // Python knows them no more
				}
				script := filepath.Join(dir, fmt.Sprintf("load%d.py", i))
				wardentest.NoError(t, os.WriteFile(script, []byte(l.code), 0o600))
				env := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
				plain := py.Run(t, env, script)
				p, err := Prepare(Options{Env: atHome(t, env)})
				wardentest.NoError(t, err)
				wrapped := exec.Command(py.Path, script)
				wrapped.Env = p.Env
				got, err := wrapped.CombinedOutput()
				if err != nil || string(got) != plain {
					t.Errorf("%s: %v: got %s, bare %s", l.name, err, got, plain)
				}
				want := l.hello
				if !py.Armed() || l.since > 0 && !py.AtLeast(3, l.since) {
					want = 0
				}
				if hello, off := saidIn(t, p.Dir); hello != want || off != "" {
					t.Errorf("%s: %d said hello, want %d; off: %s", l.name, hello, want, off)
				}
				if err := checkHook(p.Hook); err != nil {
					t.Error(err)
				}
				Remove(p.Dir)
			}
		})
	}
}

// TestHookCompiles: every Python that can run a file of the hook compiles it
// without a warning; the others are told by their grammar.
func TestHookCompiles(t *testing.T) {
	files, err := filepath.Glob("hook/_rsswarden/*.py")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	const code = `import sys
for name in sys.argv[1:]:
    text = open(name).read()
    compile(text, name, "exec", 0, True)
    if sys.version_info >= (3, 8):
        import ast
        for minor in range(8, sys.version_info[1] + 1): ast.parse(text, name, feature_version=(3, minor))
`
	for _, py := range torchtest.Interpreters(t, anyPython) {
		args := []string{"-W", "error", "-c", code, "hook/sitecustomize.py"}
		if py.AtLeast(3, 8) {
			args = append(args, files...)
		}
		cmd := exec.Command(py.Path, args...)
		cmd.Env = cleanEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", py.Name, err, out)
		}
	}
}

// TestOneJobManyPythons: a run may start Pythons of several versions, and
// another run.
func TestOneJobManyPythons(t *testing.T) {
	all := torchtest.Interpreters(t, torchtest.Interpreter.Armed)
	dir := t.TempDir()
	layTorch(t, dir)
	script := filepath.Join(dir, "load.py")
	code := "import sys, torch.utils.data.dataloader as d; print(d.mark, sys.path, len(sys.meta_path))\n"
	wardentest.NoError(t, os.WriteFile(script, []byte(code), 0o600))
	bare := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
	outer, err := Prepare(Options{Env: atHome(t, bare)})
	wardentest.NoError(t, err)
	defer Remove(outer.Dir)
	for _, home := range []string{"the same", "another"} {
		env := outer.Env
		if home == "another" { // as another version has
			env = atHome(t, env)
		}
		inner, err := Prepare(Options{Env: env})
		wardentest.NoError(t, err)
		defer Remove(inner.Dir)
		for _, py := range all {
			once, twice := py.Run(t, outer.Env, script), py.Run(t, inner.Env, script)
			if once != twice || strings.Contains(twice, "hook-") {
				t.Errorf("%s, %s home: in a run %s, in a run within it %s", py.Name, home, once, twice)
			}
		}
		if hello, off := saidIn(t, inner.Dir); hello != len(all) || off != "" {
			t.Errorf("%s home: %d said hello to the inner run, want %d; off: %s", home, hello, len(all), off)
		}
	}
	if hello, off := saidIn(t, outer.Dir); hello != 2*len(all) || off != "" {
		t.Errorf("%d said hello to the outer run, want %d; off: %s", hello, 2*len(all), off)
	}
}
