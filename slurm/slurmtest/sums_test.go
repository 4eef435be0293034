package slurmtest_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const mib = 1 << 20

// family is a job with one process of each kind that could count or not: a
// child with threads, one in a session of its own, an orphan by a double fork,
// one more that a subreaper in the tree has adopted, two that map the same
// file, one with shared memory and a zombie, and one that has ended.
const family = `dd if=/dev/zero of=data bs=1M count=32 2>/dev/null
%[1]s hold child anon=20 threads=20 &
setsid %[1]s hold setsid anon=30 &
( ( %[1]s hold orphan anon=40 & ) )
%[1]s hold reaper adopt=adopted,anon=25 &
%[1]s hold map1 map=data &
%[1]s hold map2 map=data shm=8 zombie=1 &
%[1]s hold gone anon=60 exit=0
wait
`

// eachSlurm runs a test with this machine's Slurm, which is 22.05 on Debian 12, with
// 24.11, and with that of Debian sid, 26.05 when this was written. The package comment of
// slurm and [slurm.Changes] say what was found so.
func eachSlurm(t *testing.T, test func(t *testing.T, o slurmtest.Options)) {
	t.Run("own", func(t *testing.T) { test(t, slurmtest.Options{}) })
	t.Run("24.11", func(t *testing.T) { test(t, slurmtest.Options{Suite: debian.Trixie}) })
	t.Run("26.05", func(t *testing.T) { test(t, slurmtest.Options{Suite: debian.Sid}) })
}

func startFamily(t *testing.T, mode slurmtest.Mode, o slurmtest.Options) (run *slurmtest.JobRun, pids map[string]int) {
	t.Helper()
	c := slurmtest.Start(t, mode, o)
	run = c.Submit(t, fmt.Sprintf(family, c.InstallSelf(t)), "--mem=600")
	return run, held(t, run, "child", "setsid", "orphan", "adopted", "map1", "map2")
}

func TestWhatSlurmstepdSums(t *testing.T) { eachSlurm(t, whatSlurmstepdSums) }

func whatSlurmstepdSums(t *testing.T, o slurmtest.Options) {
	t.Run("linux", func(t *testing.T) {
		run, pids := startFamily(t, slurmtest.Linux, o)
		used, limit, s := still(t, run, "batch")
		t.Logf("used %d, by parent %d, container %d", used, s.rss, s.containerRSS)
		if used != s.rss {
			t.Errorf("slurmstepd used %d, the task and its descendants by parent PID have %d", used, s.rss)
		}
		if limit != 600*mib {
			t.Errorf("limit %d, want that of --mem", limit)
		}
		if s.orphans != 1 || s.containerRSS < s.rss+40*mib {
			t.Errorf("%d orphans, container %d: want one orphan of 40 MiB outside the sum", s.orphans, s.containerRSS)
		}

		// Freed memory and ended processes are no longer counted: the number is no
		// peak.
		wardentest.NoError(t, syscall.Kill(pids["setsid"], syscall.SIGUSR1))
		wardentest.NoError(t, syscall.Kill(pids["child"], syscall.SIGKILL))
		held(t, run, "setsid.freed")
		less, _, s := still(t, run, "batch")
		t.Logf("used %d, by parent %d", less, s.rss)
		if less != s.rss || less+50*mib > used {
			t.Errorf("slurmstepd used %d after %d, the processes have %d: want 50 MiB less", less, used, s.rss)
		}
	})

	t.Run("linux-pss", func(t *testing.T) {
		run, _ := startFamily(t, slurmtest.LinuxPss, o)
		used, _, s := still(t, run, "batch")
		t.Logf("used %d, by parent PSS %d, RSS %d", used, s.pss, s.rss)
		if !near(used, s.pss, mib) || near(used, s.rss, 16*mib) {
			t.Errorf("slurmstepd used %d, PSS is %d, RSS %d", used, s.pss, s.rss)
		}
	})

	t.Run("linux-noshared", func(t *testing.T) {
		run, _ := startFamily(t, slurmtest.LinuxNoShared, o)
		used, _, s := still(t, run, "batch")
		t.Logf("used %d, by parent noshared %d, PSS %d, RSS %d", used, s.noshared, s.pss, s.rss)
		if used != s.noshared || near(used, s.pss, 16*mib) {
			t.Errorf("slurmstepd used %d, RSS less shared is %d, PSS %d", used, s.noshared, s.pss)
		}
	})

	t.Run("cgroup-kill", func(t *testing.T) {
		run, _ := startFamily(t, slurmtest.CgroupKill, o)
		used, _, s := still(t, run, "batch")
		task := totalRSS(t, filepath.Join(run.MemoryCgroup("batch"), "task_0"))
		step := totalRSS(t, run.MemoryCgroup("batch"))
		t.Logf("used %d, total_rss of the task %d, of the step %d, by parent RSS %d noshared %d", used, task, step, s.rss, s.noshared)
		if !near(used, task, mib) || near(used, s.rss, 8*mib) || near(used, s.noshared, 8*mib) {
			t.Errorf("slurmstepd used %d, total_rss of the task's cgroup is %d", used, task)
		}
	})
}

func near(a, b, within uint64) bool { return max(a, b)-min(a, b) <= within }

// TestStepsAreSummedApart: each step has a slurmstepd that compares the step's
// tasks with the step's limit.
func TestStepsAreSummedApart(t *testing.T) { eachSlurm(t, stepsAreSummedApart) }

func stepsAreSummedApart(t *testing.T, o slurmtest.Options) {
	c := slurmtest.Start(t, slurmtest.Linux, o)
	script := `%[1]s hold batch anon=50 &
srun -n2 --overlap --mem=200 bash -c '%[1]s hold task$SLURM_PROCID anon=60; true'
wait`
	run := c.Submit(t, fmt.Sprintf(script, c.InstallSelf(t)), "-n2", "--mem=400")
	held(t, run, "batch", "task0", "task1")

	used, limit, s := still(t, run, "batch")
	if used != s.rss || limit != 400*mib || used > 100*mib {
		t.Errorf("batch step: used %d of %d, its processes have %d", used, limit, s.rss)
	}
	used, limit, s = still(t, run, "0")
	if used != s.rss || limit != 200*mib || used < 120*mib {
		t.Errorf("srun step: used %d of %d, its two tasks have %d", used, limit, s.rss)
	}
}

// TestSlurmdSumsTheJob: when slurmctld pings, slurmd adds the steps up and
// compares that with the job's limit. From 26.05.3 on it has the job cancelled; before, its
// request to kill names no job that exists, so that the job only finds a line in its stderr.
// A cancelled job misses that line at times: TERM was faster.
func TestSlurmdSumsTheJob(t *testing.T) { eachSlurm(t, slurmdSumsTheJob) }

func slurmdSumsTheJob(t *testing.T, o slurmtest.Options) {
	o.Conf = "SlurmdTimeout=6"
	c := slurmtest.Start(t, slurmtest.Linux, o)
	script := `%[1]s hold batch anon=150 &
srun -n1 --overlap %[1]s hold task anon=150
wait`
	run := c.Submit(t, fmt.Sprintf(script, c.InstallSelf(t)), "--mem=250")
	kills := slurm.Release{26, 5, 3}.In(c.Version(t))
	held(t, run, "batch", "task")
	want := fmt.Sprintf("Job %s exceeded memory limit", run.ID)
	r := run.Until(t, time.Minute, func(r slurmtest.Result) bool {
		return r.Over() || !kills && strings.Contains(c.Log("slurmd"), want) && strings.Contains(r.Stderr, "Exceeded job memory limit")
	})
	t.Logf("job is %s; stderr %q", r.State, r.Stderr)
	if !strings.Contains(c.Log("slurmd"), want) {
		t.Errorf("job is %s %s and slurmd did not say %q", r.State, r.Reason, want)
	}
	if r.Over() != kills || kills && (r.State != "CANCELLED" || r.ExitCode != 0 || r.Signal != 15) {
		t.Errorf("job is %s %d:%d; want that slurmd cancels it: %v", r.State, r.ExitCode, r.Signal, kills)
	}
}

// TestKills: a step over its limit at a poll is killed at once, and so is one whose virtual
// memory is over VSizeFactor; each process has that as RLIMIT_AS too. At the limit of the job's
// cgroup the kernel kills, and Slurm calls the job out of memory though its script went on and
// ended well.
func TestKills(t *testing.T) { eachSlurm(t, kills) }

func kills(t *testing.T, o slurmtest.Options) {
	byKill := "JobLaunchFailure"
	if o.Suite != "" {
		byKill = "RaisedSignal:9(Killed)"
	}
	for _, test := range []struct {
		mode          slurmtest.Mode
		conf, script  string
		mem           string
		state, reason string
		signal        int
		stdout        string
		stderr, log   string // patterns
	}{
		{slurmtest.Linux, "", "trap 'echo asked' TERM\n%[1]s hold x anon=150", "--mem=100", "FAILED", byKill, 9, "", "Exceeded job memory limit", ""},
		{slurmtest.Linux, "VSizeFactor=200", "ulimit -v; %[1]s hold x virtual=2200 & %[1]s hold y virtual=2200 & wait", "--mem=2500",
			"FAILED", byKill, 9, fmt.Sprintln(2500 * 2 << 10), "", "exceeded virtual memory limit"},
		{slurmtest.Cgroup, "", "%[1]s hold x anon=150; echo status $?; exit 0", "--mem=100", "OUT_OF_MEMORY", "OutOfMemory", 125,
			"status 137\n", "oom[-_]kill event", ""},
	} {
		t.Run(string(test.mode)+test.conf, func(t *testing.T) {
			o.Conf = test.conf
			c := slurmtest.Start(t, test.mode, o)
			run := c.Submit(t, fmt.Sprintf(test.script, c.InstallSelf(t)), test.mem, "--no-requeue")
			got := run.Wait(t)
			if got.State != test.state || got.Reason != test.reason || got.ExitCode != 0 || got.Signal != test.signal || got.Stdout != test.stdout {
				t.Errorf("job is %s %s %d:%d, want %s %s 0:%d; stdout %q",
					got.State, got.Reason, got.ExitCode, got.Signal, test.state, test.reason, test.signal, got.Stdout)
			}
			if !regexp.MustCompile(test.stderr).MatchString(got.Stderr) || !strings.Contains(run.Log(), test.log) {
				t.Errorf("stderr %q", got.Stderr)
			}
		})
	}
}

// TestPolledWhenAsked: with polling turned off a step may be above its
// limit until it is asked for, if only by sstat.
func TestPolledWhenAsked(t *testing.T) { eachSlurm(t, polledWhenAsked) }

func polledWhenAsked(t *testing.T, o slurmtest.Options) {
	o.Conf = "JobAcctGatherFrequency=task=0\nSlurmdTimeout=300"
	c := slurmtest.Start(t, slurmtest.Linux, o)
	run := c.Submit(t, fmt.Sprintf("exec %s hold x anon=150", c.InstallSelf(t)), "--mem=100")
	held(t, run, "x")
	if r, err := run.Now(t.Context()); err != nil || r.State != "RUNNING" {
		t.Fatalf("job is %s before a request: %v", r.State, err)
	}
	c.Do(t, "sstat", "-j", run.ID+".batch")
	if r := run.Wait(t); r.State != "FAILED" || r.Signal != 9 {
		t.Errorf("job is %s %d:%d after sstat, want it killed", r.State, r.ExitCode, r.Signal)
	}
}

// TestFrequency: sbatch hands --acctg-freq down in the environment, srun does
// not. Neither may turn polling off, or slow it down.
func TestFrequency(t *testing.T) { eachSlurm(t, frequency) }

func frequency(t *testing.T, o slurmtest.Options) {
	o.Poll = 5
	c := slurmtest.Start(t, slurmtest.Linux, o)
	run := c.Submit(t, "echo $SLURM_ACCTG_FREQ", "--acctg-freq=task=3")
	for _, freq := range []string{"0", "30"} {
		got := c.Srun(t, "--mem=100", "--acctg-freq="+freq, "true")
		if got.Code == 0 || !strings.Contains(got.Stderr, "Invalid accounting frequency") {
			t.Errorf("srun --acctg-freq=%s: status %d, stderr %q: want a refusal", freq, got.Code, got.Stderr)
		}
	}
	got := c.Srun(t, "--mem=100", "--acctg-freq=2", "bash", "-c", "echo $SLURM_ACCTG_FREQ")
	if got.Code != 0 || got.Stdout != "\n" {
		t.Errorf("srun: status %d, SLURM_ACCTG_FREQ %q: want none", got.Code, got.Stdout)
	}
	if got := run.Wait(t); got.Stdout != "task=3\n" {
		t.Errorf("sbatch: SLURM_ACCTG_FREQ %q, want task=3", got.Stdout)
	}
}
