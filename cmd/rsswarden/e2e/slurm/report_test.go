package slurm

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// dying is one way for a job to die.
type dying struct {
	name string
	job  string   // arguments of testdata/jobs/die.py
	args []string // of sbatch
	wrap string   // how the script starts the command, "exec WARDEN run --record …" if empty
	meet func(*testing.T, *deathbed)
	// cause is what a report says from the record, the journal and Slurm's word.
	cause event.Cause
	// alone is the same without Slurm's word, where that is less.
	alone event.Cause
	// says is what the first line has, whatever it is made from.
	says string
	// journal is what it has from the journal alone, if that is less.
	journal string
}

// deathbed is a job that is to die.
type deathbed struct {
	*dying
	c      *slurmtest.Cluster
	run    *slurmtest.JobRun
	warden string
	killed time.Time // when meet killed something
}

// submit starts the job. What it leaves of itself is in its own folder.
func (d *dying) submit(t *testing.T, c *slurmtest.Cluster, warden, job string) *deathbed {
	t.Helper()
	wrap := d.wrap
	if wrap == "" {
		wrap = "exec WARDEN run --record $PWD/records --events $PWD/events --"
	}
	wrap = strings.ReplaceAll(wrap, "WARDEN", warden)
	script := "export RSSWARDEN_RUNTIME=$PWD\n" + wrap + " " + python + " " + job + " " + d.job
	args := append([]string{"--mem=300", "--no-requeue"}, d.args...)
	return &deathbed{dying: d, c: c, run: c.Submit(t, script, args...), warden: warden}
}

// submitAll starts the jobs, each of which dies in one way, in that mode.
func submitAll(t *testing.T, mode slurmtest.Mode, deaths []dying) (beds []*deathbed) {
	t.Helper()
	c, warden := cluster(t, mode)
	job := c.Install(t, "testdata/jobs/die.py")
	for i := range deaths {
		beds = append(beds, deaths[i].submit(t, c, warden, job))
	}
	return beds
}

// ready waits until the job says that it works, and until the time of its end is
// in the events: Slurm is asked for it some seconds after the start.
func (d *deathbed) ready(t *testing.T) {
	t.Helper()
	d.run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("%s: the job ended: %s\n%s", d.name, r.State, r.Stderr)
		}
		b, _ := os.ReadFile(filepath.Join(d.run.Dir, "events"))
		return strings.Contains(r.Stdout, "ready\n") && bytes.Contains(b, []byte(`"limit":"time"`))
	})
}

// report runs the command as the user does, in the directory that the job was
// submitted from.
func (d *deathbed) report(t *testing.T, args ...string) string {
	t.Helper()
	cmd := d.c.Command(t.Context(), d.warden, append([]string{"report", d.run.ID}, args...)...)
	cmd.Env = append(cmd.Env, "RSSWARDEN_RUNTIME="+d.run.Dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("report %v: %v %s", args, err, stderr.String())
	}
	return string(out)
}

// read is the report as a program sees it.
func (d *deathbed) read(t *testing.T, args ...string) *analysis.Result {
	t.Helper()
	var r analysis.Result
	text := d.report(t, append([]string{"--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if len(r.Runs) != 1 {
		t.Fatalf("%d runs are told of, want 1:\n%s", len(r.Runs), text)
	}
	return &r
}

// onOneLine is the text of a report as one line.
func onOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// check asks for the report from all there is, without Slurm's word, and from
// the journal alone.
func (d *deathbed) check(t *testing.T) {
	t.Helper()
	got := d.run.Wait(t)
	t.Logf("Slurm: %s %s %d:%d after %s", got.State, got.Reason, got.ExitCode, got.Signal, got.Fields["RunTime"])
	all := d.read(t)
	d.judge(t, "all", all, d.report(t), d.cause, d.says)
	if all.Slurm == nil || all.Slurm.State != got.State {
		t.Errorf("Slurm's word in the report: %+v, want state %s", all.Slurm, got.State)
	}
	alone := d.cause
	if d.alone != "" {
		alone = d.alone
	}
	d.judge(t, "without Slurm", d.read(t, "--no-slurm"), d.report(t, "--no-slurm"), alone, d.says)
	if all.Runs[0].JournalOnly {
		t.Fatalf("only the journal was read: %v", all.Runs[0].Sources)
	}
	for _, source := range all.Runs[0].Sources {
		if info, err := os.Stat(source); err == nil && info.IsDir() {
			wardentest.NoError(t, os.RemoveAll(source))
		}
	}
	says := d.says
	if d.journal != "" {
		says = d.journal
	}
	rest := d.read(t, "--no-slurm")
	d.judge(t, "journal alone", rest, d.report(t, "--no-slurm"), alone, says)
	if !rest.Runs[0].JournalOnly {
		t.Errorf("the record is still read: %v", rest.Runs[0].Sources)
	}
}

func (d *deathbed) judge(t *testing.T, from string, r *analysis.Result, text string, cause event.Cause, says string) {
	t.Helper()
	first := onOneLine(text)
	t.Logf("%s: %s, %s: %s", from, r.Cause, r.Certainty, first)
	if r.Cause != cause {
		t.Errorf("%s: cause %q, want %q", from, r.Cause, cause)
	}
	if !regexp.MustCompile(says).MatchString(first) {
		t.Errorf("%s: %q does not say %q", from, first, says)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// scancel cancels a job that works.
func scancel(t *testing.T, d *deathbed) {
	t.Helper()
	d.ready(t)
	d.c.Cancel(t, d.run.ID)
}

// killAll kills every process of the step at once, as a node that goes down and
// slurmstepd do.
func killAll(t *testing.T, d *deathbed) {
	t.Helper()
	d.ready(t)
	d.settle(t)
	pids := d.run.Processes("batch")
	// A watcher that outlives the holder by a moment notes that it did.
	slices.SortStableFunc(pids, func(a, b int) int {
		if wardentest.IsWatcher(a) == wardentest.IsWatcher(b) {
			return 0
		} else if wardentest.IsWatcher(a) {
			return -1
		}
		return 1
	})
	d.killed = time.Now()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
	if len(pids) < 3 {
		t.Fatalf("%s: %d processes were killed, want holder, watcher and command", d.name, len(pids))
	}
}

// killWatcher kills the watcher alone, and waits for the next.
func killWatcher(t *testing.T, d *deathbed) {
	t.Helper()
	d.ready(t)
	d.settle(t)
	for _, pid := range d.run.Processes("batch") {
		if wardentest.IsWatcher(pid) {
			d.killed = time.Now()
			wardentest.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	if d.killed.IsZero() {
		t.Fatal("no watcher was found")
	}
}

// killWatchers kills the watcher as often as one is started.
func killWatchers(t *testing.T, d *deathbed) {
	t.Helper()
	killWatcher(t, d)
	d.run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("%s: the job ended: %s\n%s", d.name, r.State, r.Stderr)
		}
		for _, pid := range d.run.Processes("batch") {
			if wardentest.IsWatcher(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return strings.Contains(r.Stderr, "the command runs on unwatched")
	})
}

// settle waits until the record has some samples.
func (d *deathbed) settle(t *testing.T) {
	t.Helper()
	d.run.Until(t, rsstest.Patience, func(r slurmtest.Result) bool {
		if r.Over() {
			t.Fatalf("%s: the job ended: %s\n%s", d.name, r.State, r.Stderr)
		}
		return d.read(t, "--no-slurm").Runs[0].Samples >= 4
	})
}

// recordGap is the most that a SIGKILL may cost: the pause between two samples,
// a second, and what a busy machine is late by.
const recordGap = 1500 * time.Millisecond

// TestDeathsInSlurm: jobs of a real Slurm die in every way there is, and the
// report names it, from the record and from the journal alone.
func TestDeathsInSlurm(t *testing.T) {
	t.Parallel()
	beds := submitAll(t, slurmtest.Linux, []dying{
		{
			name: "time limit", job: "idle", args: []string{"-t", "1"}, wrap: "exec WARDEN run --",
			cause: event.CauseTimeLimit, says: `ended by Slurm at the job's time limit: SIGTERM reached it at`,
		},
		{
			name: "time limit, SIGTERM ignored", job: "deaf", args: []string{"-t", "1"}, wrap: "exec WARDEN run --",
			cause: event.CauseTimeLimit, says: `ended by Slurm at the job's time limit: SIGTERM reached it at`,
		},
		{
			name: "time limit, below a shell", job: "idle", args: []string{"-t", "1"}, wrap: "WARDEN run --",
			cause: event.CauseTimeLimit, says: `ended by Slurm at the job's time limit`,
		},
		{
			name: "overmemory", job: "grow", wrap: "exec WARDEN run --",
			cause: event.CauseOverKill, says: `killed by slurmstepd \(OverMemoryKill\): the summed RSS of step \S+ was \S+ of 300 MiB`,
		},
		{
			name: "scancel", job: "idle", meet: scancel,
			cause: event.CauseCancelled, says: `cancelled: SIGTERM reached it at .* before the job's end; it ended with SIGTERM`,
		},
		{
			name: "scancel, SIGTERM ignored", job: "deaf", meet: scancel,
			cause: event.CauseCancelled, says: `cancelled: SIGTERM reached it at .* before the job's end`,
		},
		{
			name: "scancel, below a shell", job: "idle", meet: scancel, wrap: "WARDEN run --record $PWD/records --events $PWD/events --",
			cause: event.CauseCancelled, alone: event.CauseUnknown, says: `.`,
		},
		{
			name: "maps", job: "maps 8",
			cause: event.CauseMaps, says: `out of memory mappings: .* of the \S+ that vm.max_map_count allows .* the command ended with exit status 1`,
		},
		{
			name: "crash", job: "fail 2",
			cause: event.CauseCrash, says: `the command failed: exit status 1 .*no limit was near`,
		},
		{
			name: "segmentation fault", job: "segv 2",
			cause: event.CauseCrash, says: `the command failed: SIGSEGV`,
		},
		{
			name: "all killed at once", job: "idle", meet: killAll,
			cause: event.CauseKilled, alone: event.CauseUnknown, says: `.`,
		},
		{
			name: "every watcher killed", job: "fail 45", meet: killWatchers,
			cause: event.CauseCrash, alone: event.CauseUnknown, says: `the job failed after the record ends|or rsswarden's watcher alone`,
		},
		{
			name: "watcher killed", job: "fail 45", meet: killWatcher,
			cause: event.CauseCrash, says: `the command failed: exit status 1`,
		},
	})
	for _, d := range beds {
		if d.meet != nil {
			d.meet(t, d)
		}
	}
	for i := range beds {
		d := beds[len(beds)-1-i] // those that take a minute last
		t.Run(d.name, func(t *testing.T) {
			if !d.killed.IsZero() {
				d.run.Wait(t)
				d.lastSample(t)
			}
			d.check(t)
		})
	}
}

// lastSample wants the record to go on until a moment before the kill.
func (d *deathbed) lastSample(t *testing.T) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(d.report(t, "--csv"))).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	var last time.Time
	pause := time.Second // of a machine in time; how late this one is, the samples before tell
	for _, row := range rows[1:] {
		at, err := time.Parse(time.RFC3339Nano, row[0])
		wardentest.NoError(t, err)
		if at.Before(d.killed) && at.After(last) {
			if !last.IsZero() {
				pause = max(pause, at.Sub(last))
			}
			last = at
		}
	}
	gap := d.killed.Sub(last)
	t.Logf("the last sample is %v older than the kill; they were %v apart at most", gap.Round(time.Millisecond), pause.Round(time.Millisecond))
	if most := pause + recordGap - time.Second; gap > most {
		t.Errorf("the last sample is %v older than the kill, want at most %v", gap, most)
	}
}

// TestDeathsInCgroups: the kernel kills at the job's limit.
func TestDeathsInCgroups(t *testing.T) {
	t.Parallel()
	beds := submitAll(t, slurmtest.Cgroup, []dying{
		{
			name: "kernel oom", job: "grow", wrap: "exec WARDEN run --",
			cause: event.CauseKernelOOM, says: `killed by the kernel: cgroup \S+ \(the job's (--mem|limit), 300M\) .*\S+ of 300 MiB could not be reclaimed`,
		},
		{
			name: "kernel oom of a worker", job: "worker", wrap: "exec WARDEN run --",
			cause: event.CauseKernelOOM, says: `OOM killer ended one of its processes: cgroup .* of 300 MiB could not be reclaimed .*the command then ended with exit status 1`,
		},
	})
	for _, d := range beds {
		t.Run(d.name, d.check)
	}
}

// TestReportWithoutRecord: of a job without a record the report says what Slurm does.
func TestReportWithoutRecord(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := c.Submit(t, "exit 3")
	job.Wait(t)
	// Jobs of other clusters on this machine may have that number.
	out := c.Do(t, "env", "XDG_STATE_HOME="+c.Dir(), "TMPDIR="+c.Dir(), "RSSWARDEN_RUNTIME="+c.Dir(), warden, "report", job.ID)
	for _, want := range []string{"✖ command failed, exit 3: Slurm says FAILED", job.ID, "exec rsswarden run -- ", "scontrol show job. No rsswarden record of this job in"} {
		if out.Code != 0 || out.Stderr != "" || !strings.Contains(out.Stdout, want) {
			t.Errorf("status %d, no %q in\n%s%s", out.Code, want, out.Stdout, out.Stderr)
		}
	}
}

// TestReportOfArrayTask: a task of an array is found by the name it has for its
// user, which is not the number that it runs under.
func TestReportOfArrayTask(t *testing.T) {
	t.Parallel()
	c, warden := cluster(t, slurmtest.Linux)
	job := c.Submit(t, "exec "+warden+" run --limit 1G --record "+c.Dir()+"/array -- sh -c 'exit $SLURM_ARRAY_TASK_ID'", "--array=4-5")
	for _, task := range []string{"4", "5"} {
		name := job.ID + "_" + task
		job.Until(t, rsstest.Patience, func(slurmtest.Result) bool {
			out := c.Do(t, "scontrol", "show", "job", name, "-o")
			return strings.Contains(out.Stdout, "ExitCode="+task+":0") && strings.Contains(out.Stdout, "JobState=FAILED")
		})
		cmd := c.Command(t.Context(), warden, "report", name)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(onOneLine(string(out)), "exit status "+task) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

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
		t.Run(string(mode), func(t *testing.T) {
			if mode == slurmtest.Cgroup {
				wardentest.Long(t)
			}
			t.Parallel()
			advised(t, mode, 1)
		})
	}
}
