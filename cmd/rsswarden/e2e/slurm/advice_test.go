package slurm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// advisedJob is a job that is run twice: as its user guessed, and as it was
// advised.
type advisedJob struct {
	name string
	// command is its command line for a seed.
	command func(seed uint32) string
}

// shaped is a job of testdata/jobs/shape.py.
func shaped(script, shape string, size int) advisedJob {
	return advisedJob{
		fmt.Sprintf("%s, %d MiB", shape, size),
		func(seed uint32) string { return fmt.Sprintf("%s %s %s %d %d", python, script, shape, size, seed) },
	}
}

// advisedJobs are ten jobs of differing size and shape, those first that need
// nothing but Python.
func advisedJobs(t *testing.T, c *slurmtest.Cluster, n int) []advisedJob {
	t.Helper()
	script := c.Install(t, "testdata/jobs/shape.py")
	jobs := []advisedJob{
		shaped(script, "ramp", 700), shaped(script, "plateau", 30), shaped(script, "sawtooth", 450), shaped(script, "spike", 900),
		shaped(script, "stairs", 1200), shaped(script, "pool", 800), shaped(script, "cache", 350), shaped(script, "heap", 250),
	}
	if n <= len(jobs) {
		return jobs[:n]
	}
	wardentest.NeedTorch(t)
	load := c.Install(t, wardentest.Program(t, wardentest.LMDBLoad))
	loading := load + " -records 250 -growth 100 -epochs 2 -data " + filepath.Join(c.Dir(), "load.lmdb")
	train := c.Install(t, "../../../../examples/train/train.py")
	c.Install(t, "../../../../examples/train/data.py")
	training := python + " " + train + " --records 4000 --record-bytes 25000 --persistent --workers 2 --epochs 6 --leak-trainer 100 --data " + filepath.Join(c.Dir(), "train.lmdb")
	for _, make := range []string{loading + " -create", training + " --epochs 0"} {
		if got := c.Do(t, "sh", "-c", make); got.Code != 0 {
			t.Fatalf("cannot make the data: %+v", got)
		}
	}
	return append(jobs,
		advisedJob{"lmdbload, 4 workers", func(seed uint32) string { return fmt.Sprintf("%s -seed %d", loading, seed) }},
		advisedJob{"torch, 2 workers", func(seed uint32) string {
			// As a user trains on more or less data, within 3 %.
			return fmt.Sprintf("%s --seed %d --epoch-fraction %.3f", training, seed, 0.97+0.03*float64(seed%1000)/1000)
		}},
	)
}

// advisedRun is one run of such a job.
type advisedRun struct {
	run    *slurmtest.JobRun
	report analysis.Result
	end    slurmtest.Result
}

func (j advisedJob) submit(t *testing.T, c *slurmtest.Cluster, warden, mem string, seed uint32) *advisedRun {
	t.Helper()
	script := fmt.Sprintf("#!/bin/bash\n%s\nexport RSSWARDEN_RUNTIME=$PWD\nexec %s run --record $PWD/records -- %s", mem, warden, j.command(seed))
	return &advisedRun{run: c.Submit(t, script, "--no-requeue")}
}

// finish waits for the end and reads the report.
func (r *advisedRun) finish(t *testing.T, c *slurmtest.Cluster, warden string) {
	t.Helper()
	r.end = r.run.Wait(t)
	got := c.Do(t, warden, "report", "--json", filepath.Join(r.run.Dir, "records"))
	if got.Code != 0 || json.Unmarshal([]byte(got.Stdout), &r.report) != nil {
		t.Fatalf("report: %+v\n%s", got, r.end.Stderr)
	}
}

// peak is the most that the enforcer compared with the job's limit.
func (r *advisedRun) peak(enforced event.LimitName) (most rss.Bytes) {
	for i := range r.report.Limits {
		if l := &r.report.Limits[i]; l.Name == enforced {
			most = max(most, l.Used)
		}
	}
	return most
}

// advice is the line on --mem of its report.
func (r *advisedRun) advice() (line analysis.AdviceLine, ok bool) {
	i := slices.IndexFunc(r.report.Advice, func(l analysis.AdviceLine) bool { return l.Mem > 0 })
	if i < 0 {
		return line, false
	}
	return r.report.Advice[i], true
}

// survived says that the job ended well, and that nothing was killed.
func (r *advisedRun) survived() bool {
	return r.end.State == "COMPLETED" && r.end.ExitCode == 0 && r.end.Signal == 0 && r.report.Cause == event.CauseEnded &&
		!strings.Contains(r.end.Stderr, "OOM killer ended")
}

// enforced is the limit that ends a job in the modes of this test.
var enforced = map[slurmtest.Mode]event.LimitName{slurmtest.Linux: event.LimitSlurm, slurmtest.Cgroup: event.LimitCgroup}

// generous is what is asked for first.
const generous = "#SBATCH --mem=3800M"

// wantedWaste is the largest part of an advised size that may stay unused, as a median of
// the jobs.
const wantedWaste = 0.15

// advised runs so many jobs twice, the second time with exactly the line that the
// report of the first advises.
//
// One job alone has the same seed twice: what two runs of it differ by is for the
// median of several.
func advised(t *testing.T, mode slurmtest.Mode, n int) {
	c, warden := cluster(t, mode)
	jobs := advisedJobs(t, c, n)
	first, again := make([]*advisedRun, n), make([]*advisedRun, n)
	seed := rand.Uint32
	if n == 1 {
		same := rand.Uint32()
		seed = func() uint32 { return same }
	}
	for i, j := range jobs {
		first[i] = j.submit(t, c, warden, generous, seed())
	}
	for i, j := range jobs {
		first[i].finish(t, c, warden)
		line, ok := first[i].advice()
		if !ok || !first[i].survived() {
			t.Fatalf("%s: %s with %s, advice %+v\n%s", j.name, first[i].end.State, generous, first[i].report.Advice, first[i].end.Stderr)
		}
		again[i] = j.submit(t, c, warden, line.Line, seed())
	}
	var wastes []float64
	var table strings.Builder
	fmt.Fprintf(&table, "%-20s %10s %10s %10s %7s  %s\n", string(mode), "first peak", "advised", "rerun peak", "waste", "first, rerun")
	for i, j := range jobs {
		again[i].finish(t, c, warden)
		line, _ := first[i].advice()
		peak := again[i].peak(enforced[mode])
		waste := 1 - float64(peak)/float64(line.Mem)
		wastes = append(wastes, waste)
		fmt.Fprintf(&table, "%-20s %10v %10v %10v %5.1f %%  %.0f s, %.0f s %s, %s\n", j.name, first[i].peak(enforced[mode]), line.Mem, peak, 100*waste,
			first[i].report.Duration, again[i].report.Duration, again[i].end.State, again[i].report.Outcome)
		if got := "#SBATCH --mem=" + strconv.FormatUint(uint64(line.Mem/rss.MiB), 10) + "M"; line.Line != got && line.Line != "#SBATCH --mem="+strconv.FormatUint(uint64(line.Mem/rss.GiB), 10)+"G" {
			t.Errorf("%s: line %q for %v", j.name, line.Line, line.Mem)
		}
		if !again[i].survived() {
			t.Errorf("%s: with %q %s: %s\n%s", j.name, line.Line, again[i].end.State, again[i].report.Verdict, again[i].end.Stderr)
		}
	}
	slices.Sort(wastes)
	median := (wastes[(n-1)/2] + wastes[n/2]) / 2
	t.Logf("median waste %.1f %%\n%s", 100*median, table.String())
	if median > wantedWaste {
		t.Errorf("median waste %.1f %%, want at most %.0f %%", 100*median, 100*wantedWaste)
	}
}

// TestMemAdvice: a job that is run again with what its report advises survives,
// and little of it stays unused.
func TestMemAdvice(t *testing.T) {
	t.Parallel()
	for _, mode := range []slurmtest.Mode{slurmtest.Linux, slurmtest.Cgroup} {
		t.Run(string(mode), func(t *testing.T) { t.Parallel(); advised(t, mode, 1) })
	}
}
