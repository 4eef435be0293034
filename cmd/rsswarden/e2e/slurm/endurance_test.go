//go:build endurance

package slurm

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// again runs a wrapped job n times and counts those that end as they should.
func (s stand) again(t *testing.T, n int, want, script string, check func(slurmtest.Result) error, args ...string) {
	t.Helper()
	good := 0
	for i := range n {
		got := s.Submit(t, script, args...).Wait(t)
		err := check(got)
		if got.State != "COMPLETED" || wardentest.Checksum(got.Stdout) != want {
			err = fmt.Errorf("%s %d:%d, checksum %s: %v", got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), err)
		}
		if err != nil {
			t.Errorf("run %d: %v\n%s", i+1, err, got.Stderr)
			continue
		}
		good++
	}
	t.Logf("%d of %d COMPLETED 0:0 with checksum %s", good, n, want)
}

func fine(slurmtest.Result) error { return nil }

func TestEnduranceSlurmLinux(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	for _, shape := range []string{"--persistent", "--endless"} {
		t.Run(shape, func(t *testing.T) {
			options := []string{shape, "--workers", "4", "--epochs", "4"}
			s.again(t, wardentest.Times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), fine, memory(3000, 1700))
		})
	}
}

func TestEnduranceSlurmCgroup(t *testing.T) {
	s := trainStand(t, slurmtest.Cgroup)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4", "--leak-worker", "60"}
	// oom_kill of a job's cgroup is gone with it; Slurm says OUT_OF_MEMORY for
	// one, and our summary names it.
	check := func(r slurmtest.Result) error {
		if strings.Contains(r.Stderr, "OOM killer ended") {
			return fmt.Errorf("an OOM kill")
		}
		return nil
	}
	s.again(t, wardentest.Times(20), s.reference(t, options...), s.script(s.rsswarden+" run --", options...), check, memory(1500, 800), "--no-requeue")
}

// TestEnduranceWatcherKilled kills the watcher at random moments of a job that
// nothing limits.
func TestEnduranceWatcherKilled(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	options := []string{"--persistent", "--workers", "4", "--epochs", "4"}
	want := s.reference(t, options...)
	n, good, struck := wardentest.Times(50), 0, 0
	for i := range n {
		run := s.Submit(t, s.script(s.rsswarden+" run --", options...), "--mem=15000")
		run.Running(t)
		stop, count := make(chan struct{}), make(chan int)
		go func() {
			kills := 0
			defer func() { count <- kills }()
			for {
				select {
				case <-stop:
					return
				case <-time.After(rand.N(6 * time.Second)):
				}
				for _, pid := range run.Processes("batch") {
					if wardentest.IsWatcher(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		}()
		got := run.Wait(t)
		close(stop)
		struck += <-count
		if got.State != "COMPLETED" || got.ExitCode != 0 || wardentest.Checksum(got.Stdout) != want {
			t.Errorf("run %d: %s %d:%d, checksum %s, want %s\n%s", i+1, got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), want, got.Stderr)
			continue
		}
		good++
	}
	t.Logf("%d of %d with the right status and checksum; %d watchers killed", good, n, struck)
	if struck < n/2 {
		t.Errorf("only %d watchers were killed: the test proves little", struck)
	}
}

// TestEnduranceCheckpoint: a trainer that leaks is asked in time, every time.
func TestEnduranceCheckpoint(t *testing.T) {
	for name, mode := range map[string]slurmtest.Mode{"linux": slurmtest.Linux, "cgroup": slurmtest.Cgroup} {
		t.Run(name, func(t *testing.T) {
			s := leakyStand(t, mode)
			s.bare(t)
			n, good := wardentest.Times(20), 0
			for i := range n {
				checkpoint := filepath.Join(s.Dir(), fmt.Sprintf("checkpoint-%s-%d", name, i))
				done, got, err := s.turn(t, checkpoint)
				if done || err != nil {
					t.Errorf("run %d: done %v, %v\n%s", i+1, done, err, got.Stderr)
					continue
				}
				good++
			}
			t.Logf("%d of %d asked by USR2 once, with a checkpoint and exit status %d", good, n, askedStatus)
		})
	}
}

// TestMemAdviceEndurance: the same for ten jobs in each mode.
func TestMemAdviceEndurance(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) { advised(t, mode, 10) })
	}
}

// TestEnduranceTwoNodes is TestTwoNodesFourRanks ten times, and as often without a kill.
func TestEnduranceTwoNodes(t *testing.T) {
	s := rankNodes(t)
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { s.train(t, i%2 == 1) })
	}
}

// TestEnduranceSlurmPtrace: jobs that no hook reaches, under a limit that kills
// them bare.
func TestEnduranceSlurmPtrace(t *testing.T) {
	for name, build := range map[string]func(*testing.T) silent{
		"python -I": func(t *testing.T) silent { return isolated(t, "--persistent") },
		"lmdbload":  compiled,
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t)
			s.again(t, wardentest.Times(20), s.want, s.wrapped(""), fine, s.args...)
		})
	}
}

// TestEnduranceRequeue: 5 of 5 in each of two modes.
func TestEnduranceRequeue(t *testing.T) {
	for _, mode := range []slurmtest.Mode{slurmtest.Cgroup, slurmtest.Linux} {
		t.Run(string(mode), func(t *testing.T) {
			s := newRequeueStand(t, mode, "")
			n, good := wardentest.Times(5), 0
			for i := range n {
				then := []string{"go-on", "exit"}[i%2]
				run, got, took := s.whole(t, s.script("exec", requeueOptions, then))
				told, err := carriedOn(run, got)
				if err != nil {
					t.Errorf("run %d: %v\n%s%s", i+1, err, got.Stdout, got.Stderr)
					continue
				}
				good++
				t.Logf("run %d: %s after %.0f s; %s", i+1, got.State, took.Seconds(), told)
			}
			t.Logf("%s: %d of %d COMPLETED from the checkpoint", mode, good, n)
		})
	}
}

// TestEnduranceSlurm2411 is every mode by Slurm 24.11, and five runs of the
// trainer by PyTorch 2.6 in each of the two that end most trainings.
func TestEnduranceSlurm2411(t *testing.T) {
	accountingsOn(t, debian.Trixie, slurmtest.Modes)
	for _, c := range newerTrainings {
		t.Run("train, "+string(c.mode), func(t *testing.T) {
			s := trainStandOn(t, c.mode, slurmtest.Options{Suite: debian.Trixie})
			s.again(t, wardentest.Times(5), s.reference(t, c.options...), s.script(s.rsswarden+" run --", c.options...), fine, c.mem, "--no-requeue")
		})
	}
}

// mostRecords is how many full records stay on a node's disk, and those of the last
// youngest, which may be in use.
const (
	mostRecords = 64
	youngest    = 10 * time.Minute
)

// TestEnduranceSoak: a hundred trainings one after the other, each of which its limit kills
// bare, all end as they should, with the data of the first. What a run leaves on the node is
// what the first left, but for its record, of which the newest stay: no process, socket, file
// of shared memory or cgroup of ours is there afterwards.
func TestEnduranceSoak(t *testing.T) {
	s := trainStand(t, slurmtest.Linux)
	options := []string{"--persistent", "--workers", "4", "--epochs", "1"}
	want := s.reference(t, options...)
	place := filepath.Join(s.Dir(), "soak")
	wardentest.NoError(t, os.Mkdir(place, 0o777))
	wardentest.NoError(t, os.Chmod(place, 0o777))
	script := s.script(s.rsswarden+" run --at 50%:warn --", options...)
	var first, now leftover
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at first: %+v\nat last: %+v\nsince then: %q", first, now, now.beyond(&first))
		}
	})
	n, good := wardentest.Times(100), 0
	var ended []time.Time // one for each good job
	for i := range n {
		got := s.Submit(t, script, "--mem=3000", "--export=ALL,RSSWARDEN_RUNTIME="+place).Wait(t)
		if got.State != "COMPLETED" || got.ExitCode != 0 || wardentest.Checksum(got.Stdout) != want {
			t.Errorf("job %d: %s %d:%d, checksum %s, want %s\n%s", i+1, got.State, got.ExitCode, got.Signal, wardentest.Checksum(got.Stdout), want, got.Stderr)
			continue
		}
		good++
		wardentest.Until(t, "what a run started has ended", func() bool {
			now = leftBy(t, place)
			return now.processes == 0 && (i == 0 || now.files <= first.files && len(now.beyond(&first)) == 0)
		})
		if i == 0 {
			first = now
		}
		ended = append(ended, time.Now())
		young := len(ended) - slices.IndexFunc(ended, func(at time.Time) bool { return time.Since(at) < youngest })
		if now.records < min(len(ended), mostRecords) || now.records > max(young+1, mostRecords) {
			t.Errorf("after job %d: %+v", i+1, now)
		}
		if (i+1)%10 == 0 {
			t.Logf("after job %d: %+v", i+1, now)
		}
	}
	t.Logf("%d of %d COMPLETED, with the data of the run that nothing limits", good, n)
}

// leftover is what is there of ours on the node.
type leftover struct {
	processes int // rsswarden run and their watchers
	files     int // below the place for files of runs, less those of records
	records   int
	node      []string // what is in /dev/shm, and the cgroups of the memory hierarchy, whose ever they are
}

// beyond is what is there on the node that was not at first.
func (l *leftover) beyond(first *leftover) []string {
	return slices.DeleteFunc(slices.Clone(l.node), func(path string) bool { return slices.Contains(first.node, path) })
}

func leftBy(t *testing.T, place string) (l leftover) {
	t.Helper()
	names, err := os.ReadDir("/proc")
	wardentest.NoError(t, err)
	for _, name := range names {
		if _, err := strconv.Atoi(name.Name()); err != nil {
			continue
		}
		// Its environment names the place: others on this machine are not of this test.
		env, err := os.ReadFile("/proc/" + name.Name() + "/environ")
		comm, _ := os.ReadFile("/proc/" + name.Name() + "/comm")
		if c := strings.TrimSpace(string(comm)); err == nil && (c == "rsswarden" || c == "rss-watcher") && strings.Contains(string(env), place) {
			l.processes++
		}
	}
	count := func(dir string, each func(path string, e fs.DirEntry) bool) (n int) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && path != dir && each(path, e) {
				n++
			}
			return nil // what vanishes is not there
		})
		return n
	}
	inRecords := func(path string) bool { return strings.Contains(path, "/records/") }
	l.files = count(place, func(path string, _ fs.DirEntry) bool { return !inRecords(path) })
	l.records = count(place, func(path string, e fs.DirEntry) bool {
		return e.IsDir() && filepath.Base(filepath.Dir(path)) == "records"
	})
	count("/dev/shm", func(path string, _ fs.DirEntry) bool {
		l.node = append(l.node, path)
		return true
	})
	// What lies beside the test's own cgroup is another session's.
	own := wardentest.OwnMemoryCgroup(t)
	count("/sys/fs/cgroup/memory", func(path string, e fs.DirEntry) bool {
		if e.IsDir() && (filepath.Dir(path) != filepath.Dir(own) || path == own) {
			l.node = append(l.node, path)
		}
		return e.IsDir()
	})
	return l
}

// rateModes is the Slurm in which a job's limit is enforced as its spec says.
var rateModes = []struct {
	accounting saveratetest.Accounting
	mode       slurmtest.Mode
}{{saveratetest.SlurmRSS, slurmtest.Linux}, {saveratetest.SlurmPSS, slurmtest.LinuxPss}, {saveratetest.CgroupV1, slurmtest.Cgroup}}

// rateData is the size of the file that jobs map: no spec has a larger one.
const rateData = 2 << 30

// rateFiles puts a spec and, where there is none, the data into a directory.
func rateFiles(t *testing.T, dir string, spec *saveratetest.Spec) (specFile, data string) {
	t.Helper()
	text, err := json.Marshal(spec)
	wardentest.NoError(t, err)
	specFile, data = filepath.Join(dir, fmt.Sprintf("saverate.%d.json", spec.Seed)), filepath.Join(dir, "saverate.data")
	wardentest.NoError(t, os.WriteFile(specFile, text, 0o644))
	f, err := os.OpenFile(data, os.O_CREATE|os.O_WRONLY, 0o644)
	wardentest.NoError(t, err)
	defer f.Close()
	wardentest.NoError(t, f.Truncate(rateData)) // sparse: its pages are in the page cache all the same
	if spec.File > rateData {
		t.Fatalf("seed %d maps %v", spec.Seed, spec.File)
	}
	return specFile, data
}

// rateFlags are what keep the hook out of a job that is to have none.
func rateFlags(spec *saveratetest.Spec) string {
	if spec.Support == saveratetest.None {
		return "-I "
	}
	return ""
}

// rateBase is what a Python with torch has anonymous: no worker makes copies of that.
const rateBase = 113 * rss.MiB

// TestEnduranceSaveRateModel: what a job has when it is run bare without a limit is
// what its spec says, to within 5 % and 24 MiB. It may be less, never more, by what the
// spec takes for its own and the machine shares: by PSS libraries that other processes
// of the node have mapped; and copies of what of the heap is not the job's to touch.
func TestEnduranceSaveRateModel(t *testing.T) {
	wardentest.NeedTorch(t)
	dir := t.TempDir()
	// One of each kind and accounting: mapped, leaked, both, copies, bursts, a trainer that grows.
	for _, seed := range []uint64{2, 4, 9, 10, 11, 13, 28, 30, 33} {
		spec := saveratetest.New(seed, &saveratetest.Real)
		file, data := rateFiles(t, dir, &spec)
		out, errs, err := wardentest.Output(python, "testdata/saverate/job.py", file, data, "--measure")
		if err != nil {
			t.Fatalf("seed %d: %v\n%s%s", seed, err, out, errs)
		}
		var all, pss, anon rss.Bytes
		if _, err := fmt.Sscanf(out, "peaks rss=%d pss=%d anon=%d", &all, &pss, &anon); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		got := map[saveratetest.Accounting]rss.Bytes{saveratetest.SlurmRSS: all, saveratetest.SlurmPSS: pss, saveratetest.CgroupV1: anon}[spec.Accounting] + spec.Beside
		want := spec.Peak()
		t.Logf("seed %d, %s: peak %v, by its spec %v", seed, spec.Accounting, got, want)
		slack := want.Scale(0.05) + 24*rss.MiB
		less := slack + rss.Bytes(spec.Workers)*spec.CopyMost.Sub(spec.Heap.Sub(rateBase))
		if spec.Accounting == saveratetest.SlurmPSS {
			less += spec.Libs
		}
		if got > want+slack || got < want.Sub(less) {
			t.Errorf("seed %d, %s: peak %v, by its spec %v, or %v less", seed, spec.Accounting, got, want, less)
		}
	}
}

// rateJob is one job of the real save rate.
type rateJob struct {
	saveratetest.Label
	bare, wrapped *slurmtest.JobRun
	events        string
}

// TestEnduranceSaveRate is the save rate in a real Slurm with a real PyTorch: jobs
// that fit by the oracle complete, and nothing is done to innocents. Those that are no
// innocents are run bare too, for how many the limit kills. RSSWARDEN_TIMES runs
// fewer.
func TestEnduranceSaveRate(t *testing.T) {
	wardentest.NeedTorch(t)
	var jobs, fits, bareKilled, carried, lost, innocents, touched, budgets int
	for _, m := range rateModes {
		t.Run(string(m.mode), func(t *testing.T) {
			c := slurmtest.Start(t, m.mode, slurmtest.Usual)
			program, script := c.Install(t, binary), c.Install(t, "testdata/saverate/job.py")
			for seed := uint64(1); seed <= uint64(wardentest.Times(int(saveratetest.Real.Seeds))); seed++ {
				spec := saveratetest.New(seed, &saveratetest.Real)
				if spec.Accounting != m.accounting {
					continue
				}
				j := submitRateJob(t, c, &spec, program, script)
				jobs++
				got := j.wrapped.Wait(t)
				completed := got.State == "COMPLETED" && got.ExitCode == 0
				killed := "-"
				if j.bare != nil {
					bare := j.bare.Wait(t)
					if killed = bare.State; bare.State != "COMPLETED" {
						bareKilled++
						if completed && j.Fits {
							carried++
						}
					}
				}
				acted, budget := rateActions(t, j.events)
				t.Logf("%v: bare %s, wrapped %s %d:%d, %d actions, %d workers kept to a budget", j.Label, killed, got.State, got.ExitCode, got.Signal, acted, budget)
				if j.Fits {
					fits++
					if !completed {
						lost++
						t.Errorf("seed %d fits and is %s %d:%d\n%s%s", seed, got.State, got.ExitCode, got.Signal, got.Stdout, got.Stderr)
					}
				}
				if j.Innocent {
					innocents++
					if acted > 0 {
						touched++
						t.Errorf("seed %d is an innocent and was acted upon %d times\n%s", seed, acted, got.Stderr)
					}
					if budget > 0 {
						budgets++
					}
				}
			}
		})
	}
	t.Logf("%d jobs: killed bare %d; of %d that fit killed wrapped %d, carried %d; %d innocents, acted on %d, trimmed by budget %d",
		jobs, bareKilled, fits, lost, carried, innocents, touched, budgets)
}

// submitRateJob submits a job wrapped and, where it is no innocent, bare. Both run at
// once: they sleep between their batches.
func submitRateJob(t *testing.T, c *slurmtest.Cluster, spec *saveratetest.Spec, program, script string) rateJob {
	t.Helper()
	j := rateJob{Label: spec.Label()}
	file, data := rateFiles(t, c.Dir(), spec)
	train := strings.Join([]string{python, rateFlags(spec) + script, file, data}, " ")
	mem := "--mem=" + strconv.FormatUint(uint64(spec.Limit/rss.MiB), 10)
	j.wrapped = c.Submit(t, "exec "+program+" run --record none --events $PWD/events -- "+train, mem, "--no-requeue", "-n1", "-c2")
	j.events = filepath.Join(j.wrapped.Dir, "events")
	if !j.Innocent {
		j.bare = c.Submit(t, "exec "+train, mem, "--no-requeue", "-n1", "-c2")
	}
	return j
}

// rateActions is how often something was done, or tried, and whether workers kept to a
// budget by themselves.
func rateActions(t *testing.T, path string) (acted, budget int) {
	t.Helper()
	all := wardentest.Events(t, path)
	for _, e := range all[event.NameDecision] {
		if e["action"] != string(event.ActionWarn) {
			acted++
		}
	}
	for _, e := range all[event.NameLoader] {
		if e["what"] == string(event.LoaderTrimmed) && e["reason"] == "budget" {
			budget++
		}
	}
	return acted, budget
}
