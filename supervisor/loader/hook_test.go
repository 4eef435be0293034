package loader

import (
	"os"
	"os/exec"
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
			"True None {'exit': 0, 'why': ''}\nTrue None {'exit': 7, 'why': ''}\nTrue None {'exit': -1, 'why': 'exit status unknown'}\n"},
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
