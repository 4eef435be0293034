package integrations_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// condaEnv makes an environment as conda lays it out, with a Python and a standard
// library of its own, that finds the machine's PyTorch: sitecustomize.py is its own.
func (p *place) condaEnv(activate, sitecustomize string) {
	p.t.Helper()
	const ask = "import sys, sysconfig, os; print(os.path.realpath(sys.executable)); print(sysconfig.get_paths()['stdlib'])"
	out, err := exec.Command(python, "-I", "-c", ask).Output()
	exe, stdlib, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	wardentest.NoError(p.t, err)
	prefix := p.file("envs/train")
	lib, program := filepath.Join(prefix, "lib", filepath.Base(stdlib)), string(wardentest.ReadFile(p.t, exe))
	wardentest.Write(p.t, filepath.Join(prefix, "bin/python"), program)
	wardentest.Write(p.t, filepath.Join(prefix, "conda-meta/history"), "")
	wardentest.Write(p.t, filepath.Join(prefix, "etc/conda/activate.d/train.sh"), activate)
	wardentest.Write(p.t, p.file("mine/helper.py"), "print('helper', flush=True)\n")
	entries, err := os.ReadDir(stdlib)
	if err == nil {
		err = os.MkdirAll(lib, 0o755)
	}
	for _, e := range entries {
		if err == nil && !strings.HasSuffix(e.Name(), "-packages") && e.Name() != "sitecustomize.py" {
			err = os.Symlink(filepath.Join(stdlib, e.Name()), filepath.Join(lib, e.Name()))
		}
	}
	wardentest.NoError(p.t, err)
	// Debian's Python has another name for site-packages than conda's.
	site, err := exec.Command(filepath.Join(prefix, "bin/python"), "-I", "-c", "import site; print(site.getsitepackages()[0])").Output()
	if err != nil || !strings.HasPrefix(string(site), prefix) {
		p.t.Fatalf("%q, %v", site, err)
	}
	wardentest.Write(p.t, filepath.Join(strings.TrimSpace(string(site)), "machine.pth"), "/usr/lib/python3/dist-packages\n")
	wardentest.Write(p.t, filepath.Join(strings.TrimSpace(string(site)), "sitecustomize.py"), sitecustomize)
}

// condaTrain says what it sees of the environment, and has PyTorch load the hook.
const condaTrain = `import os, sys, time
import helper
import torch.utils.data
print(sys.prefix, sys.mark, sys.flags.no_user_site, os.environ["PYTHONPATH"].split(":")[-1], flush=True)
end = time.monotonic() + 60
while not os.path.exists("work/enough") and time.monotonic() < end:
    time.sleep(0.02)
`

// TestConda: the hook is in force in a conda environment, and so are its own
// sitecustomize, what was on PYTHONPATH and PYTHONNOUSERSITE. Where activating it overwrites
// PYTHONPATH behind rsswarden, a line says so.
func TestConda(t *testing.T) {
	t.Parallel()
	wardentest.NeedTorch(t)
	const keeps, overwrites = "export PYTHONNOUSERSITE=1 PYTHONPATH=@dir/mine${PYTHONPATH:+:$PYTHONPATH}\n", "export PYTHONPATH=@dir/mine\n"
	for _, c := range []struct {
		name, activate string
		behind         bool // it is activated behind rsswarden
		reached        bool
	}{
		{"before", "export PYTHONNOUSERSITE=1 PYTHONPATH=@dir/mine\n", false, true},
		{"behind", keeps, true, true},
		{"behind, overwritten", overwrites, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "conda/train.sbatch", "testdata/conda")
			p.condaEnv(strings.ReplaceAll(c.activate, "@dir", p.dir), "import sys\nsys.mark = 'own'\n")
			wardentest.Write(p.t, p.file("train.py"), condaTrain)
			words := []string{"/bin/bash", "train.sbatch"}
			if c.behind {
				words = []string{"rsswarden", "run", "--", "/bin/bash", "-c", `eval "$(conda shell.bash hook)"; conda activate train; python train.py`}
			}
			r := p.start(words...)
			r.event("event=loader what=" + map[bool]string{true: "hello", false: "unreached"}[c.reached])
			p.enough()
			status, out := r.ends(), r.stdout.String()
			if want := "helper\n" + p.file("envs/train") + " own "; status != 0 || !strings.HasPrefix(out, want) {
				t.Errorf("status %d, stdout %q, want %q first\n%s", status, out, want, &r.stderr)
			}
			if c.reached && !strings.Contains(out, " own 1 ") {
				t.Errorf("PYTHONNOUSERSITE is not in force: %q", out)
			}
			if !c.behind && !strings.HasSuffix(out, " "+p.file("mine")+"\n") {
				t.Errorf("PYTHONPATH has lost what it had: %q", out)
			}
			told := strings.Contains(r.stderr.String(), "PYTHONPATH was overwritten, without the hook's directory")
			if told == c.reached {
				t.Errorf("told %v\n%s", told, &r.stderr)
			}
		})
	}
}
