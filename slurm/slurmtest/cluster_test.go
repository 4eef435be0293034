package slurmtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestBatchJob(t *testing.T) { eachSlurm(t, batchJob) }

func batchJob(t *testing.T, o slurmtest.Options) {
	c := slurmtest.Start(t, slurmtest.Linux, o)
	run := c.Submit(t, "id -u; touch mine; env -0 >env; ulimit -m; echo oops >&2; exit 3", "--mem=321")
	got := run.Wait(t)
	if got.State != "FAILED" || got.ExitCode != 3 || got.Reason != "NonZeroExitCode" || got.Node != c.Node() {
		t.Errorf("state %s %d reason %s on %s, want FAILED 3 NonZeroExitCode on %s", got.State, got.ExitCode, got.Reason, got.Node, c.Node())
	}
	if want := fmt.Sprintf("%d\n%d\n", c.UID(), 321<<10); got.Stdout != want {
		t.Errorf("stdout %q, want %q", got.Stdout, want)
	}
	if got.Stderr != "oops\n" {
		t.Errorf("stderr %q", got.Stderr)
	}

	env := wardentest.ReadFile(t, filepath.Join(run.Dir, "env"))
	job, ok := slurm.FromEnv(lookup(string(env)))
	if !ok || job.ID != run.ID || job.StepID != slurm.StepBatch || job.NodeName != c.Node() || job.ConfFile != c.Conf() {
		t.Errorf("FromEnv says %+v, %v", job, ok)
	}
	if m, ok := slurm.StepLimit(lookup(string(env)), slurm.NoLimit); !ok || m.Bytes != 321*mib || m.Source != "SLURM_MEM_PER_NODE" {
		t.Errorf("StepLimit says %+v, %v", m, ok)
	}
}

// lookup makes a lookup function of the output of env -0.
func lookup(env string) func(string) (string, bool) {
	vars := make(map[string]string)
	for pair := range strings.SplitSeq(env, "\x00") {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// enforcements is what the files of a cluster say, and what scontrol says.
func enforcements(t *testing.T, c *slurmtest.Cluster) (byFiles, byScontrol slurm.Enforcement) {
	t.Helper()
	byFiles, err := slurm.FindEnforcement(t.Context(), slurm.Job{ConfFile: c.Conf()}, slurm.Search{Paths: []string{}})
	wardentest.NoError(t, err)
	byScontrol, err = slurm.FindEnforcement(t.Context(), slurm.Job{}, slurm.Search{
		Paths: []string{},
		Scontrol: func(ctx context.Context, args ...string) ([]byte, error) {
			return c.Command(ctx, "scontrol", args...).Output()
		},
	})
	wardentest.NoError(t, err)
	return byFiles, byScontrol
}

// TestEveryMode compares what the package slurm finds out with what the mode
// was made to be: by the files, by scontrol alone, and by a step's own limits.
func TestEveryMode(t *testing.T) {
	sums := map[slurmtest.Mode]string{
		slurmtest.Linux: "rss", slurmtest.LinuxPss: "pss", slurmtest.LinuxNoShared: "noshared", slurmtest.CgroupKill: "cgroup", slurmtest.LinuxVSize: "rss",
	}
	constrained := []slurmtest.Mode{
		slurmtest.Cgroup, slurmtest.CgroupSwap, slurmtest.CgroupSwap50, slurmtest.Cgroup150, slurmtest.Cgroup50, slurmtest.CgroupLinux, slurmtest.CgroupNoMem,
	}
	noMemory := []slurmtest.Mode{slurmtest.LinuxNoMemory, slurmtest.CgroupNoMem}
	for _, mode := range slurmtest.Modes {
		t.Run(string(mode), func(t *testing.T) {
			c := slurmtest.Start(t, mode, slurmtest.Options{})
			byFiles, byScontrol := enforcements(t, c)
			if got, _ := byFiles.Sums(); got != sums[mode] {
				t.Errorf("by files, slurmstepd sums %q, want %q", got, sums[mode])
			}
			if byFiles.Interval != time.Second || byFiles.Source != c.Conf() || len(byFiles.Open) != 0 {
				t.Errorf("by files: %+v", byFiles)
			}
			if byFiles.ConstrainRAM != slices.Contains(constrained, mode) {
				t.Errorf("by files: ConstrainRAM %v", byFiles.ConstrainRAM)
			}
			if byScontrol.Version == "" || byScontrol.Source == "" {
				t.Errorf("by scontrol: %+v", byScontrol)
			}
			byScontrol.Source, byScontrol.Version = byFiles.Source, byFiles.Version
			// scontrol writes CR_CORE for the file's CR_Core.
			if !strings.EqualFold(fmt.Sprintf("%v %+v", byFiles, byFiles), fmt.Sprintf("%v %+v", byScontrol, byScontrol)) {
				t.Errorf("by files    %+v\nby scontrol %+v", byFiles, byScontrol)
			}

			got := c.Srun(t, "-n1", "--mem=123", "bash", "-c", "env -0; ulimit -m; exit 7")
			want := strconv.Itoa(123 << 10)
			if slices.Contains(noMemory, mode) {
				want = "unlimited"
			}
			env, rest, _ := strings.Cut(got.Stdout, "\x00"+want)
			if got.Code != 7 || rest != "\n" {
				t.Errorf("status %d, stderr %s; want 7 and an RLIMIT_RSS of %s KiB", got.Code, got.Stderr, want)
			}
			if job, ok := slurm.FromEnv(lookup(env)); !ok || job.StepID != "0" || job.Tasks != 1 {
				t.Errorf("FromEnv says %+v, %v", job, ok)
			}
		})
	}
}

// TestMemoryGiven: RLIMIT_RSS is the step's memory however that was asked for.
func TestMemoryGiven(t *testing.T) { eachSlurm(t, memoryGiven) }

func memoryGiven(t *testing.T, o slurmtest.Options) {
	o.RealMemory = 4000
	c := slurmtest.Start(t, slurmtest.Linux, o)
	for _, test := range []struct {
		args   string
		rss    uint64 // MiB
		byEnv  uint64 // MiB, 0 where the environment says nothing
		source string
	}{
		{"--mem=300", 300, 300, "SLURM_MEM_PER_NODE"},
		{"--mem-per-cpu=120 -n2", 240, 240, "SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE"},
		{"-n2", 512, 512, "SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE"},
		{"--mem=0", 4000, 0, ""},
	} {
		run := c.Submit(t, "env -0 >env; ulimit -m; srun --mem=50 -n1 bash -c 'env -0 >stepenv; ulimit -m'", strings.Fields(test.args)...)
		got := run.Wait(t)
		if want := fmt.Sprintf("%d\n%d\n", test.rss<<10, 50<<10); got.Stdout != want {
			t.Errorf("%s: RLIMIT_RSS of job and step %q, want %q; stderr %s", test.args, got.Stdout, want, got.Stderr)
		}
		for _, file := range []string{"env", "stepenv"} {
			env := wardentest.ReadFile(t, filepath.Join(run.Dir, file))
			m, ok := slurm.StepLimit(lookup(string(env)), slurm.NoLimit)
			if m.Bytes != test.byEnv*mib || m.Source != test.source || ok && m.Step != (file == "env") {
				t.Errorf("%s: by %s the limit is %+v, want %d MiB from %s", test.args, file, m, test.byEnv, test.source)
			}
		}
	}
}

// TestJobOfAJob: a job submitted from a step has that step's SLURM_STEP_ID, and
// only its cgroup tells that it is a batch step.
func TestJobOfAJob(t *testing.T) { eachSlurm(t, jobOfAJob) }

func jobOfAJob(t *testing.T, o slurmtest.Options) {
	c := slurmtest.Start(t, slurmtest.Linux, o)
	inner := filepath.Join(c.Dir(), "inner")
	os.Remove(inner + ".cgroup") // of another Slurm's run
	script := "#!/bin/bash\nenv -0 >inner.env\ncat /proc/self/cgroup >inner.cgroup.new\nmv inner.cgroup.new inner.cgroup\n"
	wardentest.NoError(t, os.WriteFile(inner, []byte(script), 0o755))
	got := c.Srun(t, "--mem=100", "-D", c.Dir(), "sbatch", "--parsable", "-n2", "--mem=100", "-o/dev/null", inner)
	if got.Code != 0 {
		t.Fatalf("sbatch: %s", got.Stderr)
	}
	var cgroup []byte
	deadline := time.Now().Add(holdTimeout)
	for cgroup == nil {
		if time.Now().After(deadline) {
			t.Fatalf("job %s has not run", got.Stdout)
		}
		time.Sleep(20 * time.Millisecond)
		cgroup, _ = os.ReadFile(inner + ".cgroup")
	}
	env := wardentest.ReadFile(t, inner+".env")
	job, ok := slurm.FromEnv(lookup(string(env)))
	if !ok || job.ID != strings.TrimSpace(got.Stdout) {
		t.Fatalf("FromEnv says %+v, %v; want job %s", job, ok, got.Stdout)
	}
	if job := job.InCgroup(cgroup); job.StepID != slurm.StepBatch || job.Tasks != 2 {
		t.Errorf("by %s the job is %+v, want the batch step of 2 tasks", cgroup, job)
	}
}

// TestEndsWithItsProcess: a process that is killed leaves no daemon, no job,
// no folder and no cgroup behind.
func TestEndsWithItsProcess(t *testing.T) {
	if err := slurmtest.Missing(); err != nil {
		t.Skip(err)
	}
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) { endsWithItsProcess(t, nodes) })
	}
}

func endsWithItsProcess(t *testing.T, nodes int) {
	// The other process needs the lock.
	wardentest.NoError(t, slurmtest.Shutdown())
	self, err := os.Executable()
	wardentest.NoError(t, err)
	cmd := exec.Command(self, "hold-cluster", strconv.Itoa(nodes))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	wardentest.NoError(t, err)
	wardentest.NoError(t, cmd.Start())
	var dir string
	if _, err := fmt.Fscan(out, &dir); err != nil {
		t.Fatalf("the other process said nothing: %v", err)
	}
	patterns := []string{dir}
	for range nodes {
		var node string
		var job int
		if _, err := fmt.Fscan(out, &node, &job); err != nil {
			t.Fatalf("the other process did not say what it has: %v", err)
		}
		patterns = append(patterns, "/sys/fs/cgroup/*/slurm_"+node, fmt.Sprintf("/proc/%d", job))
	}
	cmd.Process.Kill()
	cmd.Wait()

	left := func() []string {
		var left []string
		for _, pattern := range patterns {
			found, _ := filepath.Glob(pattern)
			left = append(left, found...)
		}
		cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range cmdlines {
			if b, _ := os.ReadFile(file); strings.Contains(string(b), dir) && strings.Contains(string(b), "munged") ||
				strings.Contains(string(b), dir+"/etc/slurm.conf") {
				left = append(left, file+" "+string(b))
			}
		}
		return left
	}
	deadline := time.Now().Add(rsstest.Patience)
	for len(left()) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %q", left())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

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
		run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
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

// TestNewerSlurm: what a newer Slurm tells a job on cgroup v1, where it differs
// from 22.05 and where the cgroups are.
func TestNewerSlurm(t *testing.T) {
	t.Run("24.11", func(t *testing.T) { newerSlurm(t, debian.Trixie) })
	t.Run("26.05", func(t *testing.T) { newerSlurm(t, debian.Sid) })
}

func newerSlurm(t *testing.T, suite debian.Suite) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.CgroupKill, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) {
			c := slurmtest.Start(t, mode, slurmtest.Options{Suite: suite})
			version := c.Version(t)
			if suite == debian.Trixie && !strings.HasPrefix(version, "24.11.") || suite == debian.Sid && !(slurm.Release{26, 5, 3}).In(version) {
				t.Fatalf("%s has Slurm %s", suite, version)
			}
			byFiles, byScontrol := enforcements(t, c)
			if byScontrol.Version != version {
				t.Fatalf("by scontrol: %+v", byScontrol)
			}
			if mode == slurmtest.Linux && byScontrol.TaskPlugin == "" { // 24.11 shows task/none as (null)
				byScontrol.TaskPlugin = byFiles.TaskPlugin
			}
			byScontrol.Source = byFiles.Source
			if byFiles.String() != byScontrol.String() || byFiles.TaskPlugin != byScontrol.TaskPlugin || len(byScontrol.Open) > 0 ||
				byFiles.SelectMemory != byScontrol.SelectMemory || byFiles.ConstrainRAM != byScontrol.ConstrainRAM {
				t.Errorf("by files    %+v\nby scontrol %+v", byFiles, byScontrol)
			}

			run := c.Submit(t, "env -0 >env; cat /proc/self/cgroup >cgroup; touch ready; until [ -e go ]; do sleep 0.05; done", "--mem=300", "-t7")
			run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
				_, err := os.Stat(run.Dir + "/ready")
				return err == nil || r.Over()
			})
			limit := strings.TrimSpace(read(t, filepath.Join(run.MemoryCgroup("batch"), "memory.limit_in_bytes"), mode != slurmtest.Linux))
			if want := map[slurmtest.Mode]string{slurmtest.CgroupKill: "9223372036854771712", slurmtest.Cgroup: "314572800"}[mode]; limit != want {
				t.Errorf("limit of the step's cgroup %q, want %q", limit, want)
			}
			wardentest.NoError(t, os.WriteFile(run.Dir+"/go", nil, 0o644))
			if got := run.Wait(t); got.State != "COMPLETED" {
				t.Fatalf("%s, stderr %s", got.State, got.Stderr)
			}
			memory := ""
			for line := range strings.Lines(read(t, run.Dir+"/cgroup", true)) {
				if _, path, ok := strings.Cut(line, ":memory:"); ok {
					memory = strings.TrimSpace(path)
				}
			}
			if in := strings.HasSuffix(memory, "/job_"+run.ID+"/step_batch/task_0"); in != (mode != slurmtest.Linux) {
				t.Errorf("memory cgroup %s", memory)
			}
			env := lookup(read(t, run.Dir+"/env", true))
			if _, ok := env("SLURM_OOM_KILL_STEP"); !ok {
				t.Error("no SLURM_OOM_KILL_STEP, which is new")
			}
			sluid, _ := env("SLURM_JOB_SLUID")
			step, _ := env("SLURM_STEP_ID")
			if suite == debian.Sid && (len(sluid) != 14 || step != "-5") || suite == debian.Trixie && sluid+step != "" {
				t.Errorf("SLURM_JOB_SLUID %q, SLURM_STEP_ID %q", sluid, step)
			}
			job, ok := slurm.FromEnv(env)
			if !ok || job.StepID != slurm.StepBatch {
				t.Fatalf("FromEnv says %+v, %v", job, ok)
			}
			if left := time.Until(job.End); left < 5*time.Minute || left > 8*time.Minute {
				t.Errorf("the job ends in %v, want 7 minutes from its start", left)
			}
		})
	}
}

// read reads a file, of which there must be one where exists says so.
func read(t *testing.T, path string, exists bool) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if (err == nil) != exists {
		t.Fatalf("%s: %v", path, err)
	}
	return string(b)
}

// TestWorksWith holds the README's row on Slurm on cgroup v1 against what [eachSlurm] runs.
func TestWorksWith(t *testing.T) {
	var list []string
	eachSlurm(t, func(t *testing.T, o slurmtest.Options) {
		cmd := exec.Command("slurmd", "-V")
		if o.Suite != "" {
			cmd = debian.Need(t, o.Suite).Command("slurmd", "-V")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Skip("no Slurm: ", err)
		}
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // slurm-wlm 26.05.5
		list = append(list, version[:strings.LastIndex(version, ".")])
	})
	if len(list) == 3 {
		rsstest.WorksWith(t, "Slurm, cgroup v1", list)
	}
}
