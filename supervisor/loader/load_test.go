package loader

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// likeTorch is what of torch the hook looks at, for Pythons that have none.
var likeTorch = map[string]string{
	"torch/__init__.py":                          "__version__ = '0.0'\nfrom torch import multiprocessing, utils\n",
	"torch/multiprocessing.py":                   "from multiprocessing import *\n",
	"torch/utils/__init__.py":                    "",
	"torch/utils/data/__init__.py":               "",
	"torch/utils/data/_utils/__init__.py":        "from torch.utils.data._utils import fetch, signal_handling, worker\n",
	"torch/utils/data/_utils/fetch.py":           "class _MapDatasetFetcher:\n    def fetch(self, index): return index\n",
	"torch/utils/data/_utils/signal_handling.py": "def _set_worker_pids(*a): pass\ndef _remove_worker_pids(*a): pass\n",
	"torch/utils/data/_utils/worker.py":          "_worker_info = None\ndef _worker_loop(dataset_kind): pass\n",
	"torch/utils/data/dataloader.py":             "from torch.utils.data import _utils\nclass _MultiProcessingDataLoaderIter:\n    def __init__(self, loader): pass\nmark = 1\n",
	"broken/torch/__init__.py":                   "",
	"broken/torch/utils/__init__.py":             "",
	"broken/torch/utils/data/__init__.py":        "",
	"broken/torch/utils/data/dataloader.py":      "import libcuda_is_missing\n",
	"other_shape/torch/__init__.py":              "",
	"other_shape/torch/utils/__init__.py":        "",
	"other_shape/torch/utils/data/__init__.py":   "",
	"other_shape/torch/utils/data/dataloader.py": "mark = 1\n",
}

// loads are programs that import what the hook waits for, each in its own way.
// Each prints the same bare. hello is how many processes say hello.
var loads = []struct {
	name  string
	code  string
	hello int
	since int  // the minor version of Python 3 from which on it does; 0: any
	one   bool // tried with one Python
}{
	{name: "import", hello: 1, code: "import torch.utils.data.dataloader as d; print(d.mark)"},
	{name: "torch alone", one: true, code: "import torch; print(torch.__version__)"},
	{name: "in a thread", hello: 1, code: `
import threading
t = threading.Thread(target=lambda: print(__import__("torch.utils.data.dataloader").__version__))
t.start(); t.join(); print(threading.active_count())`},
	{name: "twice", hello: 1, code: `
import importlib, torch.utils.data.dataloader as d
old = d._MultiProcessingDataLoaderIter
for _ in range(3): importlib.reload(d)
print(d.mark, old is d._MultiProcessingDataLoaderIter)`},
	{name: "taken out and in again", one: true, hello: 1, code: `
import sys, torch.utils.data.dataloader
del sys.modules["torch.utils.data.dataloader"]
import torch.utils.data.dataloader as d; print(d.mark)`},
	{name: "fork without exec", hello: 1, code: `
import os, sys, torch.utils.data.dataloader as d
for _ in range(3):
    pid = os.fork()
    if not pid:
        import torch.utils.data.dataloader
        sys.exit(d.mark)
    print(os.waitpid(pid, 0)[1])`},
	{name: "spawn", hello: 1, code: `
import multiprocessing, sys
def child(q):
    import torch.utils.data.dataloader as d
    q.put((d.mark, sys.path))
if __name__ == "__main__":
    import torch.utils.data.dataloader
    c = multiprocessing.get_context("spawn"); q = c.SimpleQueue()
    p = c.Process(target=child, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)`},
	{name: "children without the environment", one: true, code: `
import os, subprocess, sys
code = "import sys; sys.path.insert(0, %r); import torch.utils.data.dataloader as d; print(d.mark, sys.path)" % sys.path[0]
for flags, env in (([], {}), (["-I"], None), (["-E"], None)):
    print(subprocess.check_output([sys.executable] + flags + ["-c", code], env=env))`},
	{name: "variable taken away", one: true, code: `
import os
os.environ.pop("RSSWARDEN_DIR", None)
import torch.utils.data.dataloader as d; print(d.mark)`},
	{name: "import fails", code: `
import os, sys
sys.path.insert(0, os.path.join(sys.path[0], "broken"))
for _ in range(2):
    try: import torch.utils.data.dataloader
    except ImportError as e: print(e, e.name, sorted(m for m in sys.modules if "torch" in m))`},
	{name: "not torch", one: true, hello: 1, code: `
import os, sys
sys.path.insert(0, os.path.join(sys.path[0], "other_shape"))
import torch.utils.data.dataloader as d; print(d.mark)`},
	{name: "a finder of theirs", hello: 1, code: `
import sys
from importlib.machinery import PathFinder
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None): return PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Theirs)
import torch; sys.meta_path.remove(Theirs)
class Broken:
    @staticmethod
    def find_spec(name, path=None, target=None): return None
sys.meta_path.append(Broken)
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__).__name__, "exec_module" in vars(d.__loader__))`},
	{name: "a finder that raises", one: true, code: `
import sys
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"): raise RuntimeError("theirs")
import torch.utils.data
sys.meta_path.insert(1, Theirs)
try: import torch.utils.data.dataloader
except RuntimeError as e: print(e)`},
	{name: "a finder from before specs", one: true, code: `
import sys, types, warnings
warnings.simplefilter("ignore")
class Old:
    @staticmethod
    def find_module(name, path=None): return Old if name.endswith("dataloader") else None
    @staticmethod
    def load_module(name):
        sys.modules[name] = m = types.ModuleType(name); m.mark = 2; return m
import torch.utils.data
sys.meta_path.insert(1, Old)
import torch.utils.data.dataloader as d; print(d.mark)`},
	{name: "one loader for all", one: true, hello: 1, code: `
import sys, importlib.util
class Loader:
    @classmethod
    def create_module(cls, spec): return None
    @classmethod
    def exec_module(cls, module): module.mark = 3
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"): return importlib.util.spec_from_loader(name, Loader)
import torch.utils.data
sys.meta_path.insert(1, Theirs)
import torch.utils.data.dataloader as d; print(d.mark, type(Loader.__dict__["exec_module"]).__name__, d.__loader__, d.__spec__.loader)`},
	{name: "a loader without a dictionary", one: true, hello: 1, code: `
import sys, importlib.util
class Loader:
    __slots__ = "marks",
    def create_module(self, spec): return None
    def exec_module(self, module): module.mark = self.marks
class Theirs:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.endswith("dataloader"):
            spec = importlib.util.spec_from_loader(name, Loader())
            spec.loader.marks = 4
            return spec
import torch.utils.data
sys.meta_path.insert(1, Theirs)
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__), d.__spec__.loader is d.__loader__)`},
	{name: "from a zip file", hello: 1, since: 10, code: `
import os, shutil, sys, tempfile
folder = tempfile.mkdtemp()
name = shutil.make_archive(folder + "/torch", "zip", sys.path[0], "torch")
sys.path[0] = name
import torch.utils.data.dataloader as d; print(d.mark, type(d.__loader__).__name__)
shutil.rmtree(folder)`},
	{name: "a signal handler that raises meanwhile", hello: 0, code: `
import os, signal, sys, torch.utils.data
class Theirs(Exception): pass
def handler(*a): raise Theirs
signal.signal(signal.SIGUSR1, handler)
lstat = os.lstat
def slow(path):
    os.kill(os.getpid(), signal.SIGUSR1)
    return lstat(path)
os.lstat = slow
try:
    import torch.utils.data.dataloader
    os.lstat("/")
except Theirs: print("theirs")`},
	{name: "subinterpreters", one: true, code: `
import sys
try: import _interpreters as i
except ImportError:
    try: import _xxsubinterpreters as i
    except ImportError: i = None
if i is not None:
    n = i.create()
    i.run_string(n, "import sys; sys.path.insert(0, %r); import torch; print(sys.path, 'sitecustomize' in sys.modules); sys.stdout.flush()" % sys.path[0])
    i.destroy(n)
print("done")`},
}

// TestLoad: however the module that the hook waits for is imported, the program
// sees what it sees bare, and the hook says hello where it should.
func TestLoad(t *testing.T) {
	all := slices.DeleteFunc(slices.Clone(interpreters()), func(i interpreter) bool { return !i.atLeast(3, 8) })
	if len(all) == 0 {
		t.Skip("no Python from 3.8 on here")
	}
	for n, py := range all {
		t.Run(py.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			layTorch(t, dir)
			for i, l := range loads {
				if n > 0 && l.one && py.name != "cpython 3.13" && endurance(0, 1) == 0 {
					continue
				}
				if strings.Contains(l.name, "before specs") && py.atLeast(3, 12) {
					continue // Python knows them no more
				}
				script := filepath.Join(dir, fmt.Sprintf("load%d.py", i))
				if err := os.WriteFile(script, []byte(strings.TrimSpace(l.code)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				bare := exec.Command(py.path, script)
				bare.Env = append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
				plain, err := bare.CombinedOutput()
				if err != nil {
					t.Fatalf("%s, bare: %v\n%s", l.name, err, plain)
				}
				p, err := Prepare(Options{Env: atHome(t, bare.Env)})
				if err != nil {
					t.Fatal(err)
				}
				wrapped := exec.Command(py.path, script)
				wrapped.Env = p.Env
				got, err := wrapped.CombinedOutput()
				if err != nil || string(got) != string(plain) {
					t.Errorf("%s: %v: got %s, bare %s", l.name, err, got, plain)
				}
				want := l.hello
				if !py.armed() || l.since > 0 && !py.atLeast(3, l.since) {
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

func layTorch(t testing.TB, dir string) {
	t.Helper()
	for name, text := range likeTorch {
		file := filepath.Join(dir, name)
		if err := errJoin(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// saidIn counts who said hello in a run directory, and returns what was said of
// hooks that are off.
func saidIn(t testing.TB, dir string) (hello int, off string) {
	t.Helper()
	names, err := readDirNames(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, ok := nodedir.ProcOf(name, "hello"); ok {
			hello++
		} else if _, ok := nodedir.ProcOf(name, "log"); ok {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"off"`) {
				off += string(text)
			}
		} else if name != identityFile && !strings.HasPrefix(name, hookPrefix) {
			t.Errorf("%s in the run directory", name)
		}
	}
	return hello, off
}

// TestHookCompiles: every Python that can run a file of the hook compiles it
// without a warning; the others are told by their grammar.
func TestHookCompiles(t *testing.T) {
	all := interpreters()
	if len(all) == 0 {
		t.Skip("no Python here")
	}
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
	for _, py := range all {
		args := []string{"-W", "error", "-c", code, "hook/sitecustomize.py"}
		if py.atLeast(3, 8) {
			args = append(args, files...)
		}
		cmd := exec.Command(py.path, args...)
		cmd.Env = cleanEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", py.name, err, out)
		}
	}
}

// TestOneJobManyPythons: a run may start Pythons of several versions, and
// another run.
func TestOneJobManyPythons(t *testing.T) {
	all := slices.DeleteFunc(slices.Clone(interpreters()), func(i interpreter) bool { return !i.armed() })
	if len(all) == 0 {
		t.Skip("no Python from 3.8 on here")
	}
	dir := t.TempDir()
	layTorch(t, dir)
	script := filepath.Join(dir, "load.py")
	code := "import sys, torch.utils.data.dataloader as d; print(d.mark, sys.path, len(sys.meta_path))\n"
	if err := os.WriteFile(script, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := append(cleanEnv(), "PYTHONDONTWRITEBYTECODE=1")
	outer, err := Prepare(Options{Env: atHome(t, bare)})
	if err != nil {
		t.Fatal(err)
	}
	defer Remove(outer.Dir)
	for _, home := range []string{"the same", "another"} {
		env := outer.Env
		if home == "another" { // as another version has
			env = atHome(t, env)
		}
		inner, err := Prepare(Options{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		defer Remove(inner.Dir)
		out := func(py interpreter, env []string) string {
			t.Helper()
			cmd := exec.Command(py.path, script)
			cmd.Env = env
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", py.name, err, b)
			}
			return string(b)
		}
		for _, py := range all {
			once, twice := out(py, outer.Env), out(py, inner.Env)
			if once != twice || strings.Contains(twice, "hook-") {
				t.Errorf("%s, %s home: in a run %s, in a run within it %s", py.name, home, once, twice)
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
