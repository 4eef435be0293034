package slurm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// stand is a cluster with the trainer of examples/train on it.
type stand struct {
	*slurmtest.Cluster
	rsswarden, train, data string
	records                []string // the options that make the data
}

// trainStand gives a test a cluster with the trainer and its LMDB of 480 MB, or 1.44 GB
// where RSSWARDEN_ENDURANCE is set.
func trainStand(t *testing.T, mode slurmtest.Mode) stand {
	t.Helper()
	wardentest.NeedTorch(t)
	return trainStandOn(t, mode, slurmtest.Usual)
}

func trainStandOn(t *testing.T, mode slurmtest.Mode, options slurmtest.Options) stand {
	t.Helper()
	c := slurmtest.Start(t, mode, options)
	s := stand{Cluster: c, rsswarden: c.Install(t, binary)}
	s.train = c.Install(t, "../../../../examples/train/train.py")
	c.Install(t, "../../../../examples/train/data.py")
	s.data = filepath.Join(c.Dir(), "train.lmdb")
	s.records = []string{"--data", s.data, "--records", strconv.Itoa(wardentest.Few(12000, 4000)), "--record-bytes", "120000"}
	making.Lock()
	defer making.Unlock()
	if _, err := os.Stat(s.data); err != nil {
		args := append([]string{s.train, "--epochs", "0", "--workers", "0"}, s.records...)
		if got := c.Do(t, python, args...); got.Code != 0 {
			t.Fatalf("cannot make the data: %+v", got)
		}
	}
	return s
}

// making keeps tests that run in parallel from making the same.
var making sync.Mutex

// memory is the limit of a job in MiB: for the data of endurance, and for those of others.
func memory(full, third int) string { return fmt.Sprint("--mem=", wardentest.Few(full, third)) }

// script is a job that trains, under rsswarden where wrap says so.
func (s stand) script(wrap string, options ...string) string {
	return "exec " + wrap + " " + s.training(options...)
}

// training is the command line of the trainer.
func (s stand) training(options ...string) string {
	return fmt.Sprintf("%s %s %s %s", python, s.train, strings.Join(s.records, " "), strings.Join(options, " "))
}

// references are the checksums of runs that nothing limits, by what they depend on.
var references = map[string]string{}

// reference is the checksum of a run that nothing limits. It depends on neither the
// workers, nor what they leak, nor the pace.
func (s stand) reference(t *testing.T, options ...string) string {
	t.Helper()
	args := slices.Concat([]string{s.train}, s.records, []string{"--workers", "2"})
	for i, o := range options {
		if o == "--epochs" || o == "--epoch-fraction" {
			args = append(args, o, options[i+1])
		}
	}
	key := s.Version(t) + strings.Join(args[3:], " ")
	making.Lock()
	defer making.Unlock()
	if references[key] == "" {
		got := s.Do(t, python, args...)
		if got.Code != 0 || wardentest.Checksum(got.Stdout) == "none" {
			t.Fatalf("the run without a limit failed: %+v", got)
		}
		references[key] = wardentest.Checksum(got.Stdout)
	}
	return references[key]
}

// TestSlurmLinux is the job that started it all: slurmstepd sums RSS over the
// tree, and four persistent workers that map 1.44 GB pass 3000 MB in seconds.
func TestSlurmLinux(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	for _, shape := range []string{"--persistent", "--endless"} {
		t.Run(shape, func(t *testing.T) {
			// At no pace of its own it is the machine's speed that is tested, see isolated.
			options := []string{shape, "--workers", "4", "--epochs", "4", "--step-ms", strconv.Itoa(wardentest.Few(0, 10))}
			want := s.reference(t, options...)
			if bare := s.Submit(t, s.script("", options...), memory(3000, 2000)).Wait(t); bare.State != "FAILED" || bare.Signal != 9 {
				t.Errorf("bare: %s %d:%d, want FAILED 0:9: the test proves nothing", bare.State, bare.ExitCode, bare.Signal)
			}
			got := s.carried(t, want, s.script(s.rsswarden+" run --events $PWD/events --", options...), memory(3000, 2000))
			if shape == "--persistent" {
				sampleShown(t, "What you see on stderr", got.Stderr)
			}
		})
	}
}

// carried runs a wrapped job and wants it to end well, with that checksum.
func (s stand) carried(t *testing.T, want, script string, args ...string) slurmtest.Result {
	t.Helper()
	return s.completed(t, want, s.Submit(t, script, args...).Wait(t))
}

// completed wants a job to have ended well, with that checksum.
func (s stand) completed(t *testing.T, want string, got slurmtest.Result) slurmtest.Result {
	t.Helper()
	t.Logf("%s %d:%d\n%s%s", got.State, got.ExitCode, got.Signal, got.Stdout, wardentest.Said(got.Stderr))
	if got.State != "COMPLETED" || got.ExitCode != 0 || got.Signal != 0 {
		t.Errorf("wrapped: %s %s %d:%d, want COMPLETED 0:0\n%s", got.State, got.Reason, got.ExitCode, got.Signal, got.Stderr)
	}
	if sum := wardentest.Checksum(got.Stdout); sum != want {
		t.Errorf("wrapped: checksum %s, want %s", sum, want)
	}
	return got
}

// TestSlurmCgroup: a dataset that leaks in its workers fills the job's cgroup.
// One kernel OOM kill would mark the job OUT_OF_MEMORY.
func TestSlurmCgroup(t *testing.T) {
	s := trainStand(t, slurmtest.Cgroup)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--leak-worker", "60"}
	want := s.reference(t, options...)
	if bare := s.Submit(t, s.script("", options...), memory(1500, 800), "--no-requeue").Wait(t); bare.State != "OUT_OF_MEMORY" {
		t.Errorf("bare: %s, want OUT_OF_MEMORY: the test proves nothing", bare.State)
	}
	s.carried(t, want, s.script(s.rsswarden+" run --", options...), memory(1500, 800), "--no-requeue")
}

// silent is a job whose processes never say hello to the hook.
type silent struct {
	stand
	script func(wrap string) string
	want   string   // its checksum
	args   []string // of sbatch, with a limit that kills it bare
}

// isolated is the trainer under python3 -I, which reads neither PYTHONPATH nor
// anything else that could bring the hook in. It computes for 60 ms a batch, and for 20
// with all of the data and its limit, as the compiled one has a pace. Without that it is the machine's speed that is tested: a fault
// maps the pages around it too, so that at 5 ms a batch workers that read 0.8 GB a second
// map 7, all that is left below the limit in a quarter of a second, and a poll of slurmstepd
// may come between a look and the end of its trim.
func isolated(t *testing.T, shape string) silent {
	s := trainStand(t, slurmtest.Linux)
	options := []string{shape, "--workers", "4", "--epochs", "1", "--step-ms", strconv.Itoa(wardentest.Few(20, 60))}
	run := fmt.Sprintf(`import sys, runpy; sys.path.insert(0, %q); runpy.run_path(%q, run_name="__main__")`, filepath.Dir(s.train), s.train)
	return silent{
		stand: s, want: s.reference(t, options...), args: []string{memory(2600, 1500)},
		script: func(wrap string) string {
			return fmt.Sprintf("exec %s %s -I -c '%s' %s %s", wrap, python, run, strings.Join(s.records, " "), strings.Join(options, " "))
		},
	}
}

// compiled is the loader of examples/lmdbload, which knows no Python.
func compiled(t *testing.T) silent {
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Usual)
	s := stand{Cluster: c, rsswarden: c.Install(t, binary)}
	load := c.Install(t, wardentest.Program(t, wardentest.LMDBLoad))
	line := load + " -data " + filepath.Join(c.Dir(), "load.lmdb") + " -records 1000 -workers 4 -epochs 6 -growth 700"
	made := strings.Fields(line)
	if got := c.Do(t, made[0], append(made[1:], "-create")...); got.Code != 0 {
		t.Fatalf("cannot make the data: %+v", got)
	}
	got := c.Do(t, made[0], made[1:]...)
	if got.Code != 0 || wardentest.Checksum(got.Stdout) == "none" {
		t.Fatalf("the run without a limit failed: %+v", got)
	}
	return silent{
		stand: s, want: wardentest.Checksum(got.Stdout), args: []string{"--mem=2000"},
		script: func(wrap string) string { return "exec " + wrap + " " + line },
	}
}

func (s silent) wrapped(options string) string {
	return s.script(s.rsswarden + " run --trim ptrace " + options + " --")
}

// TestSlurmPtrace: slurmstepd kills these jobs, and nothing in them can be asked
// to give pages back.
func TestSlurmPtrace(t *testing.T) {
	for name, build := range map[string]func(*testing.T) silent{
		"python -I, persistent": func(t *testing.T) silent { return isolated(t, "--persistent") },
		"python -I, endless":    func(t *testing.T) silent { return isolated(t, "--endless") },
		"lmdbload":              compiled,
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, "endless") {
				wardentest.Long(t)
			}
			s := build(t)
			if bare := s.Submit(t, s.script(""), s.args...).Wait(t); bare.State != "FAILED" || bare.Signal != 9 {
				t.Errorf("bare: %s %d:%d, want FAILED 0:9: the test proves nothing", bare.State, bare.ExitCode, bare.Signal)
			}
			list := filepath.Join(s.Dir(), "events-"+strings.ReplaceAll(t.Name(), "/", "-"))
			s.carried(t, s.want, s.wrapped("--events "+list), s.args...)
			traced := 0
			for _, e := range wardentest.Events(t, list)[event.NameLoader] {
				if e["what"] == string(event.LoaderTrimmed) {
					wardentest.Has(t, e, "by", "ptrace")
					traced++
				}
			}
			if traced == 0 {
				t.Error("nothing was trimmed: the test proves nothing")
			}
		})
	}
}

// submitAiling runs a job of Slurm under an ailment and returns how it ended. Now and
// then slurmd loses a slurmstepd that it has just started, and slurmctld begins
// the job again: that says nothing about rsswarden, so it is tried once more.
func submitAiling(t *testing.T, a wardentest.Ailment, c *slurmtest.Cluster, warden, job string, args ...string) slurmtest.Result {
	t.Helper()
	got, run := tryAiling(t, a, c, warden, job, args...)
	if got.Restarts > 0 {
		t.Logf("Slurm lost the job's slurmstepd:\n%s", run.Log())
		c.Cancel(t, run.ID)
		got, _ = tryAiling(t, a, c, warden, job, args...)
	}
	return got
}

func tryAiling(t *testing.T, a wardentest.Ailment, c *slurmtest.Cluster, warden, job string, args ...string) (slurmtest.Result, *slurmtest.JobRun) {
	t.Helper()
	run := c.Submit(t, fmt.Sprintf("export %s\nexec %s run --interval 20ms -- %s", cmp.Or(a.Env, "A=B"), warden, job), args...)
	struck := map[int]bool{}
	got := run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		for _, pid := range run.Processes("batch") {
			if a.Sig != 0 && wardentest.IsWatcher(pid) && !struck[pid] {
				struck[pid] = syscall.Kill(pid, a.Sig) == nil
			}
		}
		return r.Over() || r.Restarts > 0
	})
	if a.Sig != 0 && len(struck) == 0 && got.Restarts == 0 {
		t.Error("no watcher was struck: the test proves nothing")
	}
	return got, run
}

// TestSlurmJobSurvivesItsWatcher runs the jobs of the other tests with a
// watcher that fails: they end as they do bare. Where bare ends by the limit,
// the limit is left out: no watcher is left to keep the job inside it.
func TestSlurmJobSurvivesItsWatcher(t *testing.T) {
	t.Run("linux", func(t *testing.T) {
		s := trainStand(t, slurmtest.Linux)
		warden := s.Install(t, faulty)
		orphan := python + " " + s.Install(t, "testdata/jobs/orphan.py")
		options := []string{"--persistent", "--workers", "2", "--epochs", "1"}
		want := s.reference(t, options...)
		for _, a := range wardentest.Ailments {
			t.Run(a.Name, func(t *testing.T) {
				if a.Name != "SIGKILL" && a.Name != "SIGSTOP" {
					wardentest.Long(t)
				}
				t.Parallel()
				got := submitAiling(t, a, s.Cluster, warden, "sh -c 'echo begun; sleep 2; echo done; exit 41'", "--mem=400")
				if got.State != "FAILED" || got.ExitCode != 41 || got.Stdout != "begun\ndone\n" {
					t.Errorf("status: %s %d:%d, stdout %q, want FAILED 41:0\n%s", got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
				}
				got = submitAiling(t, a, s.Cluster, warden, orphan, "--mem=400")
				if got.State != "COMPLETED" || got.ExitCode != 0 || got.Stdout != "parent ends\n" {
					t.Errorf("orphan: %s %d:%d, stdout %q, want COMPLETED 0:0\n%s", got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
				}
				s.completed(t, want, submitAiling(t, a, s.Cluster, warden, s.training(options...), "--mem=15000"))
			})
		}
	})
	t.Run("cgroup", func(t *testing.T) {
		s := trainStand(t, slurmtest.Cgroup)
		warden := s.Install(t, faulty)
		options := []string{"--persistent", "--workers", "2", "--epochs", "1", "--leak-worker", "60"}
		want := s.reference(t, options...)
		for _, a := range wardentest.Ailments[:wardentest.Few(len(wardentest.Ailments), 2)] {
			t.Run(a.Name, func(t *testing.T) {
				s.completed(t, want, submitAiling(t, a, s.Cluster, warden, s.training(options...), "--mem=15000"))
			})
		}
	})
}

// The ways in which a site's Slurm kills, by Slurm 24.11 with cgroup/v1: the
// rest of [slurmtest.Modes] is in the endurance tests.
var modes2411 = []slurmtest.Mode{slurmtest.Linux, slurmtest.CgroupKill, slurmtest.Cgroup, slurmtest.CgroupLinux}

// TestSlurm2411 is [TestAccountings] with Slurm 24.11 and Python 3.13: the same
// rows, the same limits, counters and enforcers, the same jobs that die bare
// and end well wrapped.
func TestSlurm2411(t *testing.T) { accountingsOn(t, debian.Trixie, modes2411) }

func accountingsOn(t *testing.T, suite debian.Suite, modes []slurmtest.Mode) {
	t.Parallel()
	for kind, inCgroups := range map[string]bool{"outside": false, "in cgroups": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // each kind has a cluster of its own
			for _, mode := range modes {
				if mode.InCgroups() == inCgroups {
					t.Run(string(mode), func(t *testing.T) {
						startAccountingOn(t, mode, slurmtest.Options{Suite: suite}).rows(t, mode)
					})
				}
			}
		})
	}
}

// newerTrainings are trainings that die bare.
var newerTrainings = []struct {
	mode    slurmtest.Mode
	mem     string
	options []string
	bare    string
}{
	{slurmtest.Linux, memory(3000, 1700), []string{"--persistent", "--workers", "4", "--epochs", "2"}, "FAILED"},
	{slurmtest.Cgroup, memory(1500, 800), []string{"--persistent", "--workers", "4", "--epochs", "3", "--leak-worker", "60"}, "OUT_OF_MEMORY"},
}

// TestSlurm2411Torch26 trains with PyTorch 2.6 in a job of Slurm 24.11.
func TestSlurm2411Torch26(t *testing.T) { trainingsOn(t, debian.Trixie) }

func trainingsOn(t *testing.T, suite debian.Suite) {
	wardentest.Long(t)
	t.Parallel()
	for _, c := range newerTrainings {
		t.Run(string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: suite, CPUs: 4, RealMemory: 20000})
			want := s.reference(t, c.options...)
			if bare := s.Submit(t, s.script("", c.options...), c.mem, "--no-requeue").Wait(t); bare.State != c.bare {
				t.Errorf("bare: %s, want %s: the test proves nothing", bare.State, c.bare)
			}
			s.carried(t, want, s.script(s.rsswarden+" run --", c.options...), c.mem, "--no-requeue")
		})
	}
}

// TestSlurmSid is [TestSlurm2411] with the newest Slurm and the newest Python that Debian has.
func TestSlurmSid(t *testing.T) {
	accountingsOn(t, debian.Sid, modes2411[:wardentest.Few(len(modes2411), 1)])
}

// TestSlurmSidTorch trains with the newest PyTorch that Debian has in a job of its Slurm.
func TestSlurmSidTorch(t *testing.T) { trainingsOn(t, debian.Sid) }

// TestSlurmSidRequeue is [TestRequeue] with the newest Slurm that Debian has.
func TestSlurmSidRequeue(t *testing.T) {
	wardentest.Long(t)
	requeueOn(t, debian.Sid, slurmtest.Linux)
}

// TestSlurmJobSum: from 26.05.3 on slurmd cancels a job whose steps on a node have more
// than its memory together, though none has more than its own limit. A training that gives
// pages back completes beside another step. For one that leaks, the summary names Slurm,
// and it completes with the memory that is advised.
func TestSlurmJobSum(t *testing.T) {
	t.Parallel()
	s := trainStandOn(t, slurmtest.Linux, slurmtest.Options{Suite: debian.Sid, CPUs: 4, RealMemory: 20000, Conf: "SlurmdTimeout=6"})
	grow := python + " " + s.Install(t, "testdata/jobs/growslowly.py")
	// The second step runs until the first ends, which ends the job.
	beside := func(mib int, command string) string {
		return fmt.Sprintf("srun --overlap -n1 %s %d 600 0.05 & exec %s", grow, mib, command)
	}

	t.Run("training", func(t *testing.T) {
		options := []string{"--persistent", "--workers", "1", "--epochs", "2"}
		want := s.reference(t, options...)
		mem := memory(3000, 2150)
		if bare := s.Submit(t, beside(1200, s.training(append(options, "--epochs", "20")...)), mem, "--no-requeue").Wait(t); bare.State != "CANCELLED" {
			t.Errorf("bare: %s %d:%d, want CANCELLED: the test proves nothing\n%s", bare.State, bare.ExitCode, bare.Signal, bare.Stderr)
		}
		got := s.carried(t, want, beside(1200, s.rsswarden+" run -- "+s.training(options...)), mem, "--no-requeue")
		wardentest.Says(t, wardentest.Said(got.Stderr), "Slurm cancels the job at summed RSS, all steps of the job on this node")
	})

	t.Run("leak", func(t *testing.T) {
		script := "export XDG_STATE_HOME=$PWD XDG_CACHE_HOME=$PWD; echo -n $SLURM_JOB_SLUID >sluid\n" + beside(200, s.rsswarden+" run -- "+grow+" 300 5 0.5")
		run := s.Submit(t, script, "--mem=400", "--no-requeue")
		got := run.Wait(t)
		t.Logf("%s %d:%d\n%s", got.State, got.ExitCode, got.Signal, wardentest.Said(got.Stderr))
		if got.State != "CANCELLED" {
			t.Fatalf("%s %d:%d, want CANCELLED: the test proves nothing\n%s", got.State, got.ExitCode, got.Signal, got.Stderr)
		}
		advice := regexp.MustCompile(`(?s)out of memory: Slurm killed the job.*next #SBATCH --mem=(\w+) `).FindStringSubmatch(wardentest.Said(got.Stderr))
		if advice == nil {
			t.Fatalf("another summary:\n%s", wardentest.Said(got.Stderr))
		}
		sluid := wardentest.ReadFile(t, run.Dir+"/sluid")
		out := s.Do(t, "env", "XDG_STATE_HOME="+run.Dir, "XDG_CACHE_HOME="+run.Dir, s.rsswarden, "report", "--json", string(sluid))
		var r analysis.Result
		if err := json.Unmarshal([]byte(out.Stdout), &r); err != nil {
			t.Fatalf("report: %v\n%s%s", err, out.Stdout, out.Stderr)
		}
		if r.Cause != event.CauseOverKill || !strings.Contains(r.Verdict, "cancelled by slurmd (OverMemoryKill): the steps of the job on this node had ") {
			t.Errorf("report: %s, %s", r.Cause, r.Verdict)
		}
		if again := s.Submit(t, script, "--mem="+advice[1], "--no-requeue").Wait(t); again.State != "COMPLETED" {
			t.Errorf("with --mem=%s: %s %d:%d\n%s", advice[1], again.State, again.ExitCode, again.Signal, again.Stderr)
		}
	})
}

// TestPools has jobs whose pools of workers keep something of each task: Slurm or the kernel
// kills them bare, and wrapped they end with the same results.
func TestPools(t *testing.T) {
	t.Parallel()
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		for _, pool := range []string{"Pool --start fork", "ProcessPoolExecutor --start spawn"} {
			t.Run(fmt.Sprintf("%v/%s", mode, strings.Fields(pool)[0]), func(t *testing.T) {
				if (mode == slurmtest.Cgroup) == strings.HasPrefix(pool, "Pool") {
					wardentest.Long(t)
				}
				t.Parallel()
				c, warden := cluster(t, mode)
				line := python + " " + c.Install(t, "../../../../examples/pools/tokens.py") + " --tasks 1500 --pool " + pool
				got := c.Do(t, "/bin/sh", "-c", line+" --keep 0 --ms 1")
				want := wardentest.Checksum(got.Stdout)
				if got.Code != 0 || want == "none" {
					t.Fatalf("the run without a limit failed: %+v", got)
				}
				// A Pool that lost a worker to the kernel waits for its result for ever.
				if bare := c.Submit(t, "exec timeout 60 "+line, "--mem=600", "--no-requeue").Wait(t); bare.State == "COMPLETED" {
					t.Errorf("bare: %s: the test proves nothing", bare.State)
				}
				for range wardentest.Few(20, 1) {
					s := stand{Cluster: c, rsswarden: warden}
					run := c.Submit(t, "exec "+warden+" run --events $PWD/events -- "+line, "--mem=600", "--no-requeue")
					s.completed(t, want, run.Wait(t))
					n := 0
					for _, e := range wardentest.Events(t, filepath.Join(run.Dir, "events"))[event.NameLoader] {
						if e["what"] == string(event.LoaderRecycled) {
							n++
						}
					}
					if n < 3 {
						t.Errorf("%d workers recycled", n)
					}
				}
			})
		}
	}
}
