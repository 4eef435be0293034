package slurmtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
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

// TestOverlapReachesEveryNode: a step beside a job that has given all of its CPUs and
// memory to a step of its own runs once a node, from where the job was submitted and
// from its own script, and ends nothing.
func TestOverlapReachesEveryNode(t *testing.T) { eachSlurm(t, overlapReaches) }

func overlapReaches(t *testing.T, o slurmtest.Options) {
	o.Nodes, o.CPUs = 2, 4
	c := slurmtest.Start(t, slurmtest.Cgroup, o)
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		cmd := c.Command(ctx, "scontrol", args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return out, err
	}
	if _, err := slurm.FindRunning(t.Context(), scontrol, "4000000"); !errors.Is(err, slurm.ErrNoJob) {
		t.Errorf("of no job: %v", err)
	}
	run := c.Submit(t, `srun --mem=300 -n8 --ntasks-per-node=4 sleep 300 &
until [ -e end ]; do sleep 0.05; done
scancel $SLURM_JOB_ID.0; wait; true`, "-N2", "--ntasks-per-node=4", "--mem=300")
	run.Running(t)
	var r slurm.Running
	run.Until(t, 20*time.Second, func(slurmtest.Result) bool {
		var err error
		r, err = slurm.FindRunning(t.Context(), scontrol, run.ID)
		return err == nil && len(run.Processes("0")) >= 8
	})
	if r.ID != run.ID || r.State != "RUNNING" || !slices.Equal(r.Nodes, c.Nodes()) {
		t.Errorf("%+v", r)
	}
	say := func(env []string, node string) (string, string, error) {
		cmd := c.Command(t.Context(), "srun", slurm.OverlapArgs(r, node, "/bin/sh", "-c", "echo $SLURMD_NODENAME $SLURM_JOB_ID $MARK $(pwd)")...)
		cmd.Env = slurm.OverlapEnv(append(env, "MARK=kept"))
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		begun := time.Now()
		err := cmd.Run()
		t.Logf("%v: %q %q %v", time.Since(begun), out.String(), errs.String(), err)
		lines := strings.Fields(strings.ReplaceAll(strings.TrimSpace(out.String()), " ", "_"))
		slices.Sort(lines)
		return strings.Join(lines, " "), errs.String(), err
	}
	var all []string
	for _, n := range c.Nodes() {
		all = append(all, n+"_"+run.ID+"_kept_/")
	}
	// A job's environment is full of what srun takes for options.
	jobEnv := append(c.Env(), "SLURM_JOB_ID=99", "SLURM_NTASKS=8", "SLURM_NNODES=2", "SLURM_MEM_PER_NODE=300", "SLURM_CPUS_PER_TASK=2",
		"SLURM_EXPORT_ENV=NONE", "SLURM_NTASKS_PER_NODE=4", "SLURM_STEP_ID=0", "SRUN_CPUS_PER_TASK=4", "SLURM_DISTRIBUTION=cyclic")
	for name, env := range map[string][]string{"from outside": c.Env(), "with a job's environment": jobEnv} {
		if said, errs, err := say(env, ""); said != strings.Join(all, " ") || errs != "" || err != nil {
			t.Errorf("%s: %q, %q, %v", name, said, errs, err)
		}
	}
	if said, _, err := say(c.Env(), c.Nodes()[1]); said != all[1] || err != nil {
		t.Errorf("one node: %q, %v", said, err)
	}
	// A node that fails ends none, and says its status.
	cmd := c.Command(t.Context(), "srun", slurm.OverlapArgs(r, "", "/bin/sh", "-c", `[ $SLURM_NODEID = 0 ] && exit 3; sleep 0.5; echo alive`)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "alive\n" {
		t.Errorf("%q, %v", out, err)
	}
	// A refusal is one line.
	gone := r
	gone.ID = "4000000"
	cmd = c.Command(t.Context(), "srun", slurm.OverlapArgs(gone, "", "true")...)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Run(); err == nil {
		t.Error("a job that is not there was reached")
	}
	if why := slurm.OverlapRefused([]byte(errs.String())); !strings.Contains(why, "nvalid job id") || strings.Contains(why, "srun:") {
		t.Errorf("%q of %q", why, errs.String())
	}
	if out := c.Do(t, "touch", run.Dir+"/end"); out.Code != 0 {
		t.Fatal(out)
	}
	if done := run.Wait(t); done.State != "COMPLETED" {
		t.Errorf("%+v", done)
	}
	if _, err := slurm.FindRunning(t.Context(), scontrol, run.ID); !errors.Is(err, slurm.ErrNotRunning) {
		t.Errorf("of a job that has ended: %v", err)
	}
}
