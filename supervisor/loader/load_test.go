package loader

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
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
				must(t, os.WriteFile(script, []byte(l.code), 0o600))
				env := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
				plain := py.Run(t, env, script)
				p, err := Prepare(Options{Env: atHome(t, env)})
				must(t, err)
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

// layTorch puts into dir what of torch the hook looks at, for Pythons that have none.
func layTorch(t testing.TB, dir string) {
	t.Helper()
	must(t, os.CopyFS(dir, os.DirFS("testdata/liketorch")))
}

// saidIn counts the hellos in a run directory, and returns the reports of hooks that are
// off.
func saidIn(t testing.TB, dir string) (hello int, off string) {
	t.Helper()
	names, err := readDirNames(dir, 1000)
	must(t, err)
	for _, name := range names {
		if _, ok := nodedir.ProcOf(name, "hello"); ok {
			hello++
		} else if _, ok := nodedir.ProcOf(name, "log"); ok {
			text, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
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
	must(t, os.WriteFile(script, []byte(code), 0o600))
	bare := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
	outer, err := Prepare(Options{Env: atHome(t, bare)})
	must(t, err)
	defer Remove(outer.Dir)
	for _, home := range []string{"the same", "another"} {
		env := outer.Env
		if home == "another" { // as another version has
			env = atHome(t, env)
		}
		inner, err := Prepare(Options{Env: env})
		must(t, err)
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
