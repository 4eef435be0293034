package loader

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A python3 is one interpreter of this machine.
type interpreter struct {
	path         string
	name         string // "cpython 3.11"
	major, minor int
}

func (i interpreter) atLeast(major, minor int) bool {
	return i.major > major || i.major == major && i.minor >= minor
}

// armed says whether the hook does anything in it.
func (i interpreter) armed() bool { return strings.HasPrefix(i.name, "cpython") && i.atLeast(3, 8) }

// interpreters finds every Python: on PATH, of pyenv, and the one whose torch
// the hook is claimed for first.
var interpreters = sync.OnceValue(func() []interpreter {
	candidates := []string{python}
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
	var list []interpreter
	for _, c := range candidates {
		cmd := exec.Command(c, "-c", ask)
		cmd.Env = cleanEnv()
		out, err := cmd.Output()
		var i interpreter
		var kind string
		if err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(out), &kind, &i.major, &i.minor, &i.path); err != nil {
			continue
		}
		i.name = fmt.Sprintf("%s %d.%d", kind, i.major, i.minor)
		if !slices.ContainsFunc(list, func(o interpreter) bool { return o.name == i.name }) {
			list = append(list, i)
		}
	}
	return list
})

// cleanEnv is the environment without what steers a Python.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PYTHON") || strings.HasPrefix(kv, "RSSWARDEN")
	})
}

// listed reads the keys that stand in inert.go under a heading that contains text.
func listed(t testing.TB, text string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "inert.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	in := false
	for block := range strings.SplitSeq(file.Doc.Text(), "\n\n") {
		if !strings.HasPrefix(block, "\t") {
			in = strings.Contains(strings.ReplaceAll(block, "\n", " "), text)
			continue
		}
		for line := range strings.Lines(block) {
			if in {
				key, _, _ := strings.Cut(strings.TrimLeft(line, "\t"), "  ")
				keys = append(keys, key)
			}
		}
	}
	if len(keys) == 0 {
		t.Fatalf("inert.go lists nothing under %q", text)
	}
	return keys
}

func among(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		// An asterisk stands for any text, slashes too.
		flat := strings.NewReplacer("/", "\x01")
		ok, err := path.Match(flat.Replace(k), flat.Replace(key))
		return err == nil && ok
	})
}

// seen is what a Python wrote and how it ended.
type seen struct {
	keys           map[string]string
	stdout, stderr string
	code           int
}

// differences compares, and returns those that the list does not hold.
func differences(bare, wrapped seen, list []string) string {
	var b strings.Builder
	if bare.code != wrapped.code || bare.stdout != wrapped.stdout || bare.stderr != wrapped.stderr {
		fmt.Fprintf(&b, "bare: status %d, %q, %q\nwrapped: status %d, %q, %q\n",
			bare.code, bare.stdout, bare.stderr, wrapped.code, wrapped.stdout, wrapped.stderr)
	}
	for key := range merged(bare.keys, wrapped.keys) {
		if bare.keys[key] != wrapped.keys[key] && !among(list, key) {
			fmt.Fprintf(&b, "%s: bare %q, wrapped %q\n", key, bare.keys[key], wrapped.keys[key])
		}
	}
	return b.String()
}

func merged(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// place holds the probe in every form it can be started in.
type place struct {
	dir   string
	probe []byte
}

func newPlace(t testing.TB) place {
	t.Helper()
	src, err := os.ReadFile("testdata/probe.py")
	if err != nil {
		t.Fatal(err)
	}
	p := place{t.TempDir(), src}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	w, err := z.Create("__main__.py")
	if err == nil {
		_, err = w.Write(src)
	}
	err = errors.Join(err, z.Close(),
		os.WriteFile(filepath.Join(p.dir, "probe.py"), src, 0o600),
		os.WriteFile(filepath.Join(p.dir, "probe.pyz"), zipped.Bytes(), 0o600),
		os.Mkdir(filepath.Join(p.dir, "cwd"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run starts a Python and reads what the probe told; one that ended before the
// probe did told nothing.
func (p place) run(t testing.TB, py string, env []string, args ...string) seen {
	t.Helper()
	out := filepath.Join(p.dir, "seen")
	cmd := exec.Command(py)
	for _, a := range args {
		if a == "-" {
			cmd.Stdin = bytes.NewReader(p.probe)
		}
		cmd.Args = append(cmd.Args, strings.NewReplacer("@out", out, "@dir", p.dir).Replace(a))
	}
	cmd.Env, cmd.Dir = env, filepath.Join(p.dir, "cwd")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	s := seen{map[string]string{}, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	text, err := os.ReadFile(out)
	if err != nil {
		return s
	}
	os.Remove(out)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		s.keys[key] += value + ";"
	}
	return s
}

// way is one way to start a Python.
type way struct {
	name string
	args string // @out: where the probe writes, @dir: where it lies
	env  string
	min  [2]int // least version
	one  bool   // tried with one Python, and with all where RSSWARDEN_ENDURANCE is set
	site bool   // site is not run
}

var ways = []way{
	{name: "script", args: "@dir/probe.py @out"},
	{name: "-c", args: `-c import-probe @out`},
	{name: "-m", args: "-m probe @out", env: "PYTHONPATH=@dir"},
	{name: "zipapp", args: "@dir/probe.pyz @out"},
	{name: "stdin", one: true, args: "- @out"},
	{name: "-S", args: "-S @dir/probe.py @out", site: true},
	{name: "-E", args: "-E @dir/probe.py @out"},
	{name: "-s", one: true, args: "-s @dir/probe.py @out"},
	{name: "-I", one: true, args: "-I @dir/probe.py @out", min: [2]int{3, 4}},
	{name: "-B", one: true, args: "-B @dir/probe.py @out"},
	{name: "-bb -W error", args: "-bb -W error @dir/probe.py @out"},
	{name: "-OO", one: true, args: "-OO @dir/probe.py @out"},
	{name: "-X dev", args: "-X dev @dir/probe.py @out", min: [2]int{3, 7}},
	{name: "-X utf8", one: true, args: "-X utf8 @dir/probe.py @out", min: [2]int{3, 7}},
	{name: "no bytecode", one: true, args: "@dir/probe.py @out", env: "PYTHONDONTWRITEBYTECODE=1"},
	{name: "safe path", one: true, args: "@dir/probe.py @out", env: "PYTHONSAFEPATH=1"},
	{name: "no user site", one: true, args: "@dir/probe.py @out", env: "PYTHONNOUSERSITE=1"},
	{name: "path with a colon behind", args: "@dir/probe.py @out", env: "PYTHONPATH=@dir:"},
	{name: "path with a colon before", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=:@dir"},
	{name: "path of a colon", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=:"},
	{name: "empty path", args: "@dir/probe.py @out", env: "PYTHONPATH="},
	{name: "relative path", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=../cwd:.:no/such"},
	{name: "missing directory", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=/no/such:@dir"},
	{name: "a file on the path", one: true, args: "@dir/probe.py @out", env: "PYTHONPATH=@dir/probe.pyz:@dir/probe.py"},
	{name: "no such script", one: true, args: "@dir/none.py"},
	{name: "no such module", one: true, args: "-m no_such_module"},
	{name: "a script that does not parse", one: true, args: "-c 1+"},
	{name: "unbuffered, hash seed", one: true, args: "-u @dir/probe.py @out", env: "PYTHONHASHSEED=0"},
	{name: "C locale", one: true, args: "@dir/probe.py @out", env: "LC_ALL=C"},
}

// TestInertInEveryPython: no Python of the job tells that it runs under the
// hook, but for what inert.go lists.
func TestInertInEveryPython(t *testing.T) {
	all := interpreters()
	if len(all) == 0 {
		t.Skip("no Python here")
	}
	start, noSite := listed(t, "From the start"), listed(t, "site is not run")
	for n, py := range all {
		t.Run(py.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			for _, w := range ways {
				if n > 0 && w.one && endurance(0, 1) == 0 || !py.atLeast(w.min[0], w.min[1]) {
					continue
				}
				env := cleanEnv()
				if w.env != "" {
					env = append(env, strings.ReplaceAll(w.env, "@dir", p.dir))
				}
				args := strings.Fields(w.args)
				for i, a := range args {
					if a == "import-probe" {
						args[i] = "exec(open(r'" + p.dir + "/probe.py').read())"
					}
				}
				hooked, hookDir := underHook(t, env)
				bare, wrapped := p.run(t, py.path, env, args...), p.run(t, py.path, hooked, args...)
				list := start
				switch {
				case w.site:
					list = noSite
				case py.major == 2 && w.env == "PYTHONPATH=":
					list = append(listed(t, "set and empty"), start...)
				}
				if d := differences(bare, wrapped, list); d != "" {
					t.Errorf("%s:\n%s", w.name, d)
				}
				if !w.site && len(wrapped.keys) > 0 {
					read := w.args[:2] != "-E" && w.args[:2] != "-I"
					armed := strings.Contains(wrapped.keys["sys.meta_path"], "'Finder'")
					if want := read && py.armed(); armed != want {
						t.Errorf("%s: armed %v, want %v: %s", w.name, armed, want, wrapped.keys["sys.meta_path"])
					}
				}
				// It holds every file it held, and no other: nothing was compiled.
				if err := checkHook(hookDir); err != nil {
					t.Errorf("%s: %v", w.name, err)
				}
			}
		})
	}
	t.Logf("%d interpreters: %v", len(all), all)
}

// underHook is env as the command of a run has it.
func underHook(t testing.TB, env []string) (hooked []string, hookDir string) {
	t.Helper()
	p, err := Prepare(Options{Env: atHome(t, env)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(p.Dir) })
	// The places were for us alone.
	hooked = slices.Clone(env)
	for _, key := range []string{EnvDir, "PYTHONPATH"} {
		hooked = setEnv(hooked, key, getEnv(p.Env, key))
	}
	return hooked, p.Hook
}
