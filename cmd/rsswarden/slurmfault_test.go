package main_test

import (
	"cmp"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// submit runs a job of Slurm under the ailment and returns how it ended. Now and
// then slurmd loses a slurmstepd that it has just started, and slurmctld begins
// the job anew: nothing is learnt of us from that, so it is tried once more.
func (a ailment) submit(t *testing.T, c *slurmtest.Cluster, warden, job string, args ...string) slurmtest.Result {
	t.Helper()
	got, run := a.try(t, c, warden, job, args...)
	if got.Restarts > 0 {
		t.Logf("Slurm lost the job's slurmstepd:\n%s", run.Log())
		c.Cancel(t, run.ID)
		got, _ = a.try(t, c, warden, job, args...)
	}
	return got
}

func (a ailment) try(t *testing.T, c *slurmtest.Cluster, warden, job string, args ...string) (slurmtest.Result, *slurmtest.JobRun) {
	t.Helper()
	run := c.Submit(t, fmt.Sprintf("export %s\nexec %s run --interval 20ms -- %s", cmp.Or(a.env, "A=B"), warden, job), args...)
	struck := map[int]bool{}
	got := run.Until(t, 3*time.Minute, func(r slurmtest.Result) bool {
		for _, pid := range run.Processes("batch") {
			if a.sig != 0 && isWatcher(pid) && !struck[pid] {
				struck[pid] = syscall.Kill(pid, a.sig) == nil
			}
		}
		return r.Over() || r.Restarts > 0
	})
	if a.sig != 0 && len(struck) == 0 && got.Restarts == 0 {
		t.Error("no watcher was struck: the test proves nothing")
	}
	return got, run
}

// TestSlurmJobSurvivesItsWatcher runs the jobs of the other tests with a
// watcher that fails: they end as they do bare. Where bare ends by the limit,
// the limit is left out: nobody is left to keep the job inside it.
func TestSlurmJobSurvivesItsWatcher(t *testing.T) {
	t.Run("linux", func(t *testing.T) {
		s := trainStand(t, slurmtest.Linux)
		warden := s.Install(t, faulty)
		orphan := python + " " + pythonJob(t, s.Cluster, "orphan.py", orphanJob)
		options := []string{"--persistent", "--workers", "2", "--epochs", "1"}
		want := s.reference(t, options...)
		for _, a := range ailments {
			t.Run(a.name, func(t *testing.T) {
				got := a.submit(t, s.Cluster, warden, "sh -c 'echo begun; sleep 2; echo done; exit 41'", "--mem=400")
				if got.State != "FAILED" || got.ExitCode != 41 || got.Stdout != "begun\ndone\n" {
					t.Errorf("status: %s %d:%d, stdout %q, want FAILED 41:0\n%s", got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
				}
				got = a.submit(t, s.Cluster, warden, orphan, "--mem=400")
				if got.State != "COMPLETED" || got.ExitCode != 0 || got.Stdout != "parent ends\n" {
					t.Errorf("orphan: %s %d:%d, stdout %q, want COMPLETED 0:0\n%s", got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
				}
				s.completed(t, want, a.submit(t, s.Cluster, warden, s.training(options...), "--mem=15000"))
			})
		}
	})
	t.Run("cgroup", func(t *testing.T) {
		s := trainStand(t, slurmtest.Cgroup)
		warden := s.Install(t, faulty)
		options := []string{"--persistent", "--workers", "2", "--epochs", "1", "--leak-worker", "60"}
		want := s.reference(t, options...)
		for _, a := range ailments[:few(len(ailments), 2)] {
			t.Run(a.name, func(t *testing.T) {
				s.completed(t, want, a.submit(t, s.Cluster, warden, s.training(options...), "--mem=15000"))
			})
		}
	})
}
