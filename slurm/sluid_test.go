package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

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
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range map[string]string{
				inner + "/cgroup.procs": c.listed, proc + "/700/cmdline": p.title, proc + "/700/cgroup": p.cgroup,
				proc + "/700/status": fmt.Sprintf("Name:\tslurmstepd\nUid:\t%s\nGid:\t0\t0\t0\t0\n", p.uids),
			} {
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chown(inner, c.owner, 0); err != nil {
				t.Fatal(err)
			}
			if got, ok := JobOfSLUID(proc, dir); got != c.want || ok != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, ok, c.want)
			}
			if got, ok := JobOfSLUID(proc, filepath.Join(root, "job_17")); ok {
				t.Errorf("of a directory with a number: %q", got)
			}
		})
	}
}
