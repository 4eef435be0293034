package population

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestJobOf: processes of extern are watched and are no task, unless that was asked for. The
// command is a task of srun's rather than the batch script, and stays so while it lives.
func TestJobOf(t *testing.T) {
	extern, task, batch := Member{ID: procID(21), Step: Extern, Task: true}, Member{ID: procID(22), Step: "0", Task: true}, Member{ID: procID(23), Step: "batch", Task: true}
	for name, c := range map[string]struct {
		asked   string
		members []Member
		before  int
		want    string // name, roots, tasks, steps, excluded
	}{
		"all":               {"", []Member{extern, task, batch}, 0, "46 [22@22 21@21 23@23] [22@22 23@23] [0 batch extern] [extern]"},
		"the command lives": {"", []Member{extern, task, batch}, 23, "46 [23@23 22@22 21@21] [23@23 22@22] [0 batch extern] [extern]"},
		"it has ended":      {"", []Member{extern, task, batch}, 24, "46 [22@22 21@21 23@23] [22@22 23@23] [0 batch extern] [extern]"},
		"no srun":           {"", []Member{extern, batch}, 0, "46 [23@23 21@21] [23@23] [batch extern] [extern]"},
		"a shell alone":     {"", []Member{extern}, 0, "46 [21@21] [] [extern] [extern]"},
		"extern":            {Extern, []Member{extern}, 0, "46.extern [21@21] [21@21] [extern] []"},
	} {
		j := jobOf("46", c.asked, c.members, rss.ProcID{PID: c.before, Start: uint64(c.before)})
		if got := fmt.Sprintln(j.Name, j.Roots, j.Tasks, j.Steps, j.Excluded); got != c.want+"\n" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	j := jobOf("46", "", []Member{extern, task, batch}, rss.ProcID{})
	if got := fmt.Sprint(j.In("0"), j.In(Extern), j.In("1")); got != "[22@22] [21@21] []" {
		t.Errorf("in the steps are %s", got)
	}
}

func TestJobString(t *testing.T) {
	for want, steps := range map[string][]string{"step 0": {"0"}, "steps 0 and batch": {"0", "batch"}, "steps 0, 1 and batch": {"0", "1", "batch"}} {
		j := Job{Steps: steps}
		if got := j.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFollowJob: what comes is taken in, and the last end is the end of the job. Its own
// processes are real: the end of a made-up one cannot be waited for.
func TestFollowJob(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	in := fmt.Sprintf(v1, "46", "0")
	n.makeDirs(in, os.Geteuid())
	if f, err := FollowJob(n.Proc, n.Sys, "46", "", 1); f != nil || err != nil {
		t.Fatalf("no process: %v, %v", f, err)
	}
	if _, err := FollowJob(n.Proc+"/none", n.Sys, "46", "", 1); err == nil {
		t.Error("no /proc: no error")
	}
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(t, err)
	n.Put(rsstest.Process{PID: pid, Parent: 1, Start: start, Comm: "python", UID: user})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), in)
	f, err := FollowJob(n.Proc, n.Sys, "46", "0", 1)
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	if j := f.Job(); j.Name != "46.0" || len(j.Roots) != 1 || j.Roots[0].PID != pid || !f.Lives() {
		t.Errorf("%+v", j)
	}
	over := make(chan struct{})
	go func() {
		f.Wait()
		close(over)
	}()
	n.put(5000001, 1, "python", in)
	wardentest.Until(t, "one that has come is taken in", func() bool { return len(f.Job().Roots) == 2 })
	n.End(pid)
	n.End(5000001)
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("the end of the job is not seen")
	}
	if f.Lives() {
		t.Error("it lives")
	}
}

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
