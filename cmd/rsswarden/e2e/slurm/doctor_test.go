package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestDoctorTorch: a real torch says hello, and the hook's word is taken.
func TestDoctorTorch(t *testing.T) {
	wardentest.NeedTorch(t)
	t.Setenv("RSSWARDEN_LIMIT", "20G")
	t.Setenv("TMPDIR", t.TempDir())
	out, errs, err := wardentest.Output(binary, "doctor", "--json", "--timeout", "2m", "--", python)
	r, of := wardentest.Examined(t, out)
	if c := of(doctor.NamePython); err != nil || !r.Protects || c.Status != doctor.OK || c.Do != "" {
		t.Errorf("%v, %v, %+v\n%s", err, r.Why, c, errs)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorTriesTorch: a torch that differs from those that are known waits for a trial,
// which --torch makes; the verdict is kept.
func TestDoctorTriesTorch(t *testing.T) {
	wardentest.NeedTorch(t)
	t.Setenv("RSSWARDEN_LIMIT", "20G")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, test := range []struct {
		name, edit   string
		before, then doctor.Status
		want         string
	}{
		{"renamed", `["dataloader.py", "_workers_done_event", "_done_event"]`, doctor.Limited, doctor.OK, "(tried here)"},
		{"changed", `["_utils/worker.py", "seed = base_seed + worker_id", "seed = worker_id"]`, doctor.Limited, doctor.Limited, "two workers drew the same random numbers"},
		{"not understood", `["dataloader.py", "target=_utils.worker._worker_loop", "target=vars(_utils.worker)['_worker_loop']"]`, doctor.Limited, doctor.Limited, "torch starts _worker_loop in no places"},
	} {
		t.Run(test.name, func(t *testing.T) {
			site := filepath.Join(t.TempDir(), "site")
			if out, err := exec.Command(python, "../../../../supervisor/loader/testdata/mutant.py", site, test.edit).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Setenv("PYTHONPATH", site)
			ask := func(args ...string) doctor.Check {
				t.Helper()
				args = append([]string{binary, "doctor", "--json", "--timeout", "2m"}, append(args, "--", python)...)
				out, errs, _ := wardentest.Output(args...)
				_, of := wardentest.Examined(t, out)
				if t.Failed() {
					t.Log(errs)
				}
				return of(doctor.NamePython)
			}
			if c := ask(); c.Status != test.before || strings.Contains(c.Found, test.want) != (test.name == "not understood") {
				t.Errorf("before: %+v", c)
			}
			if test.name == "not understood" {
				return // there is nothing to try
			}
			for _, args := range [][]string{{"--torch"}, nil} {
				if c := ask(args...); c.Status != test.then || !strings.Contains(c.Found, test.want) {
					t.Errorf("with %q: %+v", args, c)
				}
			}
		})
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorSlurm: in a batch job the limit of the step is found, and whether
// Slurm's signals arrive depends on exec, here or further down in the script.
func TestDoctorSlurm(t *testing.T) {
	t.Parallel()
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) { t.Parallel(); doctorIn(t, mode) })
	}
}

func doctorIn(t *testing.T, mode slurmtest.Mode) {
	c := slurmtest.Start(t, mode, slurmtest.Usual)
	program := c.Install(t, binary)
	ask := program + " doctor --json --timeout 2m -- " + python
	later := filepath.Dir(program) + "/rsswarden run -- true"
	for _, test := range []struct {
		name, script string
		signals      doctor.Status
		source       string
	}{
		{"under the shell", ask + "\nexit $?", doctor.Limited, ""},
		{"exec", "exec " + ask, doctor.OK, ""},
		{"exec further down", ask + "\nstatus=$?\nif false; then\nexec " + later + "\nfi\nexit $status", doctor.OK, "slurm_script"},
		{"srun", "srun " + ask, doctor.OK, ""},
	} {
		got := c.Submit(t, test.script, "--mem=2500").Wait(t)
		r, of := wardentest.Examined(t, got.Stdout)
		if got.ExitCode != 0 || !r.Protects {
			t.Errorf("%s: status %d, %v\n%s%s", test.name, got.ExitCode, r.Why, got.Stdout, got.Stderr)
		}
		if s := of(doctor.NameSignals); s.Status != test.signals || test.source != "" && filepath.Base(s.Source) != test.source {
			t.Errorf("%s: %+v", test.name, s)
		}
		for _, name := range []string{doctor.NameRun, doctor.NameLimit, doctor.NameTree, doctor.NameSlurm, doctor.NameAccounting, doctor.NameRelease} {
			if s := of(name); s.Status != doctor.OK {
				t.Errorf("%s: %+v", test.name, s)
			}
		}
		t.Logf("%s: %v; %+v", test.name, r.Why, of(doctor.NameAccounting))
	}
	// torch alone would be more than is left of so little.
	got := c.Submit(t, "exec "+program+" doctor --json --timeout 2m -- "+python, "--mem=300").Wait(t)
	r, of := wardentest.Examined(t, got.Stdout)
	if s := of(doctor.NamePython); got.State != "FAILED" || got.ExitCode != 1 || r.Protects || s.Status != doctor.Limited {
		t.Errorf("%s %d, %+v", got.State, got.ExitCode, s)
	}
}
