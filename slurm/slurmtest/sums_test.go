package slurmtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		if err := hold(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "hold-cluster" {
		if err := holdCluster(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if err := slurmtest.Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

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
	if !kills { // it may have ended as soon as both are that large
		held(t, run, "batch", "task")
	}
	want := fmt.Sprintf("Job %s exceeded memory limit", run.ID)
	r := run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
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

// holdTimeout bounds how long processes of a job take to get their memory.
const holdTimeout = 30 * time.Second

// process is what /proc says about one process, in bytes.
type process struct {
	parent                      int
	comm                        string
	rss, pss, noshared, virtual uint64
}

// readProcess reads RSS as slurmstepd does: field 24 of /proc/PID/stat, and
// the second and third of statm.
func readProcess(pid int) (process, error) {
	page := uint64(os.Getpagesize())
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 22 {
		return process{}, fmt.Errorf("%d fields in stat of %d", len(fields), pid)
	}
	p := process{comm: string(b[open+1 : end])}
	p.parent, _ = strconv.Atoi(fields[1])
	p.virtual, _ = strconv.ParseUint(fields[20], 10, 64)
	p.rss, _ = strconv.ParseUint(fields[21], 10, 64)
	p.rss *= page
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return process{}, err
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared); err != nil {
		return process{}, err
	}
	p.noshared = (resident - shared) * page
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil && !errors.Is(err, syscall.ESRCH) { // a zombie has none
		return process{}, err
	}
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			p.pss = kb << 10
		}
	}
	return p, nil
}

// sums are the candidates for what slurmstepd adds up.
type sums struct {
	rss, pss, noshared, virtual uint64 // the tasks and their descendants by parent PID
	containerRSS                uint64 // all processes of the step's container
	orphans                     int    // in the container and no descendants
}

// readSums reads a step: every process of its container, and of those the
// tasks, which are the children of slurmstepd, with their descendants.
func readSums(t *testing.T, run *slurmtest.JobRun, step string) sums {
	t.Helper()
	procs := make(map[int]process)
	for _, pid := range run.Processes(step) {
		p, err := readProcess(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		wardentest.NoError(t, err)
		procs[pid] = p
	}
	// A task's chain of parents ends at slurmstepd, an orphan's at init.
	tree := func(pid int) bool {
		for {
			p, ok := procs[pid]
			if !ok {
				parent, err := readProcess(pid)
				return err == nil && parent.comm == "slurmstepd"
			}
			pid = p.parent
		}
	}
	var s sums
	for pid, p := range procs {
		s.containerRSS += p.rss
		if !tree(pid) {
			s.orphans++
			continue
		}
		s.rss += p.rss
		s.pss += min(p.pss, p.rss)
		s.noshared += p.noshared
		s.virtual += p.virtual
	}
	return s
}

var usedLine = regexp.MustCompile(`StepId=(\S+) memory used:(\d+) limit:(\d+) B`)

// polls returns what slurmstepd logged at each poll of a step.
func polls(run *slurmtest.JobRun, step string) (used []uint64, limit uint64) {
	for _, m := range usedLine.FindAllStringSubmatch(run.Log(), -1) {
		if m[1] == run.ID+"."+step {
			n, _ := strconv.ParseUint(m[2], 10, 64)
			used = append(used, n)
			limit, _ = strconv.ParseUint(m[3], 10, 64)
		}
	}
	return used, limit
}

// nextPoll waits for the next poll of a step to be logged, and returns it.
func nextPoll(t *testing.T, run *slurmtest.JobRun, step string) (used, limit uint64) {
	t.Helper()
	before, _ := polls(run, step)
	deadline := time.Now().Add(holdTimeout)
	for {
		after, limit := polls(run, step)
		if len(after) > len(before) {
			return after[len(after)-1], limit
		}
		if time.Now().After(deadline) {
			t.Fatalf("no poll of %s.%s in %v:\n%s", run.ID, step, holdTimeout, run.Log())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// still polls until the sums around a poll are the same, so that they are
// those at the poll. Only PSS moves when strangers map the same libraries.
func still(t *testing.T, run *slurmtest.JobRun, step string) (used, limit uint64, s sums) {
	t.Helper()
	for range 10 {
		before := readSums(t, run, step)
		used, limit = nextPoll(t, run, step)
		s = readSums(t, run, step)
		quiet := s
		quiet.pss = before.pss
		if before == quiet {
			return used, limit, s
		}
	}
	t.Fatal("the processes of the job keep changing")
	return
}

// totalRSS reads total_rss of a cgroup of v1.
func totalRSS(t *testing.T, dir string) uint64 {
	t.Helper()
	b := wardentest.ReadFile(t, filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "total_rss "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			wardentest.NoError(t, err)
			return n
		}
	}
	t.Fatalf("no total_rss in %s", dir)
	return 0
}

// holdCluster starts a cluster with a job on all its nodes, prints the cluster's
// folder, then each node and a PID of the job there, and sleeps until it
// is killed.
func holdCluster(nodes string) error {
	n, err := strconv.Atoi(nodes)
	if err != nil {
		return err
	}
	c, err := slurmtest.Up(context.Background(), slurmtest.Linux, slurmtest.Options{Nodes: n})
	if err != nil {
		return err
	}
	srun := c.Command(context.Background(), "srun", "-N"+nodes, "-n"+nodes, "bash", "-c", "echo $SLURMD_NODENAME $$; exec sleep 1000")
	out, err := srun.StdoutPipe()
	if err != nil {
		return err
	}
	// A killed process cleans nothing up, and an srun without its cluster waits for ever.
	runtime.LockOSThread()
	if srun.SysProcAttr == nil {
		srun.SysProcAttr = &syscall.SysProcAttr{}
	}
	srun.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := srun.Start(); err != nil {
		return err
	}
	fmt.Println(filepath.Dir(c.Dir()))
	for range n {
		var node string
		var pid int
		if _, err := fmt.Fscan(out, &node, &pid); err != nil {
			return err
		}
		fmt.Println(node, pid)
	}
	select {}
}

// hold is a process of a job. It takes memory as its arguments say, writes its
// PID to a file of its name, and sleeps until it is killed:
//
//	hold NAME [anon=MIB] [map=FILE] [shm=MIB] [threads=N] [zombie=1] [virtual=MIB]
//		[adopt=NAME,ARGUMENT,…] [exit=STATUS]
//
// On SIGUSR1 it gives its anonymous memory back and writes its PID to
// NAME.freed.
func hold(args []string) error {
	name := args[0]
	var anon []byte
	var err error
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "anon":
			if anon, err = mapped(-1, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON); err != nil {
				return err
			}
		case "shm":
			if _, err = mapped(-1, n<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON); err != nil {
				return err
			}
		case "map":
			f, err := os.Open(value)
			if err != nil {
				return err
			}
			info, err := f.Stat()
			if err != nil {
				return err
			}
			if _, err = mapped(int(f.Fd()), int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED); err != nil {
				return err
			}
		case "virtual":
			if _, err = syscall.Mmap(-1, 0, n<<20, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE); err != nil {
				return err
			}
		case "threads":
			for range n {
				go func() {
					runtime.LockOSThread()
					select {}
				}()
			}
			for {
				if tasks, _ := os.ReadDir("/proc/self/task"); len(tasks) > n {
					break
				}
				runtime.Gosched()
			}
		case "zombie":
			if _, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{}); err != nil {
				return err
			}
		case "adopt": // a subreaper gets the child of a child back
			const setChildSubreaper = 36
			if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
				return errno
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			grandchild := append([]string{"-c", `"$0" hold "$@" &`, self}, strings.Split(value, ",")...)
			if err := exec.Command("/bin/sh", grandchild...).Run(); err != nil {
				return err
			}
		case "exit":
			os.Exit(n)
		default:
			return fmt.Errorf("hold: unknown argument %q", arg)
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	note := func(file string) error {
		if err := os.WriteFile(file+".new", []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	}
	if err := note(name); err != nil {
		return err
	}
	for range signals {
		if err := syscall.Madvise(anon, syscall.MADV_DONTNEED); err != nil {
			return err
		}
		if err := note(name + ".freed"); err != nil {
			return err
		}
	}
	return nil
}

// mapped maps memory and touches every page of it.
func mapped(fd, size, prot, flags int) ([]byte, error) {
	b, err := syscall.Mmap(fd, 0, size, prot, flags)
	if err != nil {
		return nil, err
	}
	sum := byte(0)
	for i := 0; i < size; i += os.Getpagesize() {
		if prot&syscall.PROT_WRITE != 0 {
			b[i] = 1
		}
		sum += b[i]
	}
	runtime.KeepAlive(sum)
	return b, nil
}

// held returns the PIDs that the holders of these names noted, once all have.
func held(t *testing.T, run *slurmtest.JobRun, names ...string) map[string]int {
	t.Helper()
	pids := make(map[string]int)
	run.Until(t, holdTimeout, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("job ended: %s %s, stderr %s\n%s", r.State, r.Reason, r.Stderr, run.Log())
		}
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(run.Dir, name))
			if err != nil {
				return false
			}
			pids[name], _ = strconv.Atoi(string(b))
		}
		return true
	})
	return pids
}
