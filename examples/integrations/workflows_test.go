package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var given = regexp.MustCompile(`mem_mb=(\d+)`)

// TestSnakemake runs Snakemake itself: a rule that is ended at its limit is tried again
// with what rsswarden advised.
func TestSnakemake(t *testing.T) {
	t.Parallel()
	wardentest.NeedPython(t)
	modules, err := exec.Command("../../.ci/snakemake").Output()
	if err != nil {
		t.Skipf("no Snakemake: %v", err)
	}
	p := newPlace(t, "snakemake/Snakefile", "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=", "XDG_CACHE_HOME="+p.file("cache"))
	const main = `import sys; sys.path.insert(0, sys.argv.pop(1)); from snakemake import main; main()`
	r := p.start(python, "-S", "-c", main, strings.TrimSpace(string(modules)), "--cores", "1", "--scheduler", "greedy")
	status, log := r.ends(), r.stderr.String()
	t.Logf("%s", log)
	if b, err := os.ReadFile(p.file("model-1")); status != 0 || string(b) != "model of 1\n" {
		t.Errorf("status %d, model %q, %v", status, b, err)
	}
	if n := strings.Count(log, "Trying to restart job"); n != 1 {
		t.Errorf("%d restarts", n)
	}
	tries := given.FindAllStringSubmatch(log, -1)
	advised := regexp.MustCompile(`(?s)stopped by rule .*next --limit (\d+)M`).FindStringSubmatch(log)
	if len(tries) != 2 || advised == nil || tries[0][1] != "300" || tries[1][1] != advised[1] {
		t.Errorf("it was given %v, advised was %v", tries, advised)
	}
}

// TestNextflow types the script of the process as Nextflow would, which itself is not to
// be had here: at the limit its status is the one that errorStrategy retries at, and
// with twice the memory it is 0.
func TestNextflow(t *testing.T) {
	t.Parallel()
	text := wardentest.ReadFile(t, "nextflow/train.nf")
	_, script, _ := strings.Cut(string(text), `"""`)
	script, _, _ = strings.Cut(script, `"""`)
	retried := regexp.MustCompile(`task\.exitStatus == (\d+) \?`).FindStringSubmatch(string(text))
	if script == "" || retried == nil {
		t.Fatalf("script %q, retried at %v", script, retried)
	}
	p := newPlace(t, "testdata/train.py")
	p.env = append(p.env, "RSSWARDEN_LIMIT=")
	for attempt, want := range []string{retried[1], "0"} {
		mega := fmt.Sprint(300 << attempt)
		typed := strings.NewReplacer("${task.memory.toMega()}", mega, "${seed}", "1").Replace(script)
		r := p.start("/bin/bash", "-ue", "-c", typed)
		if status := r.ends(); fmt.Sprint(status) != want {
			t.Errorf("with %s MB: status %d, want %s\n%s", mega, status, want, &r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "model")); err != nil {
		t.Error(err)
	}
}

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
