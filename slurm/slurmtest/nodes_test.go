package slurmtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// eachTwoNodes runs a test on two nodes with this machine's Slurm and with
// newer ones.
func eachTwoNodes(t *testing.T, mode slurmtest.Mode, test func(t *testing.T, c *slurmtest.Cluster)) {
	eachSlurm(t, func(t *testing.T, o slurmtest.Options) {
		o.Nodes = 2
		test(t, slurmtest.Start(t, mode, o))
	})
}

// tasks are the lines that four tasks on two nodes print of themselves.
func tasks(c *slurmtest.Cluster) string {
	n := c.Nodes()
	return fmt.Sprintf("%s 0 0 0\n%[1]s 0 1 1\n%s 1 2 0\n%[2]s 1 3 1\n", n[0], n[1])
}

const sayTask = `bash -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_PROCID $SLURM_LOCALID'`

// sorted are the lines of a text in order: tasks print in any.
func sorted(text string) string {
	lines := slices.Sorted(strings.Lines(text))
	return strings.Join(lines, "")
}

// TestTwoNodes: a job of four tasks has two on each node, and what runs on a
// node is seen there.
func TestTwoNodes(t *testing.T) {
	eachTwoNodes(t, slurmtest.Cgroup, func(t *testing.T, c *slurmtest.Cluster) {
		nodes := c.Nodes()
		run := c.Submit(t, fmt.Sprintf(`echo $SLURM_JOB_NODELIST
srun %s
srun bash -c '%s hold task$SLURM_PROCID anon=5'`, sayTask, c.InstallSelf(t)), "-N2", "-n4", "--ntasks-per-node=2", "--mem=200")
		pids := held(t, run, "task0", "task1", "task2", "task3")
		r, err := run.Now(t.Context())
		wardentest.NoError(t, err)
		list, lines, _ := strings.Cut(r.Stdout, "\n")
		if want := strings.TrimSuffix(nodes[0], "1") + "[1-2]"; list != want || r.Node != nodes[0] {
			t.Errorf("nodes %s, the script on %s; want %s, on %s", list, r.Node, want, nodes[0])
		}
		if got := sorted(lines); got != tasks(c) {
			t.Errorf("tasks print\n%swant\n%s", got, tasks(c))
		}
		for i, node := range nodes {
			there := run.On(node)
			got := there.Processes("1")
			for task := range 4 {
				name := fmt.Sprintf("task%d", task)
				if slices.Contains(got, pids[name]) != (task/2 == i) {
					t.Errorf("%s, PID %d, and %s has %v", name, pids[name], node, got)
				}
			}
			if !slices.Contains(run.Processes(""), got[0]) {
				t.Errorf("the job's processes lack %d of %s", got[0], node)
			}
			if batch := there.Processes("batch"); (len(batch) > 0) != (i == 0) {
				t.Errorf("%s has %v of the batch step", node, batch)
			}
			limit := strings.TrimSpace(read(t, there.MemoryCgroup("1")+"/memory.limit_in_bytes", true))
			if limit != fmt.Sprint(200*mib) {
				t.Errorf("limit on %s is %s", node, limit)
			}
			if !strings.Contains(there.Log(), run.ID) || !strings.Contains(run.Log(), there.Log()) {
				t.Errorf("log of %s: %q", node, there.Log())
			}
		}
		if run.MemoryCgroup("") != run.On(nodes[0]).MemoryCgroup("") || run.MemoryCgroup("") == run.On(nodes[1]).MemoryCgroup("") {
			t.Errorf("cgroup of the job %s", run.MemoryCgroup(""))
		}
	})
}

// TestLimitOfEachNode: a process over the limit of one node dies, and the job
// runs on at the other.
func TestLimitOfEachNode(t *testing.T) {
	eachTwoNodes(t, slurmtest.Cgroup, func(t *testing.T, c *slurmtest.Cluster) {
		script := `srun bash -c '%[1]s hold task$SLURM_PROCID anon=$((20 + 180 * SLURM_NODEID)); echo $SLURMD_NODENAME $?; until [ -e go ]; do sleep 0.05; done' &
until [ -e go ]; do sleep 0.05; done
echo still here
kill $(cat task0)
wait`
		run := c.Submit(t, fmt.Sprintf(script, c.InstallSelf(t)), "-N2", "-n2", "--ntasks-per-node=1", "--mem=100", "--no-requeue")
		nodes := c.Nodes()
		run.Until(t, time.Minute, func(r slurmtest.Result) bool {
			return r.Over() || strings.Contains(r.Stdout, nodes[1]+" 137\n")
		})
		pids := held(t, run, "task0")
		if got := run.On(nodes[0]).Processes("0"); !slices.Contains(got, pids["task0"]) {
			t.Errorf("%s has %v, not the task %d", nodes[0], got, pids["task0"])
		}
		for i, node := range nodes {
			// Counted in the cgroup of the victim's task, not in those above.
			controls, _ := filepath.Glob(run.On(node).MemoryCgroup("0") + "/task_*/memory.oom_control")
			kills := 0
			for _, control := range controls {
				kills += strings.Count(read(t, control, true), "oom_kill 1\n")
			}
			if len(controls) == 0 || kills != i {
				t.Errorf("%s: %d kills in %v, want %d", node, kills, controls, i)
			}
		}
		wardentest.NoError(t, os.WriteFile(filepath.Join(run.Dir, "go"), nil, 0o644))
		r := run.Wait(t)
		if want := fmt.Sprintf("%s 137\nstill here\n%s 143\n", nodes[1], nodes[0]); r.Stdout != want {
			t.Errorf("stdout %q, want %q", r.Stdout, want)
		}
		if !strings.Contains(r.Stderr, nodes[1]+": task 1: Out Of Memory") {
			t.Errorf("stderr %q", r.Stderr)
		}
	})
}

// TestStepBesideSteps: one process on each node of a job whose steps have all
// its CPUs and memory, from its script and from outside.
func TestStepBesideSteps(t *testing.T) {
	beside := []string{"--overlap", "-N2", "-n2", "--ntasks-per-node=1", "--mem=0", "--input=none"}
	eachTwoNodes(t, slurmtest.Cgroup, func(t *testing.T, c *slurmtest.Cluster) {
		script := fmt.Sprintf(`srun bash -c '%s hold task$SLURM_PROCID' &
until [ -e task0 ] && [ -e task1 ] && [ -e task2 ] && [ -e task3 ]; do sleep 0.05; done
srun --jobid=$SLURM_JOB_ID %s %s
touch inside
wait`, c.InstallSelf(t), strings.Join(beside, " "), sayTask)
		run := c.Submit(t, script, "-N2", "-n4", "--ntasks-per-node=2", "--mem-per-cpu=100")
		run.Until(t, time.Minute, func(r slurmtest.Result) bool {
			_, err := os.Stat(filepath.Join(run.Dir, "inside"))
			return err == nil || r.Over()
		})
		nodes := c.Nodes()
		want := fmt.Sprintf("%s 0 0 0\n%s 1 1 0\n", nodes[0], nodes[1])
		r, err := run.Now(t.Context())
		wardentest.NoError(t, err)
		if got := sorted(r.Stdout); got != want || r.Stderr != "" {
			t.Errorf("from the script: %q, stderr %q, want %q", got, r.Stderr, want)
		}
		outside := append([]string{"--jobid=" + run.ID}, beside...)
		begun := time.Now()
		out := c.Srun(t, append(outside, "bash", "-c", "echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_PROCID $SLURM_LOCALID; ulimit -m")...)
		t.Logf("took %v", time.Since(begun))
		limit := fmt.Sprintln(200 << 10) // the job's on a node
		if got := sorted(out.Stdout); out.Code != 0 || out.Stderr != "" || got != limit+limit+want {
			t.Errorf("from outside: status %d, %q, stderr %q, want %q", out.Code, got, out.Stderr, limit+limit+want)
		}
		busy := append([]string{"--jobid=" + run.ID, "--immediate=1"}, beside[1:]...)
		if out := c.Srun(t, append(busy, "true")...); out.Code == 0 {
			t.Error("a step without --overlap found room: the others do not have all")
		}
	})
}
