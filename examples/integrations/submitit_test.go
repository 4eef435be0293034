package integrations_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// says waits until the command has printed so.
func (r *running) says(want string) {
	r.place.t.Helper()
	wardentest.Until(r.place.t, "printed: "+want, func() bool { return strings.Contains(r.out(), want) })
}

// out is what it has printed so far.
func (r *running) out() string { return wardentest.Read(r.place.file("out")) }

// task waits for the rsswarden that srun started below the command, and returns its PID.
func (r *running) task() (pid int) {
	r.place.t.Helper()
	wardentest.Until(r.place.t, "a rsswarden below the command", func() bool {
		below := wardentest.Descendants(r.Process.Pid)
		i := slices.IndexFunc(below, func(pid int) bool { return wardentest.Read(fmt.Sprintf("/proc/%d/comm", pid)) == "rsswarden\n" })
		if i >= 0 {
			pid = below[i]
		}
		return i >= 0
	})
	return pid
}

// TestSubmitit has a training put back into the queue twice as submitit does it: at the
// USR2 that Slurm sends to the task, which is rsswarden, and at the one that rsswarden
// sends at 93 %. Each reaches the training once and no other process, and TERM, which Slurm sends
// then, does not keep it from ending as it wants to.
func TestSubmitit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "submitit/launch.py", "submitit/learner.py", "testdata/srun", "testdata/scontrol")
	module, err := os.Getwd()
	wardentest.NoError(t, err)
	p.env = append(p.env, "PYTHONPATH="+module+"/testdata/submitit:"+p.dir)
	launch := func(args ...string) {
		t.Helper()
		if r := p.start(append([]string{python, "launch.py"}, args...)...); r.ends() != 0 {
			t.Fatalf("%s", &r.stderr)
		}
	}
	launch()
	wardentest.Says(t, wardentest.Read(p.file("log/submission.sh")), "srun --unbuffered rsswarden run --at 93%:signal=USR2 -- "+python+" -u -m submitit")
	base := append(p.env, "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_CONF=/nowhere")
	life := func(restart, limit string) *running {
		t.Helper()
		p.env = append(base, "SLURM_RESTART_COUNT="+restart, "RSSWARDEN_LIMIT="+limit, "RSSWARDEN_EVENTS=")
		return p.start("/bin/sh", "-c", "exec bash log/submission.sh >out 2>&1")
	}
	requeued := func(r *running) (step string) {
		t.Helper()
		status := r.ends()
		m := regexp.MustCompile(`(?s)step (\d+)\n(?:rsswarden: [^\n]*\n)*got SIGUSR2\n.*bypassed SIGTERM\n`).FindStringSubmatch(r.out())
		if status != 255 || m == nil || strings.Count(r.out(), "got SIGUSR2") != 1 {
			t.Fatalf("status %d\n%s", status, r.out())
		}
		return m[1]
	}

	first := life("0", "100G")
	first.says("step 3\n")
	task := first.task()
	wardentest.NoError(t, syscall.Kill(task, syscall.SIGUSR2)) // as slurmstepd, to the task alone
	at := requeued(first)

	second := life("1", "100G")
	second.says("from step " + at + "\n")
	if status := second.ends(); status != 0 || !strings.Contains(second.out(), "result 40\n") {
		t.Errorf("status %d\n%s", status, second.out())
	}

	launch("10") // leaks 10 MB a step
	third := life("0", "200M")
	requeued(third)
	wardentest.Says(t, third.out(), ": USR2 sent to process ")

	asked := wardentest.Read(p.file("scontrol.log"))
	if n := strings.Count(asked, "requeue 4711\n"); n != 2 || strings.Contains(asked, "requeuehold") {
		t.Errorf("scontrol was asked\n%s", asked)
	}
}
