package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
)

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

// TestControlSeen writes one ctl file over another, in place and within what the
// clock of a file system may tell apart: each is read.
func TestControlSeen(t *testing.T) {
	t.Parallel()
	out := inHook(t, "ctlseen.py", t.TempDir())
	if want := "7\n70\n71\n3\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

// TestRunDirGone has the run directory vanish, be unwritable and belong to another user:
// the training does not notice.
func TestRunDirGone(t *testing.T) {
	t.Parallel()
	type kase struct {
		name  string
		spoil func(dir string)
	}
	torchtest.EachCase(t, []kase{
		{"gone", func(dir string) { Remove(dir) }},
		{"readable", func(dir string) { os.Chmod(dir, 0o755) }},
		{"other boot", func(dir string) {
			i := identity{BootID: "0", PIDNS: "pid:[1]"}
			os.WriteFile(filepath.Join(dir, identityFile), i.format(), 0o600)
		}},
		{"a file", func(dir string) { os.RemoveAll(dir); os.WriteFile(dir, nil, 0o700) }},
	}, func(c kase) string { return c.name }, func(t *testing.T, s *stand, c kase) {
		args := []string{"--part", "400", "--epochs", "2"}
		want := bareOn(t, s, args...)
		tr := train(t, trainOptions{on: s, args: args, spoil: c.spoil})
		r := tr.finish()
		if r.Checksum != want.Checksum || r.Main != want.Main || r.Draws != want.Draws || tr.stderr.Len() > 0 {
			t.Errorf("got %+v, bare %+v\n%s", r, want, tr.stderr.String())
		}
		if len(tr.said) > 0 {
			t.Errorf("said %+v", tr.said)
		}
	})
}

// TestLoadsWhatItNeeds: a program that imports torch and loads nothing has a small part of
// the hook; the rest comes with its first loader, and where that is gone by then the
// program does not notice.
func TestLoadsWhatItNeeds(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, s *stand) {
		script, err := filepath.Abs("testdata/needs.py")
		must(t, err)
		for _, gone := range []bool{false, true} {
			env, dir := hooked(t)
			args := []string{script}
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
			logs, _ := filepath.Glob(filepath.Join(getEnv(env, EnvDir), "log.*"))
			said := ""
			for _, log := range logs {
				text, err := os.ReadFile(log)
				must(t, err)
				said += string(text)
			}
			if off := strings.Contains(said, `"what": "off"`); off != gone {
				t.Errorf("the hook's directory is gone: %v: said %s", gone, said)
			}
		}
	})
}

// TestSiteCustomize holds what every Python of a job meets.
func TestSiteCustomize(t *testing.T) {
	t.Parallel()
	const show = `import sys
print(sys.path, sys.dont_write_bytecode, [f for f in sys.meta_path if "sitecustomize" in f.__module__])`
	t.Run("sys.path is as without it", func(t *testing.T) {
		env, dir := hooked(t)
		bare := torchtest.Run(t, os.Environ(), "-c", "import sys; print(sys.path, sys.dont_write_bytecode)")
		got := torchtest.Run(t, env, "-c", "import sys; print(sys.path, sys.dont_write_bytecode)")
		if got != bare || strings.Contains(got, dir) {
			t.Errorf("got %s, bare %s", got, bare)
		}
		if !strings.Contains(torchtest.Run(t, env, "-c", show), "Finder") {
			t.Error("not armed")
		}
	})
	t.Run("not armed where Python leaves the environment out", func(t *testing.T) {
		env, _ := hooked(t)
		for _, flag := range []string{"-I", "-E", "-S"} {
			if out := torchtest.Run(t, env, flag, "-c", show); strings.Contains(out, "Finder") {
				t.Errorf("%s: %s", flag, out)
			}
		}
	})
	t.Run("the next one runs", func(t *testing.T) {
		dir := t.TempDir()
		next := filepath.Join(dir, "sitecustomize.py")
		must(t, os.WriteFile(next, []byte("import sys\nprint('next', __name__, __file__, sys.argv is not None)\nmark = 7\n"), 0o600))
		env, _ := hooked(t, "PYTHONPATH="+dir)
		out := torchtest.Run(t, env, "-c", "import sitecustomize; print(sitecustomize.mark, sitecustomize.__file__)")
		if !strings.HasPrefix(out, "next sitecustomize "+next) || !strings.Contains(out, "7 "+next) {
			t.Error(out)
		}
		for _, body := range []string{"import no_such_module_here\n", "raise ValueError('theirs')\n", "1 +\n"} {
			must(t, os.WriteFile(next, []byte(body), 0o600))
			got := torchtest.Run(t, env, "-c", "pass")
			bare := torchtest.Run(t, append(os.Environ(), "PYTHONPATH="+dir), "-c", "pass")
			if got != bare {
				t.Errorf("%q: got %q, bare %q", body, got, bare)
			}
		}
	})
	t.Run("no compiled files", func(t *testing.T) {
		env, dir := hooked(t)
		torchtest.Run(t, env, "-c", "import sys, json")
		if exec.Command(python, "-c", "import torch").Run() == nil {
			torchtest.Run(t, env, "-c", "import torch")
		}
		filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
			if strings.HasSuffix(path, ".pyc") && !info.IsDir() {
				t.Errorf("%s was written", path)
			}
			return err
		})
		if err := checkHook(dir); err != nil {
			t.Error(err)
		}
	})
	t.Run("parses as Python 2.7", func(t *testing.T) {
		// The grammar of 2.7, print statement and all; what it lacks of 3 fails.
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
	})
}
