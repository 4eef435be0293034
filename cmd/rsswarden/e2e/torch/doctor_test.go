package torch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestDoctorTriesTorchForAll: what root has tried by doctor --torch is known to every user
// of the machine, but not where others could have written it.
func TestDoctorTriesTorchForAll(t *testing.T) {
	wardentest.NeedTorch(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "verdicts") // another user has to get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own, verdicts, program, site := filepath.Join(dir, "own"), filepath.Join(dir, "var/torch"), filepath.Join(dir, "rsswarden"), filepath.Join(dir, "site")
	for _, args := range [][]string{
		{"go", "build", "-ldflags=-X github.com/rsswarden/rsswarden/supervisor/loader.SiteVerdicts=" + verdicts, "-o", program, "github.com/rsswarden/rsswarden/cmd/rsswarden"},
		{python, "../../../../supervisor/loader/testdata/mutant.py", site, `["dataloader.py", "_workers_done_event", "_done_event"]`},
		{"install", "-d", "-m", "755", dir, filepath.Join(dir, "var")},
		{"install", "-d", "-o", "nobody", own},
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
		_, of := wardentest.Examined(t, string(out))
		return of(doctor.NamePython)
	}
	if c := ask(nobody); c.Status != doctor.Limited {
		t.Errorf("before: %+v", c)
	}
	old := syscall.Umask(0o077)
	c := ask(0, "--torch")
	syscall.Umask(old)
	if c.Status != doctor.OK {
		t.Fatalf("root: %+v", c)
	}
	if c := ask(nobody); c.Status != doctor.OK || !strings.Contains(c.Found, "(tried here)") {
		t.Errorf("after: %+v", c)
	}
	if err := os.Chmod(verdicts, 0o777); err != nil {
		t.Fatal(err)
	}
	if c := ask(nobody); c.Status != doctor.Limited {
		t.Errorf("where others can write: %+v", c)
	}
}
