// Package examples_test submits the sbatch scripts to a real Slurm, with little
// data, as a plain user would.
package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const python = "/usr/bin/python3"

func TestScriptsParse(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	scripts, err := filepath.Glob("sbatch/*.sbatch")
	if err != nil || len(scripts) != 5 {
		t.Fatalf("%d scripts, want 5 (%v)", len(scripts), err)
	}
	for _, script := range append(scripts, "demo/demo.sh") {
		if out, err := exec.Command(bash, "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}

// stand is a cluster with rsswarden and the trainer where jobs find them.
type stand struct {
	*slurmtest.Cluster
	bin, data string
}

const records, bytesEach = "600", "16384"

var options = "--records " + records + " --record-bytes " + bytesEach + " --batch 16 --epochs 3 --workers 2 --persistent"

func newStand(t *testing.T) stand {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import torch, lmdb, numpy").CombinedOutput(); err != nil {
		t.Skipf("%s lacks torch, lmdb or numpy: %s", python, bytes.TrimSpace(out))
	}
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
	s := stand{Cluster: c, bin: filepath.Dir(c.Install(t, wardentest.Program(t, wardentest.Rsswarden))), data: filepath.Join(c.Dir(), "example.lmdb")}
	c.Install(t, "train/data.py")
	c.Install(t, "train/train.py")
	if _, err := os.Stat(s.data); err != nil {
		out, err := exec.Command(python, "-B", "train/data.py", s.data, "--records", records, "--record-bytes", bytesEach).CombinedOutput()
		if err != nil {
			t.Fatalf("data.py: %v\n%s", err, out)
		}
	}
	return s
}

// submit submits one of the scripts; more goes to the trainer, args to sbatch.
func (s stand) submit(t *testing.T, script, more string, args ...string) *slurmtest.JobRun {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("sbatch", script))
	wardentest.NoError(t, err)
	export := "--export=ALL,PATH=" + s.bin + ":/usr/bin:/bin,PYTHON=" + python +
		",TRAIN=" + s.bin + "/train.py,DATA=" + s.data + ",OPTIONS=" + options + more
	return s.Submit(t, string(text), append([]string{export}, args...)...)
}

// bare is the checksum of the same training without Slurm and rsswarden.
func (s stand) bare(t *testing.T, more ...string) string {
	t.Helper()
	args := append([]string{"-B", "-W", "ignore", "train/train.py", "--data", s.data}, strings.Fields(options)...)
	out, err := exec.Command(python, append(args, more...)...).Output()
	wardentest.NoError(t, err)
	return checksum(t, string(out))
}

func checksum(t *testing.T, out string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^checksum ([0-9a-f]{32})$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no checksum in:\n%s", out)
	}
	return m[1]
}

func TestExecAndSrun(t *testing.T) {
	s := newStand(t)
	want := s.bare(t)
	for _, script := range []string{"exec.sbatch", "srun.sbatch"} {
		got := s.submit(t, script, " --step-ms 60").Wait(t) // what is over in 2 s, and well, has no line
		if got.State != "COMPLETED" || got.ExitCode != 0 {
			t.Errorf("%s: %s, exit status %d\n%s%s", script, got.State, got.ExitCode, got.Stdout, got.Stderr)
			continue
		}
		if sum := checksum(t, got.Stdout); sum != want {
			t.Errorf("%s: checksum %s, bare %s", script, sum, want)
		}
		if !strings.Contains(got.Stderr, "rsswarden: ") {
			t.Errorf("%s: no word of rsswarden on stderr:\n%s", script, got.Stderr)
		}
	}
}

func TestArray(t *testing.T) {
	s := newStand(t)
	run := s.submit(t, "array.sbatch", "", "--array=0-1", "-o", "out-%a", "-e", "err-%a")
	for task, name := range []string{"out-0", "out-1"} {
		want := s.bare(t, "--seed", fmt.Sprint(task))
		var out []byte
		run.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
			out, _ = os.ReadFile(filepath.Join(run.Dir, name))
			return bytes.Contains(out, []byte("\nchecksum "))
		})
		if got := checksum(t, string(out)); got != want {
			t.Errorf("task %d: checksum %s, bare %s", task, got, want)
		}
	}
}

// requeued runs the checkpoint script until the job has been put back into the
// queue. It sends the signal at once; Slurm would send it before the time limit.
func (s stand) requeued(t *testing.T) *slurmtest.JobRun {
	t.Helper()
	run := s.submit(t, "checkpoint-requeue.sbatch", " --step-ms 40")
	putBack(t, s.Cluster, run, "\nepoch 0:")
	return run
}

// putBack sends a job the USR2 that Slurm would send before its time is up, once it has
// printed so, and waits until it is back in the queue.
func putBack(t *testing.T, c *slurmtest.Cluster, run *slurmtest.JobRun, printed string) {
	t.Helper()
	until := func(instead string, done func(r slurmtest.Result) bool) {
		run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
			if r.Over() {
				t.Fatalf("%s %s\n%s%s", r.State, instead, r.Stdout, r.Stderr)
			}
			return done(r)
		})
	}
	until("too early", func(r slurmtest.Result) bool { return strings.Contains(r.Stdout, printed) })
	c.Cancel(t, "-s", "USR2", run.ID)
	until("instead of requeued", func(r slurmtest.Result) bool { return r.Restarts == 1 && r.State == "PENDING" })
}

// TestCheckpointRequeue does not wait for the second turn: a requeued job may
// not start before the credential of its first turn has expired, two minutes.
func TestCheckpointRequeue(t *testing.T) {
	s := newStand(t)
	want := s.bare(t)
	run := s.requeued(t)
	if got := s.bare(t, "--checkpoint", filepath.Join(run.Dir, "checkpoint-"+run.ID)); got != want {
		t.Errorf("checksum %s when resumed from the job's checkpoint, in one run %s", got, want)
	}
}

// TestRequeueWithMore: a training whose trainer keeps 8 MB a batch comes to its
// limit, and is started again with more until it has come to its end.
func TestRequeueWithMore(t *testing.T) {
	s := newStand(t)
	want := s.bare(t)
	got := s.submit(t, "requeue.sbatch", " --step-ms 20 --leak-trainer 8000", "--mem=1200").Wait(t)
	t.Logf("%s with %s after %d restarts\n%s%s", got.State, got.Fields["MinMemoryNode"], got.Restarts, got.Stdout, got.Stderr)
	if got.State != "COMPLETED" || got.ExitCode != 0 || got.Restarts < 1 || got.Fields["MinMemoryNode"] == "1200M" {
		t.Errorf("%s %d:%d with %s after %d restarts", got.State, got.ExitCode, got.Signal, got.Fields["MinMemoryNode"], got.Restarts)
	}
	if sum := checksum(t, got.Stdout); sum != want {
		t.Errorf("checksum %s, in one run %s", sum, want)
	}
	if !strings.Contains(got.Stderr, "requeued with 1500 MiB (was 1200)") || !strings.Contains(got.Stderr, "second attempt of job ") {
		t.Error("stderr does not tell of it")
	}
}

// TestSubmititOnSlurm has a real srun start the task of integrations/submitit and Slurm
// send it the USR2 that it would send before the time is up: the training is pickled, and
// the job is back in the queue. As [TestCheckpointRequeue] it does not wait for the second
// turn.
func TestSubmititOnSlurm(t *testing.T) {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{})
	bin := filepath.Dir(c.Install(t, wardentest.Program(t, wardentest.Rsswarden)))
	dir := filepath.Join(c.Dir(), "submitit")
	wardentest.NoError(t, os.RemoveAll(dir))
	for _, from := range []string{"integrations/submitit", "integrations/testdata/submitit"} {
		wardentest.NoError(t, os.CopyFS(filepath.Join(dir, filepath.Base(filepath.Dir(from))), os.DirFS(from)))
	}
	modules := "PYTHONPATH=" + dir + "/integrations:" + dir + "/testdata"
	launch := exec.Command(python, "integrations/launch.py")
	launch.Dir, launch.Env = dir, append(os.Environ(), modules, "PYTHONDONTWRITEBYTECODE=1")
	if out, err := launch.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := os.ReadFile(dir + "/log/submission.sh")
	for _, name := range []string{"log", "log/submitted.pkl"} { // the job's user writes it again
		if err == nil {
			err = os.Chown(filepath.Join(dir, name), c.UID(), -1)
		}
	}
	wardentest.NoError(t, err)
	run := c.Submit(t, string(script), "--export=ALL,PATH="+bin+":/usr/bin:/bin,"+modules, "--mem=500")
	putBack(t, c, run, "step 3\n")
	const read = `import pickle, sys; print(pickle.load(open(sys.argv[1], "rb")).function.step >= 3)`
	ask := exec.Command(python, "-c", read, dir+"/log/submitted.pkl")
	ask.Env = launch.Env
	if out, err := ask.CombinedOutput(); err != nil || string(out) != "True\n" {
		t.Errorf("what was pickled: %s, %v", out, err)
	}
}
