package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sites are what others have as sitecustomize.py, by what happens in it.
var sites = map[string]string{
	"prints":               "import sys\nprint(__name__, __file__, __doc__, sys.path)\n",
	"sets":                 "import sys\nsys.path.append('/added')\nsys.mark = 1\nimport json\n",
	"lacks a module":       "import no_such_module_here\n",
	"lacks itself":         "raise ImportError('No module named sitecustomize')\n",
	"raises":               "raise ValueError('theirs')\n",
	"does not parse":       "1 +\n",
	"warns":                "import warnings\nwarnings.warn('theirs')\n",
	"registers":            "import atexit, signal\natexit.register(print, 'bye') if str is not bytes else None\nsignal.signal(signal.SIGUSR1, lambda *a: None)\n",
	"ends":                 "import os\nos._exit(5)\n",
	"exits":                "raise SystemExit(3)\n",
	"puts a finder":        "import sys\nclass F(object):\n    @staticmethod\n    def find_spec(*a): return None\n    @staticmethod\n    def find_module(*a): return None\nsys.meta_path.insert(0, F)\n",
	"is one that steps on": stepsOn,
}

// usual are those that are tried with every Python; the others with two, and
// with all where RSSWARDEN_ENDURANCE is set.
var usual = map[string]bool{"sets": true, "lacks itself": true, "raises": true, "is one that steps on": true}

// stepsOn is what programs that instrument others do: as we.
const stepsOn = `import os, sys
here = os.path.dirname(os.path.abspath(__file__))
at = sys.path.index(here)
del sys.path[at]
mine = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = mine
finally:
    sys.path.insert(at, here)
`

// TestOtherSiteCustomize: what anybody else has as sitecustomize or
// usercustomize runs as without us, wherever it lies.
func TestOtherSiteCustomize(t *testing.T) {
	all := interpreters()
	if len(all) == 0 {
		t.Skip("no Python here")
	}
	list := listed(t, "From the start")
	for n, py := range all {
		t.Run(py.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			base := filepath.Join(p.dir, "user")
			cmd := exec.Command(py.path, "-c", "import site; print(site.getusersitepackages())")
			cmd.Env = append(cleanEnv(), "PYTHONUSERBASE="+base)
			userSite, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			for where, dir := range map[string]string{
				"PYTHONPATH": filepath.Join(p.dir, "mine"), "user site": strings.TrimSpace(string(userSite)),
			} {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				for what, body := range sites {
					if n > 0 && py.major == 3 && !usual[what] && endurance(0, 1) == 0 {
						continue
					}
					name := "sitecustomize.py"
					env := append(cleanEnv(), "PYTHONPATH="+dir)
					if where == "user site" {
						name = "usercustomize.py"
						env = append(cleanEnv(), "PYTHONUSERBASE="+base)
						if what == "is one that steps on" {
							continue
						}
					}
					if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
						t.Fatal(err)
					}
					hooked, hookDir := underHook(t, env)
					args := []string{"-B", "@dir/probe.py", "@out"} // it is changed within a second
					bare, wrapped := p.run(t, py.path, env, args...), p.run(t, py.path, hooked, args...)
					if what == "exits" {
						// Python ends with a traceback of its start, which has lines of ours.
						bare.stderr, wrapped.stderr = "", ""
					}
					if d := differences(bare, wrapped, list); d != "" {
						t.Errorf("%s, %s:\n%s", where, what, d)
					}
					if err := checkHook(hookDir); err != nil {
						t.Error(err)
					}
				}
				os.RemoveAll(dir)
			}
			// One that stands before ours, as where a program is started by
			// such another within the run.
			mine := filepath.Join(p.dir, "mine")
			if err := errJoin(os.Mkdir(mine, 0o700), os.WriteFile(filepath.Join(mine, "sitecustomize.py"), []byte(stepsOn), 0o600)); err != nil {
				t.Fatal(err)
			}
			env := append(cleanEnv(), "PYTHONPATH="+mine)
			hooked, hookDir := underHook(t, cleanEnv())
			hooked = setEnv(hooked, "PYTHONPATH", mine+":"+hookDir)
			bare, wrapped := p.run(t, py.path, env, "@dir/probe.py", "@out"), p.run(t, py.path, hooked, "@dir/probe.py", "@out")
			if d := differences(bare, wrapped, list); d != "" {
				t.Errorf("before ours:\n%s", d)
			}
		})
	}
}

// TestPrefixes: a venv, and an installation of its own as conda makes them, each
// with its own sitecustomize, and PYTHONHOME.
func TestPrefixes(t *testing.T) {
	all := interpreters()
	if len(all) == 0 {
		t.Skip("no Python here")
	}
	list := listed(t, "From the start")
	made := 0
	for n, py := range all {
		if !py.atLeast(3, 8) || strings.HasPrefix(py.name, "pypy") {
			continue
		}
		if made++; n > 0 && made > 2 && endurance(0, 1) == 0 {
			continue // two will do
		}
		t.Run(py.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			same := func(name, exe string, env []string) {
				t.Helper()
				hooked, hookDir := underHook(t, env)
				for _, args := range [][]string{{"@dir/probe.py", "@out"}, {"-I", "@dir/probe.py", "@out"}} {
					bare, wrapped := p.run(t, exe, env, args...), p.run(t, exe, hooked, args...)
					if len(bare.keys) == 0 || args[0] != "-I" && !strings.Contains(bare.keys["sys.prefix"], p.dir) {
						t.Fatalf("%s: %+v", name, bare)
					}
					if d := differences(bare, wrapped, list); d != "" {
						t.Errorf("%s %q:\n%s", name, args[0], d)
					}
				}
				if err := checkHook(hookDir); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			own := func(prefix string) {
				t.Helper()
				found, _ := filepath.Glob(filepath.Join(prefix, "lib/python3*/site-packages"))
				if len(found) != 1 {
					t.Fatalf("%q in %s", found, prefix)
				}
				body := "import sys\nsys.mark = 1\nprint('own', __file__)\n"
				if err := os.WriteFile(filepath.Join(found[0], "sitecustomize.py"), []byte(body), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, options := range []string{"", "--system-site-packages", "--copies"}[:endurance(2, 3)] {
				venv := filepath.Join(p.dir, "venv"+options)
				cmd := exec.Command(py.path, append(append([]string{"-m", "venv", "--without-pip"}, strings.Fields(options)...), venv)...)
				cmd.Env = cleanEnv()
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("no venv: %s", out)
				}
				exe := filepath.Join(venv, "bin/python")
				same("venv "+options, exe, cleanEnv())
				own(venv)
				same("venv with its own "+options, exe, cleanEnv())
			}
			prefix := condaLike(t, py, filepath.Join(p.dir, "prefix"))
			exe := filepath.Join(prefix, "bin/python")
			same("prefix", exe, cleanEnv())
			same("PYTHONHOME", py.path, append(cleanEnv(), "PYTHONHOME="+prefix))
			own(prefix)
			same("prefix with its own", exe, cleanEnv())
		})
	}
	if made == 0 {
		t.Skip("no Python 3 here")
	}
}

// condaLike makes an installation with a standard library and site-packages of
// its own at prefix.
func condaLike(t testing.TB, py interpreter, prefix string) string {
	t.Helper()
	const ask = "import sys, sysconfig, os; print(os.path.realpath(sys.executable)); print(sysconfig.get_paths()['stdlib'])"
	cmd := exec.Command(py.path, "-I", "-c", ask)
	cmd.Env = cleanEnv()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exe, stdlib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	lib := filepath.Join(prefix, "lib", filepath.Base(stdlib))
	bin, err := os.ReadFile(exe)
	err = errJoin(err, os.MkdirAll(filepath.Join(lib, "site-packages"), 0o700), os.MkdirAll(filepath.Join(prefix, "bin"), 0o700),
		os.WriteFile(filepath.Join(prefix, "bin/python"), bin, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(stdlib)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "site-packages", "dist-packages", "sitecustomize.py", "__pycache__":
			continue
		}
		if err := os.Symlink(filepath.Join(stdlib, e.Name()), filepath.Join(lib, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return prefix
}
