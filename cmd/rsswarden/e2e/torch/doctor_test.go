package torch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestDoctorTriesTorchForAll: what root has tried by doctor --torch is known to every user
// of the machine, but not where others could have written it.
func TestDoctorTriesTorchForAll(t *testing.T) {
	wardentest.NeedTorch(t)
	wardentest.NeedRoot(t, "needs root")
	const plainUser = 65534
	dir, err := os.MkdirTemp("", "verdicts") // another user has to get there
	wardentest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, verdicts, program, site := filepath.Join(dir, "own"), filepath.Join(dir, "var/torch"), filepath.Join(dir, "rsswarden"), filepath.Join(dir, "site")
	for _, args := range [][]string{
		{"go", "build", "-ldflags=-X github.com/rsswarden/rsswarden/supervisor/loader.SiteVerdicts=" + verdicts, "-o", program, "github.com/rsswarden/rsswarden/cmd/rsswarden"},
		{python, "../../../../supervisor/loader/testdata/mutant.py", site, `["dataloader.py", "_workers_done_event", "_done_event"]`},
		{"install", "-d", "-m", "755", dir, filepath.Join(dir, "var")},
		{"install", "-d", "-o", "65534", own},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	ask := func(uid uint32, args ...string) doctor.Check {
		t.Helper()
		cmd := exec.Command(program, append(append([]string{"doctor", "--json", "--timeout", "2m"}, args...), "--", python)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RSSWARDEN_LIMIT=20G", "PYTHONPATH="+site, "TMPDIR="+own, "HOME="+own, "XDG_STATE_HOME="+own)
		if uid == 0 {
			cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.Output() // the status is that of all checks
		_, of := e2etest.Examined(t, string(out))
		return of(doctor.NamePython)
	}
	if c := ask(plainUser); c.Status != doctor.Limited {
		t.Errorf("before: %+v", c)
	}
	old := syscall.Umask(0o077)
	c := ask(0, "--torch")
	syscall.Umask(old)
	if c.Status != doctor.OK {
		t.Fatalf("root: %+v", c)
	}
	if c := ask(plainUser); c.Status != doctor.OK || !strings.Contains(c.Found, "(tried here)") {
		t.Errorf("after: %+v", c)
	}
	wardentest.NoError(t, os.Chmod(verdicts, 0o777))
	if c := ask(plainUser); c.Status != doctor.Limited {
		t.Errorf("where others can write: %+v", c)
	}
}

// TestDoctorTorch: a real torch says hello, and the hook's word is taken.
func TestDoctorTorch(t *testing.T) {
	wardentest.NeedTorch(t)
	t.Setenv("RSSWARDEN_LIMIT", "20G")
	t.Setenv("TMPDIR", t.TempDir())
	out, errs, err := wardentest.Output(binary, "doctor", "--json", "--timeout", "2m", "--", python)
	r, of := e2etest.Examined(t, out)
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
				_, of := e2etest.Examined(t, out)
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
