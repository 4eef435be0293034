package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/cmd/rsswarden/e2e/e2etest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/doctor"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// onFullMachine is set where /tmp may be replaced: in a mount namespace of the test's own.
const onFullMachine = "RSSTEST_FULL"

// TestFull: where there is no room in /tmp or in RSSWARDEN_RUNTIME, or no home, tasks under the
// plugin and under task-prolog are as bare, and doctor says what is missing.
func TestFull(t *testing.T) {
	if err := slurmtest.Missing(); err != nil {
		t.Skip(err)
	}
	if os.Getenv(onFullMachine) != "" {
		t.Run("plugin", func(t *testing.T) { newSite(t, "").full(t, "rsswarden") })
		t.Run("task-prolog", func(t *testing.T) { newPrologSite(t, "").full(t, "slurmstepd") })
		return
	}
	// What lies below /tmp is not seen there, this program included.
	dir, err := os.MkdirTemp("/var/tmp", "rsswarden-full-")
	wardentest.NoError(t, err)
	defer os.RemoveAll(dir)
	wardentest.NoError(t, os.Chmod(dir, 0o755))
	for _, path := range []string{binary, wardentest.Program(t, wardentest.Site), os.Args[0]} {
		wardentest.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(path)), wardentest.ReadFile(t, path), 0o755))
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "--",
		filepath.Join(dir, filepath.Base(os.Args[0])), "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), onFullMachine+"=1", "TMPDIR="+dir, wardentest.Programs+"="+dir)
	out, errs, err := wardentest.Run(cmd)
	if err != nil || !strings.Contains(out, "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

// full runs tasks with what is missing, and without rsswarden. parents start them.
func (s *site) full(t *testing.T, parents string) {
	const script = parent + `; cat; echo "$0 $1"; /usr/bin/python3 -c 'import multiprocessing as m; print(m.get_context("fork").Pool(2).map(abs, [-1, -2]))'; echo said >&2; exit 7`
	const bytes, files = "mount -t tmpfs -o mode=1777,size=4k full /tmp; ! head -c 10000 /dev/zero >/tmp/fill",
		"mount -t tmpfs -o mode=1777,size=100m,nr_inodes=1 full /tmp; ! mkdir /tmp/fill"
	for _, row := range []struct {
		name, tmp string
		env       []string // arguments of env
		status    map[string]doctor.Status
		found     string
	}{
		{"no bytes in tmp", bytes, nil,
			map[string]doctor.Status{doctor.NameRunDir: doctor.Off, doctor.NameHookDir: doctor.Off, doctor.NameRecord: doctor.Off}, "no space left on device"},
		{"no files in tmp", files, nil,
			map[string]doctor.Status{doctor.NameRunDir: doctor.Off, doctor.NameHookDir: doctor.Off}, "no space left on device"},
		{"no room in RSSWARDEN_RUNTIME", bytes, []string{"RSSWARDEN_RUNTIME=/tmp", "TMPDIR=" + s.Dir()},
			map[string]doctor.Status{doctor.NameRunDir: doctor.Limited, doctor.NameHookDir: doctor.OK}, "passed over: RSSWARDEN_RUNTIME=/tmp"},
		{"no home", "", []string{"HOME=/nowhere"}, map[string]doctor.Status{doctor.NameHookDir: doctor.Limited}, "passed over: open /nowhere"},
		{"no HOME", "", []string{"-u", "HOME"}, map[string]doctor.Status{doctor.NameHookDir: doctor.OK}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.tmp != "" {
				if out, err := exec.Command("sh", "-ec", row.tmp).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				defer exec.Command("umount", "-l", "/tmp").Run()
			}
			srun := func(env string, args ...string) slurmtest.Output {
				return s.Do(t, "env", slices.Concat(row.env, []string{"RSSWARDEN=" + env, "srun", "--mem=2000"}, args)...)
			}
			with, bare := srun("on", "sh", "-c", script, "zero", "two words"), srun("off", "sh", "-c", script, "zero", "two words")
			names, rest := by(with.Stdout)
			if with.Code != 7 || len(names) != 1 || names[0] != parents || bare.Stdout != "by slurmstepd\n"+rest || rest != "zero two words\n[1, 2]\n" || unnumbered(with.Stderr) != unnumbered(bare.Stderr) {
				t.Errorf("%+v\nbare %+v", with, bare)
			}
			if parents == "slurmstepd" { // the same for both, and slow
				return
			}
			_, check := e2etest.Examined(t, srun("on", s.bin, "doctor", "--json").Stdout)
			for name, want := range row.status {
				if c := check(name); c.Status != want || (name == doctor.NameRunDir || len(row.status) == 1) && !strings.Contains(c.Found, row.found) {
					t.Errorf("%+v, want %v", c, want)
				}
			}
		})
	}
}
