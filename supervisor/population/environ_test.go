package population

import (
	"fmt"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

func TestEnvironmentOf(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	own := []string{"HOME=/root", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0", "SLURM_MEM_PER_NODE=100", "SLURM_CONF=/etc/a"}
	n.put(10, 1, "slurmstepd", "0::/\n", "SLURM_JOB_ID=99")
	n.put(11, 10, "bash", "0::/\n", own...)
	n.put(12, 11, "env", "0::/\n", "PATH=/bin")
	n.put(13, 10, "bare", "0::/\n", "PATH=/bin")
	n.put(14, 11, "other", fmt.Sprintf(v1, "47", "3"), own...)
	n.put(15, 10, "bare", fmt.Sprintf(v1, "47", "batch"), "PATH=/bin")
	n.put(16, 10, "same", fmt.Sprintf(v1, "46", "0"), own...)
	n.put(17, 10, "new", "0::/slurm/s0123456789ABC/step_0/user\n", own...)
	n.Put(rsstest.Process{PID: 18, Parent: 10, Comm: "hidden", UID: user}) // no environ: as if it were not ours
	n.Write("proc/18/cgroup", fmt.Sprintf(v1, "47", "0"))
	for _, c := range []struct {
		name           string
		pid            int
		job, step, mem string
		conf           string
		err            bool
	}{
		{"its own", 11, "46", "0", "100", "/etc/a", false},
		{"its parent's", 12, "46", "0", "100", "/etc/a", false},
		{"not slurmstepd's", 13, "", "", "", "", false},
		{"of another job than its cgroup", 14, "47", "3", "", "/etc/a", false},
		{"only its cgroup", 15, "47", "batch", "", "/site", false},
		{"as its cgroup says", 16, "46", "0", "100", "/etc/a", false},
		{"its cgroup has another name", 17, "46", "0", "100", "/etc/a", false},
		{"may not be read", 18, "47", "0", "", "/site", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours := ""
			if c.conf == "/site" {
				ours = "/site"
			}
			e := n.by(user).environment(c.pid, ours)
			for name, want := range map[string]string{"SLURM_JOB_ID": c.job, "SLURM_STEP_ID": c.step, "SLURM_MEM_PER_NODE": c.mem, "SLURM_CONF": c.conf, "HOME": ""} {
				if got, ok := e.Lookup(name); got != want || ok != (want != "") {
					t.Errorf("%s is %q (%v), want %q", name, got, ok, want)
				}
			}
			if (e.Err != nil) != c.err {
				t.Errorf("error %v", e.Err)
			}
		})
	}
}
