package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStepOfCgroup(t *testing.T) {
	for _, test := range []struct {
		name, text string
		job, step  string
		ok         bool
	}{
		{"none", "4:memory:/user.slice\n0::/\n", "", "", false},
		{"v1", "9:name=systemd:/\n6:freezer:/slurm_n1/uid_1000/job_46/step_batch\n", "46", "batch", true},
		{"v1, task", "4:memory:/slurm/uid_0/job_4/step_0/task_3\n", "4", "0", true},
		{"v2", "0::/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special\n", "7", "extern", true},
		{"26.05", "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/user/task_0", "sEKNKTV3WPV500", "batch", true},
		{"job without a step", "0::/x/job_7\n", "", "", false},
		{"step without a job", "0::/x/step_7\n", "", "", false},
		{"empty names", "0::/job_/step_\n", "", "", false},
		{"a colon in the path", "0::/a:b/job_7/step_0\n", "7", "0", true},
		{"junk", "\x00\n::\n", "", "", false},
	} {
		job, step, ok := StepOfCgroup([]byte(test.text))
		if job != test.job || step != test.step || ok != test.ok {
			t.Errorf("%s: %q %q %v", test.name, job, step, ok)
		}
	}
}

func FuzzStepOfCgroup(f *testing.F) {
	f.Add("6:freezer:/slurm_n1/uid_1000/job_46/step_batch\n0::/sEKNKTV3WPV500/step_batch")
	f.Fuzz(func(t *testing.T, text string) {
		job, step, ok := StepOfCgroup([]byte(text))
		if ok != (job != "" && step != "") || strings.ContainsAny(job+step, "/\n") {
			t.Errorf("%q: %q %q %v", text, job, step, ok)
		}
	})
}

func TestNamesOfDirs(t *testing.T) {
	for name, want := range map[string]string{
		"job_46": "46", "sEKNKTV3WPV500": "sEKNKTV3WPV500", "job_4294967295": "4294967295", "job_4294967296": "", "job_": "", "job_+1": "",
		"job_-1": "", "job_007": "", "job_7 ": "", "step_0": "", "": "", "sEKNKTV3WPV50é": "",
	} {
		if got, ok := JobOfDir(name); got != want || ok != (want != "") {
			t.Errorf("job of %q: %q, %v", name, got, ok)
		}
	}
	for name, want := range map[string]string{
		"step_0": "0", "step_batch": "batch", "step_extern": "extern", "step_interactive": "interactive", "step_3+1": "3+1",
		"step_": "", "step_3+": "", "step_+1": "", "step_x": "", "step_batch ": "", "job_7": "",
	} {
		if got, ok := StepOfDir(name); ok != (want != "") || ok && got != want {
			t.Errorf("step of %q: %q, %v", name, got, ok)
		}
	}
}

func FuzzNamesOfDirs(f *testing.F) {
	f.Add("job_46")
	f.Add("step_3+1")
	f.Fuzz(func(t *testing.T, name string) {
		job, isJob := JobOfDir(name)
		step, isStep := StepOfDir(name)
		if isJob && isStep || isJob && strings.Trim(job, "s0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" ||
			isStep && strings.Trim(step, "+0123456789abcdefghijklmnopqrstuvwxyz") != "" {
			t.Errorf("%q: %q %v, %q %v", name, job, isJob, step, isStep)
		}
	})
}

func TestInCgroup(t *testing.T) {
	job, _ := FromEnv(env("SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_JOB_NUM_NODES=3"))
	got := job.InCgroup([]byte("6:freezer:/slurm/uid_1/job_2/step_batch\n"))
	if got.StepID != StepBatch || got.Tasks != 2 || got.Nodes != 3 {
		t.Errorf("a job submitted from a step: %+v", got)
	}
	got = job.InCgroup([]byte("0::/sEKNKTV3WPV500/step_batch\n"))
	if got.StepID != StepBatch {
		t.Errorf("by SLUID: %+v", got)
	}
	for _, text := range []string{"", "0::/job_1/step_batch\n", "0::/job_2/step_0\n"} {
		if got := job.InCgroup([]byte(text)); got != job {
			t.Errorf("%q: %+v, want no change", text, got)
		}
	}
}

func TestStepOfTitle(t *testing.T) {
	for title, want := range map[string]string{
		"slurmstepd: [46.batch]\x00\x00": "46.batch", "slurmstepd: [46.0]": "46.0", "slurmstepd: [46.extern] ": "46.extern",
		"slurmstepd: [46.0+1]": "46.0+1", "slurmstepd: [46]": "", "slurmstepd: [-Mevil.0]": "", "slurmstepd: [46.x]": "",
		"/usr/sbin/slurmstepd infinity": "", "slurmstepd: [46.0]\x00--more": "", "sh: [46.0]": "", "": "",
	} {
		job, step, ok := StepOfTitle([]byte(title))
		if ok != (want != "") || ok && job+"."+step != want {
			t.Errorf("%q: %q, %q, %v; want %q", title, job, step, ok, want)
		}
	}
}

// TestJobOfSLUID: the title of slurmstepd tells which job a SLUID is. A process that only
// has such a title is not believed.
func TestJobOfSLUID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("directories must be root's")
	}
	const sluid, batch = "s8ANM84T9X1C00", "/system.slice/localhost_slurmstepd.scope/s8ANM84T9X1C00/step_batch/slurm"
	type process struct {
		title, cgroup, uids string
	}
	stepd := process{"slurmstepd: [17.batch]\x00\x00", "0::" + batch + "\n", "0\t0\t0\t0"}
	for _, c := range []struct {
		name   string
		change func(p *process)
		owner  int    // of step_batch/slurm
		listed string // its cgroup.procs
		want   string
	}{
		{"as Slurm makes it", nil, 0, "700\n", "17"},
		{"beside one of another PID namespace", nil, 0, "0\n700\n", "17"},
		{"a user's process", func(p *process) { p.uids = "1000\t1000\t1000\t1000" }, 0, "700\n", ""},
		{"a set-user-ID program of a user's", func(p *process) { p.uids = "1000\t0\t0\t0" }, 0, "700\n", ""},
		{"a directory of a user's", nil, 1000, "700\n", ""},
		{"a task with that title", func(p *process) {
			p.cgroup = "0::/system.slice/localhost_slurmstepd.scope/" + sluid + "/step_batch/user/task_0\n"
		}, 0, "700\n", ""},
		{"in another job", func(p *process) { p.cgroup = "0::/system.slice/s0000000000000/step_batch/slurm\n" }, 0, "700\n", ""},
		{"of another step", func(p *process) { p.title = "slurmstepd: [99.0]" }, 0, "700\n", ""},
		{"before it has a title", func(p *process) { p.title = "/usr/sbin/slurmstepd\x00" }, 0, "700\n", ""},
		{"no job's", func(p *process) { p.title = "slurmstepd: [../x.batch]" }, 0, "700\n", ""},
		{"it has ended", nil, 0, "701\n", ""},
		{"PIDs that are none", nil, 0, "../700\n-1\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			p := stepd
			if c.change != nil {
				c.change(&p)
			}
			dir := filepath.Join(root, sluid)
			inner := filepath.Join(dir, "step_batch", "slurm")
			proc := filepath.Join(root, "proc")
			for _, d := range []string{inner, filepath.Join(dir, "step_batch", "user"), filepath.Join(proc, "700")} {
				must(t, os.MkdirAll(d, 0o755))
			}
			for name, text := range map[string]string{
				inner + "/cgroup.procs": c.listed, proc + "/700/cmdline": p.title, proc + "/700/cgroup": p.cgroup,
				proc + "/700/status": fmt.Sprintf("Name:\tslurmstepd\nUid:\t%s\nGid:\t0\t0\t0\t0\n", p.uids),
			} {
				must(t, os.WriteFile(name, []byte(text), 0o644))
			}
			must(t, os.Chown(inner, c.owner, 0))
			if got, ok := JobOfSLUID(proc, dir); got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, c.want)
			}
			if got, ok := JobOfSLUID(proc, filepath.Join(root, "job_17")); ok {
				t.Errorf("of a directory with a number: %q", got)
			}
		})
	}
}
