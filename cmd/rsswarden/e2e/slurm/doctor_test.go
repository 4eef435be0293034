package slurm

import (
	"path/filepath"
	"testing"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
)

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
		r, of := e2etest.Examined(t, got.Stdout)
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
	r, of := e2etest.Examined(t, got.Stdout)
	if s := of(doctor.NamePython); got.State != "FAILED" || got.ExitCode != 1 || r.Protects || s.Status != doctor.Limited {
		t.Errorf("%s %d, %+v", got.State, got.ExitCode, s)
	}
}
