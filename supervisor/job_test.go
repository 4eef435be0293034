package supervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// jobTree is a made-up node.
type jobTree struct {
	t *testing.T
	rsstest.Tree
}

func (n jobTree) put(pid, parent int, comm, cgroup string, env ...string) {
	n.Put(rsstest.Process{PID: pid, Parent: parent, Start: uint64(pid), Comm: comm})
	n.Write(fmt.Sprintf("proc/%d/cgroup", pid), cgroup)
	n.Write(fmt.Sprintf("proc/%d/environ", pid), strings.Join(env, "\x00")+"\x00")
}

// found gives "PID:step" of each member, a * behind a task.
func found(t *testing.T, f *finder) string {
	t.Helper()
	members, err := f.find()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range members {
		text := fmt.Sprintf("%d:%s", m.id.PID, m.step)
		if m.task {
			text += "*"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

const (
	v1 = "9:freezer:/slurm/uid_1/job_%[1]s/step_%[2]s\n4:memory:/slurm/uid_1/job_%[1]s/step_%[2]s/task_0\n"
	v2 = "0::/system.slice/slurmstepd.scope/job_%s/step_%s/user/task_0\n"
)

func TestFindByCgroup(t *testing.T) {
	for name, format := range map[string]string{"v1": v1, "v2": v2} {
		t.Run(name, func(t *testing.T) {
			n := jobTree{t, rsstest.Empty(t)}
			in := func(job, step string) string { return fmt.Sprintf(format, job, step) }
			n.put(1, 0, "systemd", "0::/init.scope\n")
			n.put(10, 1, "slurmstepd", in("46", "batch"))
			n.put(11, 10, "slurm_script", in("46", "batch"))
			n.put(12, 11, "srun", in("46", "batch"))
			n.put(20, 1, "slurmstepd", in("46", "0"))
			n.put(21, 20, "python", in("46", "0"))
			n.put(22, 20, "python", in("46", "0"))
			n.put(23, 21, "python", in("46", "0"))
			n.put(24, 1, "orphan", in("46", "0"))
			n.put(31, 1, "python", in("460", "0"))
			n.put(32, 1, "ssh", "0::/user.slice\n", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
			n.put(40, 20, "rsswarden", in("46", "0"))
			n.Put(rsstest.Process{PID: 50, Parent: 20, State: 'Z'})
			n.Write("proc/50/cgroup", in("46", "0"))

			f := newFinder(n.Proc, "46", "", 40)
			if got, want := found(t, f), "11:batch* 21:0* 22:0* 24:0* 12:batch 23:0"; got != want {
				t.Errorf("the job: %s, want %s", got, want)
			}
			if got, want := found(t, newFinder(n.Proc, "46", "batch", 40)), "11:batch* 12:batch"; got != want {
				t.Errorf("the batch step: %s, want %s", got, want)
			}
			if got := found(t, newFinder(n.Proc, "47", "", 40)); got != "" {
				t.Errorf("another job: %s", got)
			}
			// A task that slurmstepd has forked and not executed yet, and one
			// that has.
			n.put(25, 20, "slurmstepd", in("46", "1"))
			found(t, f)
			n.put(25, 20, "python", in("46", "1"))
			n.put(26, 25, "python", in("46", "1"))
			n.End(21)
			if got, want := found(t, f), "11:batch* 22:0* 23:0* 24:0* 25:1* 12:batch 26:1"; got != want {
				t.Errorf("later: %s, want %s", got, want)
			}
			// A PID that was given to a process of the job.
			n.put(31, 22, "python", in("46", "0"))
			for range recheck {
				found(t, f)
			}
			if got := found(t, f); !strings.Contains(got, "31:0") {
				t.Errorf("a PID used again is not found: %s", got)
			}
			// … and one of the job's to a process of another.
			n.put(31, 1, "sh", "0::/user.slice\n")
			n.Put(rsstest.Process{PID: 31, Parent: 1, Start: 77})
			if got := found(t, f); strings.Contains(got, "31:0") {
				t.Errorf("a stranger is taken in: %s", got)
			}
			for _, pid := range []int{11, 12, 22, 23, 24, 25, 26} {
				n.End(pid)
			}
			if got := found(t, f); got != "" {
				t.Errorf("after its end: %s", got)
			}
		})
	}
}

// TestFindByOtherNames: an array's task, and a job since Slurm 26.05, have
// another name in the cgroup than people use.
func TestFindByOtherNames(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	task := []string{"SLURM_JOB_ID=47", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=3", "SLURM_STEP_ID=0"}
	n.put(21, 1, "python", fmt.Sprintf(v1, "47", "0"), task...)
	n.put(22, 21, "sh", fmt.Sprintf(v1, "47", "0"))
	n.put(31, 1, "python", "0::/system.slice/slurmstepd.scope/s0123456789ABC/step_0/user/task_0\n", "SLURM_JOB_ID=48", "SLURM_STEP_ID=0")
	f := newFinder(n.Proc, "46_3", "", 1)
	if got := found(t, f); got != "21:0* 22:0" || f.job != "47" {
		t.Errorf("46_3: %s, job %s", got, f.job)
	}
	if got := found(t, newFinder(n.Proc, "46_4", "", 1)); got != "" {
		t.Errorf("46_4: %s", got)
	}
	if got := found(t, newFinder(n.Proc, "48", "", 1)); got != "31:0*" {
		t.Errorf("48: %s", got)
	}
}

// TestFindByEnvironment: without proctrack/cgroup and task/cgroup.
func TestFindByEnvironment(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	n.put(10, 1, "slurmstepd", "0::/\n")
	n.put(11, 10, "slurm_script", "0::/\n", "SLURM_JOB_ID=46", "SLURMD_NODENAME=n1")
	n.put(12, 11, "python", "0::/\n", "SLURM_JOB_ID=46", "SLURMD_NODENAME=n1")
	n.put(21, 1, "python", "0::/\n", "SLURM_JOB_ID=46", "SLURM_STEP_ID=0")
	n.put(31, 1, "bash", "0::/\n", "SLURM_JOB_ID=46") // of salloc: in no step
	n.put(32, 1, "bash", "0::/\n", "SLURM_JOB_ID=47", "SLURM_STEP_ID=0")
	if got, want := found(t, newFinder(n.Proc, "46", "", 1)), "11:batch* 21:0* 12:batch"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFindNotOurs: what an exec= rule runs is no part of the job, also where
// what started it has ended.
func TestFindNotOurs(t *testing.T) {
	n := jobTree{t, rsstest.Empty(t)}
	in := fmt.Sprintf(v1, "46", "0")
	n.put(20, 1, "slurmstepd", in)
	n.put(21, 20, "bash", in)
	n.put(40, 21, "rsswarden", in)
	n.put(41, 40, "sh", in)
	n.put(39, 41, "notify.sh", in) // its PID comes before those above it
	n.put(43, 39, "curl", in)
	f := newFinder(n.Proc, "46", "", 40)
	if got := found(t, f); got != "21:0*" {
		t.Errorf("the job: %s", got)
	}
	n.End(41)
	n.put(39, 1, "notify.sh", in)
	for range 2 {
		if got := found(t, f); got != "21:0*" {
			t.Errorf("an orphan of ours is taken in: %s", got)
		}
	}
}

func TestFindNothing(t *testing.T) {
	if _, err := newFinder(t.TempDir()+"/none", "46", "", 1).find(); err == nil || !strings.HasPrefix(err.Error(), "cannot list ") {
		t.Errorf("%v", err)
	}
}
