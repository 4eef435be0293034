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

// TestControlSeen writes one ctl file over another, in place and within what the
// clock of a file system may tell apart: each is read.
func TestControlSeen(t *testing.T) {
	t.Parallel()
	out := inHook(t, "ctlseen.py", t.TempDir())
	if want := "7\n70\n71\n3\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
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
