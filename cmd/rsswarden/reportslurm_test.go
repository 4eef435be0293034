package main_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
)

// TestReportWithoutRecord: of a job that left nothing Slurm's word is told.
func TestReportWithoutRecord(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
	warden := c.Install(t, binary)
	job := c.Submit(t, "exit 3")
	job.Wait(t)
	out := c.Do(t, warden, "report", job.ID)
	want := "; scontrol show job says that the job is FAILED, exit code 3:0"
	if out.Code != 2 || !strings.Contains(out.Stderr, want) || !strings.Contains(out.Stderr, "hint: ") {
		t.Errorf("status %d, %q, want %q", out.Code, out.Stderr, want)
	}
}

// TestReportOfArrayTask: a task of an array is found by the name it has for its
// user, which is not the number that it runs under.
func TestReportOfArrayTask(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
	warden := c.Install(t, binary)
	job := c.Submit(t, "exec "+warden+" run --limit 1G --record "+c.Dir()+"/array -- sh -c 'exit $SLURM_ARRAY_TASK_ID'", "--array=4-5")
	for _, task := range []string{"4", "5"} {
		name := job.ID + "_" + task
		job.Until(t, time.Minute, func(slurmtest.Result) bool {
			out := c.Do(t, "scontrol", "show", "job", name, "-o")
			return strings.Contains(out.Stdout, "ExitCode="+task+":0") && strings.Contains(out.Stdout, "JobState=FAILED")
		})
		cmd := c.Command(t.Context(), warden, "report", name)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(verdict(string(out)), "exit status "+task) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
