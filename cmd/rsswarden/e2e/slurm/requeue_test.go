package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// requeueStand is a cluster with a trainer that needs 500 MB, in jobs that ask for
// 300.
type requeueStand struct {
	*slurmtest.Cluster
	rsswarden, train string
}

func newRequeueStand(t *testing.T, mode slurmtest.Mode, suite debian.Suite) requeueStand {
	t.Helper()
	c := slurmtest.Start(t, mode, slurmtest.Options{Nodes: 2, CPUs: 16, RealMemory: 45000, Suite: suite})
	return requeueStand{c, c.Install(t, binary), c.Install(t, "testdata/requeue/train.py")}
}

// script is such a job: front is what stands before rsswarden.
func (s requeueStand) script(front, options, then string) string {
	return fmt.Sprintf("%s %s run --events $PWD/events --record $PWD/record %s -- python3 %s $PWD/checkpoint %s", front, s.rsswarden, options, s.train, then)
}

func (s requeueStand) submit(t *testing.T, script string, args ...string) *slurmtest.JobRun {
	t.Helper()
	return s.Submit(t, script, append([]string{"--open-mode=append", "--mem=300"}, args...)...)
}

// whole submits a job and waits for its end, through all of its attempts.
func (s requeueStand) whole(t *testing.T, script string, args ...string) (*slurmtest.JobRun, slurmtest.Result, time.Duration) {
	t.Helper()
	run := s.submit(t, script, args...)
	began := time.Now()
	got := run.Wait(t)
	return run, got, time.Since(began)
}

const requeueOptions = "--at 95%:requeue=+100% --checkpoint-signal USR1 --checkpoint-file $PWD/checkpoint"

var checkpointLine = regexp.MustCompile(`(?m)^checkpoint at step (\d+)$`)

// carriedOn checks that a job was requeued once, went on from its checkpoint and
// ended well, and returns what was said of it.
func carriedOn(run *slurmtest.JobRun, got slurmtest.Result) (told string, err error) {
	m := checkpointLine.FindStringSubmatch(got.Stdout)
	switch {
	case got.State != "COMPLETED" || got.ExitCode != 0 || got.Restarts != 1:
		return "", fmt.Errorf("%s %d:%d after %d restarts, want COMPLETED 0:0 after 1", got.State, got.ExitCode, got.Signal, got.Restarts)
	case got.Fields["MinMemoryNode"] != "600M":
		return "", fmt.Errorf("it has %s in the end, want 600M", got.Fields["MinMemoryNode"])
	case m == nil:
		return "", fmt.Errorf("no checkpoint")
	case !strings.Contains(got.Stdout, "turn 1 from step "+m[1]+"\n") || !strings.Contains(got.Stdout, "done after step 95\n"):
		return "", fmt.Errorf("it did not go on from step %s", m[1])
	case strings.Contains(got.Stdout, "turn 2"):
		return "", fmt.Errorf("it was requeued twice")
	case !strings.Contains(got.Stderr, "second attempt of job "+run.ID+": the first was requeued at ") || !strings.Contains(got.Stderr, "it had 300 MiB and this one has 600\n"):
		return "", fmt.Errorf("the second attempt does not tell of the first")
	}
	for line := range strings.Lines(got.Stderr) {
		if strings.Contains(line, "↻ requeued with 600M") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil // under srun there may be no reader left for the last lines
}

// TestRequeue: a job that asked for too little gets more, and goes on from its
// checkpoint. Slurm lets a requeued job wait for half a minute: those of a cluster
// wait together.
func TestRequeue(t *testing.T) { requeueOn(t, "", slurmtest.Cgroup, slurmtest.Linux) }

func requeueOn(t *testing.T, suite debian.Suite, modes ...slurmtest.Mode) {
	t.Parallel()
	type job struct{ name, front, options, then string }
	jobs := map[slurmtest.Mode][]job{
		slurmtest.Cgroup: {
			{"the trainer goes on", "exec", requeueOptions, "go-on"},
			{"the trainer exits", "exec", requeueOptions, "exit"},
			{"srun", "srun", requeueOptions, "go-on"},
			{"once at most", "exec", strings.Replace(requeueOptions, "+100%", "320", 1) + " --max-requeues 1", "go-on"},
		},
		slurmtest.Linux: {
			{"the trainer goes on", "exec", requeueOptions, "go-on"},
		},
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := newRequeueStand(t, mode, suite)
			runs := make([]*slurmtest.JobRun, len(jobs[mode]))
			for i, j := range jobs[mode] {
				runs[i] = s.submit(t, s.script(j.front, j.options, j.then))
			}
			for i, j := range jobs[mode] {
				t.Run(j.name, func(t *testing.T) {
					run, got := runs[i], runs[i].Wait(t)
					t.Logf("%s %d:%d\n%s%s", got.State, got.ExitCode, got.Signal, got.Stdout, wardentest.Said(got.Stderr))
					if j.options != requeueOptions {
						s.requeuedOnceAtMost(t, run, &got)
						return
					}
					s.requeued(t, run, &got, j.front == "exec")
				})
			}
		})
	}
}

// requeued checks that a job was requeued, and that what we say tells of it.
func (s requeueStand) requeued(t *testing.T, run *slurmtest.JobRun, got *slurmtest.Result, exec bool) {
	t.Helper()
	told, err := carriedOn(run, *got)
	if err != nil {
		t.Fatal(err, "\n", got.Stderr)
	}
	if !exec {
		return
	}
	if told == "" {
		t.Error("stderr does not tell how it was requeued")
	}
	if outcome := wardentest.Events(t, filepath.Join(run.Dir, "events"))[event.NameExit][0]["outcome"]; outcome != string(event.RunRequeued) {
		t.Errorf("outcome %v", outcome)
	}
	report := s.Do(t, s.rsswarden, "report", filepath.Join(run.Dir, "record"))
	if report.Code != 0 || !strings.Contains(report.Stdout, "600") {
		t.Errorf("report: %d\n%s%s", report.Code, report.Stdout, report.Stderr)
	}
}

// requeuedOnceAtMost checks that --max-requeues 1 was kept to.
func (s requeueStand) requeuedOnceAtMost(t *testing.T, run *slurmtest.JobRun, got *slurmtest.Result) {
	t.Helper()
	if got.Restarts != 1 || !strings.Contains(got.Stderr, "the job was started again once, and --max-requeues is 1") {
		t.Errorf("%d restarts, said\n%s", got.Restarts, got.Stderr)
	}
	if b, err := os.ReadFile(filepath.Join(s.Dir(), ".rsswarden", "requeue-"+run.ID+".jsonl")); err != nil || strings.Count(string(b), `"step":"release"`) != 1 {
		t.Errorf("left behind %s, %v", b, err)
	}
}

// TestRequeueOfAPart: of an array one task is requeued, also the last, which has the number of
// the array; of a heterogeneous job, which is requeued whole, one part gets more memory.
func TestRequeueOfAPart(t *testing.T) {
	t.Parallel()
	s := newRequeueStand(t, slurmtest.Cgroup, "")
	shown := func(run *slurmtest.JobRun, part, is string) bool {
		for line := range strings.Lines(s.Do(t, "scontrol", "show", "job", "-o", run.ID).Stdout) {
			if strings.Contains(line, part) {
				return regexp.MustCompile(is).MatchString(line)
			}
		}
		return false
	}
	hogs := "exec " + s.rsswarden + " run --record none --at none --at 60%:requeue=+100% -- python3 -c 'import time; held = bytearray(220 << 20); time.sleep(600)'"
	array := s.submit(t, "[ $SLURM_ARRAY_TASK_ID = 1 ] || exec sleep 600\n"+hogs, "--array=0-1")
	mixed := s.submit(t, hogs, ":", "--mem=1000")
	wardentest.Until(t, "one task to be requeued", func() bool { return shown(array, "ArrayTaskId=1 ", "JobState=PENDING .*MinMemoryNode=600M") })
	if !shown(array, "ArrayTaskId=0 ", "JobState=RUNNING .*Restarts=0 .*MinMemoryNode=300M") {
		t.Error("the other task was requeued too")
	}
	wardentest.Until(t, "one part to have more memory", func() bool { return shown(mixed, "HetJobOffset=0 ", "MinMemoryNode=600M") })
	if !shown(mixed, "HetJobOffset=1 ", "MinMemoryNode=1000M") {
		t.Error("the other part has other memory too")
	}
}

// TestRequeueRefused: where the site or the user forbids it, or the process that
// would do it has no time, a line says why and no process is signalled; the job goes on
// as it is, which here is to its limit.
func TestRequeueRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, front string
		args        []string
		says        string
	}{
		{"--no-requeue", "exec", []string{"--no-requeue"}, "requeue skipped: it may not be requeued (--no-requeue, or JobRequeue=0 of this site)"},
		{"a script in between", "", nil, "requeue skipped: the batch script stands between Slurm and rsswarden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRequeueStand(t, slurmtest.Cgroup, "")
			run, got, _ := s.whole(t, s.script(c.front, requeueOptions, "go-on"), c.args...)
			t.Logf("%s %d:%d\n%s%s", got.State, got.ExitCode, got.Signal, got.Stdout, wardentest.Said(got.Stderr))
			if !strings.Contains(got.Stderr, c.says) || got.Restarts != 0 {
				t.Errorf("%d restarts, said\n%s", got.Restarts, got.Stderr)
			}
			if strings.Contains(got.Stdout, "checkpoint") || got.State != "OUT_OF_MEMORY" {
				t.Errorf("%s: %s", got.State, got.Stdout)
			}
			if left, _ := filepath.Glob(filepath.Join(s.Dir(), ".rsswarden", "requeue-"+run.ID+".jsonl")); len(left) > 0 {
				t.Errorf("left behind %q", left)
			}
		})
	}
}

// TestRequeueOutsideABatchJob: what salloc or srun alone has started cannot be
// started again.
func TestRequeueOutsideABatchJob(t *testing.T) {
	t.Parallel()
	s := newRequeueStand(t, slurmtest.Cgroup, "")
	out := s.Srun(t, "--mem=300", "bash", "-c", s.script("cd $(mktemp -d) && exec", requeueOptions, "go-on"))
	if !strings.Contains(out.Stderr, "it has no batch script that could be started again") || strings.Contains(out.Stdout, "checkpoint") {
		t.Errorf("%d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

// asked is the exit status by which examples/train says: I was asked to stop,
// the checkpoint is written, start me again.
const askedStatus = 99

// leaky is a job whose trainer itself leaks 4 MB a batch: no worker can give
// that back, and only a checkpoint saves what was learnt.
type leaky struct {
	stand
	mode slurmtest.Mode
}

func leakyStand(t *testing.T, mode slurmtest.Mode) leaky {
	t.Helper()
	wardentest.NeedTorch(t)
	c := slurmtest.Start(t, mode, slurmtest.Usual)
	s := leaky{stand{Cluster: c, rsswarden: c.Install(t, binary)}, mode}
	s.train = c.Install(t, "../../../../examples/train/train.py")
	c.Install(t, "../../../../examples/train/data.py")
	s.data = filepath.Join(c.Dir(), "small.lmdb")
	s.records = []string{"--data", s.data, "--records", "12000", "--record-bytes", "8000"}
	if got := c.Do(t, python, append([]string{s.train, "--epochs", "0", "--workers", "0"}, s.records...)...); got.Code != 0 {
		t.Fatalf("cannot make the data: %+v", got)
	}
	return s
}

func (s leaky) options(checkpoint string) []string {
	return append([]string{"--step-ms", "10", "--leak-trainer", "4000", "--checkpoint", checkpoint}, s.training()...)
}

// training is as long as two turns of the job: a cgroup counts once what
// trainer and workers share.
func (s leaky) training() []string {
	fraction := "0.7"
	if s.mode == slurmtest.Cgroup {
		fraction = "1"
	}
	return []string{"--workers", "2", "--persistent", "--epochs", "1", "--epoch-fraction", fraction}
}

// bare runs the job without rsswarden and wants it to die with nothing saved.
func (s leaky) bare(t *testing.T) {
	t.Helper()
	checkpoint := filepath.Join(s.Dir(), "bare")
	got := s.Submit(t, s.script("", s.options(checkpoint)...), "--mem=1200", "--no-requeue").Wait(t)
	want := got.State == "FAILED" && got.Signal == 9
	if s.mode == slurmtest.Cgroup {
		want = got.State == "OUT_OF_MEMORY"
	}
	if _, err := os.Stat(checkpoint); !want || err == nil {
		t.Errorf("bare: %s %d:%d, checkpoint %v: the test proves nothing", got.State, got.ExitCode, got.Signal, err)
	}
}

var turnLine = regexp.MustCompile(`(?m)^checkpoint at epoch \d+, batch (\d+): stopping$`)

// turn runs the job once. It returns whether the training is done, and its output.
func (s leaky) turn(t *testing.T, checkpoint string) (done bool, got slurmtest.Result, err error) {
	t.Helper()
	script := s.script(s.rsswarden+" run --at 93%:signal=USR2 --", s.options(checkpoint)...)
	got = s.Submit(t, script, "--mem=1200", "--no-requeue").Wait(t)
	_, saved := os.Stat(checkpoint)
	switch {
	case got.State == "COMPLETED":
		return true, got, nil
	case got.State != "FAILED" || got.ExitCode != askedStatus || got.Signal != 0:
		err = fmt.Errorf("%s %s %d:%d, want FAILED %d:0", got.State, got.Reason, got.ExitCode, got.Signal, askedStatus)
	case saved != nil || !turnLine.MatchString(got.Stdout):
		err = fmt.Errorf("no checkpoint: %v", saved)
	case strings.Count(got.Stderr, "USR2 sent to process ") != 1:
		err = fmt.Errorf("signalled %d times", strings.Count(got.Stderr, "USR2 sent to process "))
	case strings.Contains(got.Stderr, "OOM killer ended"):
		err = fmt.Errorf("an OOM kill")
	}
	return false, got, err
}

// TestCheckpoint: the trainer is asked in time, and what it saved carries the
// training on to the checksum of a run that nothing limits.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]slurmtest.Mode{"linux": slurmtest.Linux, "cgroup": slurmtest.Cgroup} {
		t.Run(name, func(t *testing.T) {
			if mode == slurmtest.Cgroup {
				wardentest.Long(t)
			}
			t.Parallel()
			s := leakyStand(t, mode)
			want := s.reference(t, s.training()...)
			s.bare(t)
			checkpoint := filepath.Join(s.Dir(), "checkpoint-"+name)
			for turn := 1; ; turn++ {
				done, got, err := s.turn(t, checkpoint)
				t.Logf("turn %d: %s %d:%d\n%s%s", turn, got.State, got.ExitCode, got.Signal, got.Stdout, wardentest.Said(got.Stderr))
				if err != nil {
					t.Fatal(err, "\n", got.Stderr)
				}
				if done {
					if sum := wardentest.Checksum(got.Stdout); sum != want || turn == 1 {
						t.Errorf("checksum %s after %d turns, want %s after several", sum, turn, want)
					}
					return
				}
				if turn == 5 {
					t.Fatal("no end after 5 turns")
				}
			}
		})
	}
}
