package slurmtest_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

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
	// What is refused is told in one line.
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
