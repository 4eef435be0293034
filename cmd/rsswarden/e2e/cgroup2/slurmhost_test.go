package cgroup2

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const slurmInGuest = "CGROUP2_TEST_SLURM" // the version of Slurm

// A case is of the versions of Slurm that it names, or of all.
var slurmCases = []struct {
	name     string
	run      func(*testing.T)
	versions string
}{
	{"Bare", slurmBare, "22.05 24.11"},
	{"Killed", slurmKilled, ""},
	{"Stopped", slurmStopped, "22.05 24.11"},
	{"Step", slurmStep, ""},
	{"HugePages", slurmHugePages, "22.05"}, // counted twice up to 23.02.5
	{"JobSum", slurmJobSum, "26.05"},       // kills from 26.05.3 on
}

// slurmGuests are the versions of Slurm and the kernels that they run on.
var slurmGuests = []struct {
	version, kernel string
	suite           debian.Suite // empty for this machine's
}{
	{"22.05", "6.1", ""},
	{"24.11", "6.12", debian.Trixie},
	{"26.05", "6.12", debian.Sid},
}

// TestWorksWith holds the README's row on Slurm on cgroup v2 against what [TestSlurm] runs.
func TestWorksWith(t *testing.T) {
	var list []string
	for _, s := range slurmGuests {
		cmd := exec.Command("slurmd", "-V")
		if s.suite != "" {
			cmd = debian.Need(t, s.suite).Command("slurmd", "-V")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Skip("no Slurm: ", err)
		}
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // slurm-wlm 26.05.5
		list = append(list, version[:strings.LastIndex(version, ".")]+" on Linux "+s.kernel)
	}
	rsstest.WorksWith(t, "Slurm, cgroup v2", list)
}

// TestSlurm runs a real Slurm in a guest: this machine's on the kernel of its
// release, Debian 13's on that of its own, and Debian sid's on the newest there is.
func TestSlurm(t *testing.T) {
	if version := os.Getenv(slurmInGuest); version != "" {
		for _, c := range slurmCases {
			if strings.Contains(c.versions, version) || c.versions == "" {
				t.Run(c.name, c.run)
			}
		}
		return
	}
	tests, program := guest.TestBinary(t), wardentest.Program(t, wardentest.Static)
	for _, s := range slurmGuests {
		root := "/"
		if s.suite != "" {
			root = debian.Need(t, s.suite).Path("/")
		}
		t.Run(s.version, func(t *testing.T) {
			files := slurmFiles(t, root)
			files["/guest/rsswarden"] = program
			out, exit := guest.Run(t, guest.Options{
				Kernel: s.kernel, Binary: tests, Args: []string{"-test.run=^TestSlurm$", "-test.v"},
				Env: []string{slurmInGuest + "=" + s.version}, Files: files, DiskMB: 300, MemMB: 1024, Timeout: 5 * time.Minute,
			})
			for _, c := range slurmCases {
				if strings.Contains(c.versions, s.version) || c.versions == "" {
					t.Run(c.name, func(t *testing.T) { judge(t, out, "TestSlurm/"+c.name) })
				}
			}
			if exit != 0 && !t.Failed() {
				t.Errorf("in the guest: status %d\n%s", exit, out)
			}
		})
	}
}

// slurmFiles are the programs and plugins of a Slurm, each at its own path.
func slurmFiles(t *testing.T, root string) map[string]string {
	t.Helper()
	const plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
	names := []string{"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/slurmstepd", "/usr/bin/sbatch", "/usr/bin/srun", "/usr/bin/scontrol"}
	all, err := filepath.Glob(filepath.Join(root, plugins, "*.so"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, file := range all {
		name := filepath.Base(file)
		switch kind, _, _ := strings.Cut(strings.TrimSuffix(name, ".so"), "_"); {
		case strings.HasSuffix(name, "_none.so"), kind == "hash", kind == "topology", kind == "certgen", kind == "certmgr", kind == "http", kind == "serializer",
			strings.Contains(" mpi_pmi2.so gpu_generic.so auth_munge.so cred_munge.so cgroup_v2.so jobacct_gather_cgroup.so proctrack_cgroup.so task_cgroup.so "+
				"select_cons_tres.so sched_builtin.so sched_backfill.so priority_basic.so priority_multifactor.so route_default.so launch_slurm.so prep_script.so ", " "+name+" "):
			names = append(names, plugins+"/"+name)
		}
	}
	files := map[string]string{}
	wardentest.NoError(t, guest.AddDynamic(files, root, names...))
	return files
}
