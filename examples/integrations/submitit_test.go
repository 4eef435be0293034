package integrations_test

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// says waits until the command has printed so.
func (r *running) says(want string) {
	r.place.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(r.out(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.place.t.Fatalf("%q was not printed\n%s", want, r.out())
		}
	}
}

// out is what it has printed so far.
func (r *running) out() string {
	b, _ := os.ReadFile(r.place.file("out"))
	return string(b)
}

// TestSubmitit has a training put back into the queue twice as submitit does it: at the
// USR2 that Slurm sends to the task, which is rsswarden, and at the one that rsswarden
// sends at 93 %. Each reaches the training once and no other process, and TERM, which Slurm sends
// then, does not keep it from ending as it wants to.
func TestSubmitit(t *testing.T) {
	t.Parallel()
	need(t, []string{"ps"})
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
	script, err := os.ReadFile(p.file("log/submission.sh"))
	if err != nil || !strings.Contains(string(script), "srun --unbuffered rsswarden run --at 93%:signal=USR2 -- "+python+" -u -m submitit") {
		t.Fatalf("%v\n%s", err, script)
	}
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
	if err := syscall.Kill(task, syscall.SIGUSR2); err != nil { // as slurmstepd, to the task alone
		t.Fatal(err)
	}
	at := requeued(first)

	second := life("1", "100G")
	second.says("from step " + at + "\n")
	if status := second.ends(); status != 0 || !strings.Contains(second.out(), "result 40\n") {
		t.Errorf("status %d\n%s", status, second.out())
	}

	launch("10") // leaks 10 MB a step
	third := life("0", "200M")
	requeued(third)
	if !strings.Contains(third.out(), ": USR2 sent to process ") {
		t.Errorf("no rule sent it:\n%s", third.out())
	}

	asked, _ := os.ReadFile(p.file("scontrol.log"))
	if n := strings.Count(string(asked), "requeue 4711\n"); n != 2 || strings.Contains(string(asked), "requeuehold") {
		t.Errorf("scontrol was asked\n%s", asked)
	}
}
