package slurmtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	deadline := time.Now().Add(20 * time.Second)
	for len(left()) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %q", left())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
