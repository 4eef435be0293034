package slurmtest

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// JobRun is a batch job that was submitted.
type JobRun struct {
	ID  string
	Dir string // its working folder, writable by the job

	c      *Cluster
	mode   Mode
	folder string // of its output files
	node   string // what to look at, all nodes where empty
}

// Result is the state of a job, as scontrol show job prints it.
type Result struct {
	State  string // JobState: "COMPLETED", "FAILED", "OUT_OF_MEMORY", …
	Reason string // "None", "JobLaunchFailure", "OutOfMemory", …
	// ExitCode and Signal are the two halves of ExitCode=.
	ExitCode, Signal int
	Node             string // of the batch script
	Restarts         int
	Stdout, Stderr   string // what the job has written
	// Fields holds everything that scontrol printed.
	Fields map[string]string
}

// Submit submits a batch script as the job's user. Where the script has no
// "#!" line it gets one of bash. args are options of sbatch; without -N among them the job
// runs on the first node, [Cluster.Node]. stdout and stderr go to files that [Result] has
// the text of.
func (c *Cluster) Submit(t testing.TB, script string, args ...string) *JobRun {
	t.Helper()
	run := &JobRun{c: c, mode: c.Mode, folder: fmt.Sprintf("%s/job%d", c.Dir(), c.jobs.Add(1))}
	run.Dir = run.folder + "/work"
	for _, dir := range []string{run.folder, run.Dir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, int(c.uid), int(c.gid)); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/bash\n" + script
	}
	file := filepath.Join(run.folder, "script")
	if err := os.WriteFile(file, []byte(script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-N") }) {
		args = append([]string{"-w", c.Node()}, args...)
	}
	args = slices.Concat([]string{"--parsable", "-D", run.Dir, "-o", run.folder + "/out", "-e", run.folder + "/err"}, args, []string{file})
	out := c.Do(t, "sbatch", args...)
	if out.Code != 0 {
		t.Fatalf("sbatch %q: status %d: %s", args, out.Code, out.Stderr)
	}
	run.ID, _, _ = strings.Cut(strings.TrimSpace(out.Stdout), ";")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("job %s, slurmctld.log:\n%sslurmd.log:\n%s", run.ID, lines(c.Log("slurmctld"), "Id="+run.ID), run.Log())
		}
		if c.Mode == run.mode {
			run.c.admin(context.Background(), "scancel", "-Q", run.ID).Run()
		}
	})
	return run
}

// over are the states that a job does not leave by itself.
var over = []string{
	"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE", "BOOT_FAIL",
}

// patience bounds each wait for what should come: a machine may be slow.
const patience = 10 * time.Minute

// Over says that the job has ended.
func (r Result) Over() bool { return slices.Contains(over, r.State) }

// Wait waits for the job's end: at most until the test's own deadline, or
// ten minutes.
func (run *JobRun) Wait(t testing.TB) Result {
	t.Helper()
	return run.Until(t, patience, Result.Over)
}

// Running waits until the job runs. The test fails if it ends before it was
// seen to run.
func (run *JobRun) Running(t testing.TB) Result {
	t.Helper()
	r := run.Until(t, patience, func(r Result) bool { return r.State == "RUNNING" || r.Over() })
	if r.Over() {
		t.Fatalf("job %s ended: %s, stderr %s", run.ID, r.State, r.Stderr)
	}
	return r
}

// Until polls until the condition holds, and fails the test if that takes
// longer than the time given. sbatch --wait would be late by up to half a
// minute.
func (run *JobRun) Until(t testing.TB, within time.Duration, condition func(Result) bool) Result {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		r, err := run.Now(t.Context())
		if err == nil && condition(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %s is still %s (%s) after %v: %v", run.ID, r.State, r.Reason, within, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Now asks for the job's state.
func (run *JobRun) Now(ctx context.Context) (Result, error) {
	out, err := run.c.admin(ctx, "scontrol", "show", "job", "-o", run.ID).Output()
	if err != nil {
		return Result{}, fmt.Errorf("cannot show job %s: %w", run.ID, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	r := Result{Fields: parseFields(line)}
	r.State, r.Reason = r.Fields["JobState"], r.Fields["Reason"]
	r.ExitCode, r.Signal = exitPair(r.Fields["ExitCode"])
	r.Node = r.Fields["BatchHost"]
	r.Restarts, _ = strconv.Atoi(r.Fields["Restarts"])
	stdout, _ := os.ReadFile(r.Fields["StdOut"])
	stderr, _ := os.ReadFile(r.Fields["StdErr"])
	r.Stdout, r.Stderr = string(stdout), string(stderr)
	return r, nil
}

// On is the job as seen on one node: Log, Processes and MemoryCgroup of what it
// returns are of that node alone.
func (run *JobRun) On(node string) *JobRun {
	there := *run
	there.node = node
	return &there
}

// Log returns the lines of slurmd and slurmstepd that name the job.
func (run *JobRun) Log() string {
	log := run.c.Log("slurmd")
	if run.node != "" {
		log = run.c.log(logOf(run.node))
	}
	return lines(log, "Id="+run.ID+".", "["+run.ID+".")
}

// lines returns the lines of a log that have one of the words.
func lines(log string, words ...string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Processes lists the PIDs of a step's container, "batch" or a number; those
// of all steps where step is empty. slurmstepd is not among them.
func (run *JobRun) Processes(step string) []int {
	if step == "" {
		step = "*"
	}
	nodes := run.c.nodes
	if run.node != "" {
		nodes = []string{run.node}
	}
	var pids []int
	for _, node := range nodes {
		dirs, _ := filepath.Glob(run.cgroup("freezer", node, step))
		for _, dir := range dirs {
			pids = append(pids, processesUnder(dir)...)
		}
	}
	return pids
}

// MemoryCgroup is the directory of a step in the memory hierarchy, of the job
// where step is empty. It exists in the cgroup modes only. Each node has one:
// this is the cluster's first node's, [JobRun.On] has another's.
func (run *JobRun) MemoryCgroup(step string) string {
	return run.cgroup("memory", cmp.Or(run.node, run.c.Node()), step)
}

func (run *JobRun) cgroup(controller, node, step string) string {
	dir := fmt.Sprintf("%s/%s/slurm_%s/uid_%d/job_%s", cgroupRoot, controller, node, run.c.uid, run.ID)
	if step != "" {
		dir += "/step_" + step
	}
	return dir
}

// parseFields reads "Name=Value Name=Value". A value ends at the next word
// with a name in front.
func parseFields(line string) map[string]string {
	fields := make(map[string]string)
	last := ""
	for word := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(word, "=")
		if ok && name != "" && !strings.ContainsAny(name, "/.,") {
			fields[name], last = value, name
		} else if last != "" {
			fields[last] += " " + word
		}
	}
	return fields
}

// exitPair reads "CODE:SIGNAL".
func exitPair(s string) (code, signal int) {
	a, b, _ := strings.Cut(s, ":")
	code, _ = strconv.Atoi(a)
	signal, _ = strconv.Atoi(b)
	return code, signal
}

func processesUnder(dir string) []int {
	var pids []int
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil
		}
		b, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
