package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader/hook"
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
		"another compiled file": {func(h, _ string) error {
			return os.WriteFile(h+"/_rsswarden/__pycache__/socket.cpython-311.pyc", nil, 0o600)
		}, "does not belong there", false},
		"a compiled file of another user": {func(h, _ string) error {
			pyc := h + "/_rsswarden/__pycache__/guard.cpython-311.pyc"
			return errors.Join(os.WriteFile(pyc, nil, 0o600), os.Chown(pyc, 12345, 12345))
		}, "belongs to another user", true},
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

// TestHookUnit runs the hook's own tests of its modules, testdata/hook_unit, which need no
// torch, on this machine's Python, the oldest that the hook acts in and the newest, and with
// RSSWARDEN_ENDURANCE on each.
func TestHookUnit(t *testing.T) {
	t.Parallel()
	args := []string{"-B", "-W", "error", "-m", "unittest", "discover", "-s", script(t, "hook_unit")}
	env := append(cleanEnv(), fmt.Sprintf("RSSWARDEN_KILLS=%d", wardentest.Few(4, 1))) // which take most of the time
	for i, py := range torchtest.Interpreters(t, torchtest.Interpreter.Armed) {
		if i > 0 && py.AtLeast(3, 9) && wardentest.Few(1, 0) == 0 {
			continue
		}
		t.Run(py.Name, func(t *testing.T) {
			t.Parallel()
			py.Run(t, env, args...)
		})
	}
	t.Run(newest.Name, func(t *testing.T) {
		newest.Need(t)
		newest.Run(t, env, args...)
	})
}

// TestLoadsWhatItNeeds: a program that imports torch and loads nothing has a small part of
// the hook; the rest comes with its first loader, and where that is gone by then the
// program does not notice.
func TestLoadsWhatItNeeds(t *testing.T) {
	t.Parallel()
	torchtest.On(t, newest, func(t *testing.T, s *stand) {
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
	t.Parallel()
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

func TestOwner(t *testing.T) {
	dir := t.TempDir()
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory of no run has an owner")
	}
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	write := func(i identity) {
		t.Helper()
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600))
	}
	write(me)
	if id, lives, err := Owner(dir); id != me.Owner || !lives || err != nil {
		t.Errorf("ours: %v, %v, %v", id, lives, err)
	}
	ended := me
	ended.Owner = rss.ProcID{PID: me.Owner.PID, Start: me.Owner.Start - 1}
	write(ended)
	if id, lives, err := Owner(dir); id != ended.Owner || lives || err != nil {
		t.Errorf("of a process that has ended: %v, %v, %v", id, lives, err)
	}
	for _, change := range []func(*identity){
		func(i *identity) { i.BootID = "another" },
		func(i *identity) { i.PIDNS = "pid:[1]" },
	} {
		other := me
		change(&other)
		write(other)
		if _, lives, err := Owner(dir); lives || err == nil || !strings.Contains(err.Error(), "another boot or PID namespace") {
			t.Errorf("of elsewhere: %v, %v", lives, err)
		}
	}
	write(me)
	wardentest.NoError(t, os.Chmod(dir, 0o755))
	if _, _, err := Owner(dir); err == nil {
		t.Error("a directory that others may enter")
	}
	if _, _, err := Owner(filepath.Join(dir, "none")); err == nil {
		t.Error("no directory")
	}
}

// TestNotMeant: a run directory that is not for this process, or no longer for any, is
// ignored without a message or a trace.
func TestNotMeant(t *testing.T) {
	if _, err := os.Stat(python); err != nil {
		t.Skipf("no Python: %v", err)
	}
	script := filepath.Join(t.TempDir(), "load.py")
	layTorch(t, filepath.Dir(script))
	wardentest.NoError(t, os.WriteFile(script, []byte("import torch.utils.data.dataloader as d; print(d.mark)\n"), 0o600))
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	identify := func(change func(*identity)) func(string) error {
		return func(dir string) error {
			i := me
			change(&i)
			return os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)
		}
	}
	type spoil struct {
		do   func(dir string) error
		wrap []string // started by this
		dir  string   // RSSWARDEN_DIR, @ stands for what it was
		root bool
	}
	for name, s := range map[string]spoil{
		"foreign boot":          {do: identify(func(i *identity) { i.BootID = "00000000-0000-0000-0000-000000000000" })},
		"foreign PID namespace": {do: identify(func(i *identity) { i.PIDNS = "pid:[1]" })},
		"other version":         {do: func(dir string) error { return os.WriteFile(dir+"/identity", []byte("version 2\n"), 0o600) }},
		"empty identity":        {do: func(dir string) error { return os.WriteFile(dir+"/identity", nil, 0o600) }},
		"huge identity":         {do: func(dir string) error { return os.WriteFile(dir+"/identity", make([]byte, 1<<20), 0o600) }},
		"binary identity":       {do: func(dir string) error { return os.WriteFile(dir+"/identity", []byte("\xff\xfe \x00\n"), 0o600) }},
		"no identity":           {do: func(dir string) error { return os.Remove(dir + "/identity") }},
		"identity is a pipe": {do: func(dir string) error {
			return errors.Join(os.Remove(dir+"/identity"), syscall.Mkfifo(dir+"/identity", 0o600))
		}},
		"identity is a link": {do: func(dir string) error {
			return errors.Join(os.Rename(dir+"/identity", dir+"/other"), os.Symlink("other", dir+"/identity"))
		}},
		"open to all":     {do: func(dir string) error { return os.Chmod(dir, 0o755) }},
		"the run is over": {do: Remove},
		"a relative name": {dir: "."},
		"a link":          {dir: "@-link", do: func(dir string) error { return os.Symlink(dir, dir+"-link") }},
		"a file":          {dir: "@/identity"},
		"an empty name":   {dir: ""},
		"not UTF-8":       {dir: "/\xff\xfe"},
		"another user's":  {do: func(dir string) error { return os.Chown(dir, 12345, 12345) }, root: true},
		"in a container":  {wrap: []string{"unshare", "--pid", "--fork", "--mount-proc"}, root: true},
		"as another user": {wrap: []string{"setpriv", "--reuid", "12345", "--clear-groups"}, root: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			env := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
			p := prepare(t, atHome(t, env))
			hooked := p.Env
			if s.do == nil {
				s.do = func(string) error { return nil }
			}
			if s.dir != "" || name == "an empty name" {
				hooked = setEnv(hooked, EnvDir, strings.ReplaceAll(s.dir, "@", p.Dir))
			}
			wardentest.NoError(t, s.do(p.Dir))
			before := listing(p.Dir)
			run := func(env []string) string {
				args := append(slices.Clone(s.wrap), python, script)
				if _, err := exec.LookPath(args[0]); err != nil {
					t.Skip(err)
				}
				// Every user must be able to read it.
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Dir, cmd.Env = p.Dir[:strings.LastIndex(p.Dir, "/rsswarden-")], env
				out, err := cmd.CombinedOutput()
				return fmt.Sprintf("%s%v", out, err)
			}
			bare, got := run(env), run(hooked)
			if strings.Contains(bare, "unshare") {
				t.Skip(bare)
			}
			if got != bare {
				t.Errorf("got %q, bare %q", got, bare)
			}
			if after := listing(p.Dir); !slices.Equal(before, after) {
				t.Errorf("before %q, after %q", before, after)
			}
		})
	}
}

func listing(dir string) (names []string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		names = append(names, path)
		return nil
	})
	return names
}

func TestPrepareRefusesUnsafePlaces(t *testing.T) {
	own := fmt.Sprintf("rsswarden-%d", os.Geteuid())
	for name, spoil := range map[string]func(run string) error{
		"writable by all": func(run string) error { return os.Chmod(run, 0o777) },
		"link": func(run string) error {
			if err := os.Mkdir(run+"/other", 0o700); err != nil {
				return err
			}
			return os.Symlink(run+"/other", filepath.Join(run, own))
		},
		"file":        func(run string) error { return os.WriteFile(filepath.Join(run, own), nil, 0o700) },
		"open to all": func(run string) error { return os.MkdirAll(filepath.Join(run, own), 0o755) },
		"of another": func(run string) error {
			return errors.Join(os.Mkdir(filepath.Join(run, own), 0o700), os.Chown(filepath.Join(run, own), 12345, 12345))
		},
		"not there": func(run string) error { return os.RemoveAll(run) },
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && name == "of another" {
				t.Skip("only root can give a directory away")
			}
			_, run, _ := testEnv(t)
			wardentest.NoError(t, spoil(run))
			me, err := identify(os.Getpid())
			wardentest.NoError(t, err)
			if dir, _, err := makeRunDir([]string{run}, "x", me); err == nil {
				t.Errorf("made %s", dir)
			}
			// The next place is taken.
			next := t.TempDir()
			dir, _, err := makeRunDir([]string{run, next}, "x", me)
			if err != nil || !strings.HasPrefix(dir, next) {
				t.Errorf("made %s, %v", dir, err)
			}
		})
	}
}

func TestSweep(t *testing.T) {
	env, run, _ := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "live"})
	wardentest.NoError(t, err)
	me, err := identify(os.Getpid())
	wardentest.NoError(t, err)
	all := filepath.Dir(p.Dir)
	for name, i := range map[string]identity{
		"reused PID":   {Owner: rss.ProcID{PID: os.Getpid(), Start: me.Owner.Start + 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"no such PID":  {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: me.PIDNS},
		"earlier boot": {Owner: me.Owner, BootID: "another", PIDNS: me.PIDNS},
		"elsewhere":    {Owner: rss.ProcID{PID: 1 << 30, Start: 1}, BootID: me.BootID, PIDNS: "pid:[1]"},
	} {
		dir := filepath.Join(all, name)
		wardentest.NoError(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)))
	}
	wardentest.NoError(t, os.Mkdir(filepath.Join(all, "unfinished"), 0o700))
	q, err := Prepare(Options{Env: env, Name: "new"})
	if err != nil || q.Swept != 3 {
		t.Errorf("%+v, %v", q, err)
	}
	left, err := readDirNames(all, 100)
	if err != nil || !slices.Equal(left, []string{"elsewhere", "live", "new", "unfinished"}) {
		t.Errorf("left %q, %v in %s", left, err, run)
	}
}

func TestCleanName(t *testing.T) {
	for name, want := range map[string]string{
		"17_3.batch.0": "17_3.batch.0", "../../etc": "_.._etc", "a b/c\n": "a_b_c_", "": "", "...": "", strings.Repeat("x", 300): strings.Repeat("x", 128),
	} {
		if got := cleanName(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(identity{Owner: rss.ProcID{PID: 1, Start: 2}, BootID: "b", PIDNS: "n"}.format())
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := parseIdentity(data)
		if err != nil {
			return
		}
		if again, err := parseIdentity(i.format()); err != nil || again != i {
			t.Errorf("%+v, %v from %+v", again, err, i)
		}
	})
}

// TestPlantedTemporary: whatever a training script puts where the watcher writes, the
// watcher neither waits for it nor writes through it.
func TestPlantedTemporary(t *testing.T) {
	for what, plant := range map[string]func(path, victim string) error{
		"a pipe":      func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":      func(path, victim string) error { return os.Symlink(victim, path) },
		"a hard link": func(path, victim string) error { return os.Link(victim, path) },
		"a directory": func(path, _ string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(path+"/x", nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path, victim := filepath.Join(dir, "ctl.1.2"), filepath.Join(dir, "victim")
			wardentest.NoError(t, errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), plant(path+".tmp", victim)))
			wrote := make(chan error, 1)
			go func() { wrote <- replaceFile(path, []byte("new")) }()
			select {
			case err := <-wrote:
				b, read := os.ReadFile(path)
				if what == "a directory" {
					if err == nil || !errors.Is(read, fs.ErrNotExist) {
						t.Errorf("%v, %q", err, b)
					}
				} else if err != nil || string(b) != "new" {
					t.Errorf("%v, %q", err, b)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the watcher waits")
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
				t.Errorf("the file behind it: %q, %v", b, err)
			}
		})
	}
}

// env returns an environment whose run directories and hook lie in temporary
// directories, and those two.
func testEnv(t testing.TB) (env []string, run, home string) {
	run, home = t.TempDir(), t.TempDir()
	return []string{"A=1", EnvRuntime + "=" + run, "HOME=" + home}, run, home
}

func TestPrepare(t *testing.T) {
	env, run, home := testEnv(t)
	p, err := Prepare(Options{Env: env, Name: "17.batch.0"})
	wardentest.NoError(t, err)
	all := filepath.Join(run, fmt.Sprintf("rsswarden-%d", os.Geteuid()))
	if want := filepath.Join(all, "17.batch.0"); p.Dir != want {
		t.Errorf("run directory %s, want %s", p.Dir, want)
	}
	for _, dir := range []string{all, p.Dir} {
		if err := nodedir.CheckOwn(dir); err != nil {
			t.Error(err)
		}
	}
	if want := filepath.Join(home, ".cache/rsswarden", "hook-"+hook.Hash()); p.Hook != want {
		t.Errorf("hook in %s, want %s", p.Hook, want)
	}
	want := append(slices.Clone(env), "RSSWARDEN_DIR="+p.Dir, "PYTHONPATH="+p.Hook)
	if !slices.Equal(p.Env, want) {
		t.Errorf("environment %q, want %q", p.Env, want)
	}

	// The same task again, while the first lives: a directory of its own, the same hook.
	q, err := Prepare(Options{Env: env, Name: "17.batch.0"})
	if err != nil || q.Dir != p.Dir+"-1" || q.Hook != p.Hook {
		t.Errorf("%+v, %v", q, err)
	}
	for _, dir := range []string{p.Dir, q.Dir, q.Dir} {
		if err := Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(run); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPreparePythonPath(t *testing.T) {
	for old, tail := range map[string]string{
		"": "", "PYTHONPATH=": "", "PYTHONPATH=/a:/b": ":/a:/b", "PYTHONPATH=/a:": ":/a:",
	} {
		env, _, _ := testEnv(t)
		if old != "" {
			env = append([]string{old}, env...)
		}
		p := prepare(t, env)
		if got := getEnv(p.Env, "PYTHONPATH"); got != p.Hook+tail {
			t.Errorf("%q: PYTHONPATH=%s", old, got)
		}
	}
}

// TestCompiled: the first Python leaves the hook compiled for the next, the hook is trusted
// as before, and where a compiled file is cut short the text is compiled.
func TestCompiled(t *testing.T) {
	lib := t.TempDir()
	layTorch(t, lib)
	env, dir := hooked(t, "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=")
	load := func() {
		t.Helper()
		cmd := exec.Command(python, "-c", "import torch.utils.data.dataloader")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
	}
	said := func(hello int) {
		t.Helper()
		if n, text := saidIn(t, getEnv(env, EnvDir)); n != hello || text != "" {
			t.Errorf("%d said hello, want %d; %s", n, hello, text)
		}
	}
	load()
	said(1)
	files, err := filepath.Glob(filepath.Join(dir, compiled, "channel.*.pyc"))
	wardentest.NoError(t, errors.Join(err, checkHook(dir)))
	if len(files) != 1 {
		t.Fatalf("compiled: %v", files)
	}
	load()
	said(2)
	wardentest.NoError(t, os.Truncate(files[0], 100))
	load()
	said(3)
}
