package slurm

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

// ready waits until the job says that it works, and until the time of its end is
// in the events: Slurm is asked for it some seconds after the start.
func (d *deathbed) ready(t *testing.T) {
	t.Helper()
	d.run.Until(t, time.Minute, func(r slurmtest.Result) bool {
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
	d.run.Until(t, time.Minute, func(r slurmtest.Result) bool {
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
	d.run.Until(t, time.Minute, func(r slurmtest.Result) bool {
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
	c, warden := cluster(t, slurmtest.Linux)
	job := c.Install(t, "testdata/jobs/die.py")
	deaths := []dying{
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
			cause: event.CauseCrash, says: `the command failed by itself: exit status 1 .*no limit was near`,
		},
		{
			name: "segmentation fault", job: "segv 2",
			cause: event.CauseCrash, says: `the command failed by itself: SIGSEGV`,
		},
		{
			name: "all killed at once", job: "idle", meet: killAll,
			cause: event.CauseKilled, alone: event.CauseUnknown, says: `.`,
		},
		{
			name: "every watcher killed", job: "fail 15", meet: killWatchers,
			cause: event.CauseCrash, alone: event.CauseUnknown, says: `the job failed after the record ends|or rsswarden's watcher alone`,
		},
		{
			name: "watcher killed", job: "fail 15", meet: killWatcher,
			cause: event.CauseCrash, says: `the command failed by itself: exit status 1`,
		},
	}
	var beds []*deathbed
	for i := range deaths {
		beds = append(beds, deaths[i].submit(t, c, warden, job))
	}
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
	c, warden := cluster(t, slurmtest.Cgroup)
	job := c.Install(t, "testdata/jobs/die.py")
	deaths := []dying{
		{
			name: "kernel oom", job: "grow", wrap: "exec WARDEN run --",
			cause: event.CauseKernelOOM, says: `killed by the kernel: cgroup \S+ \(the job's (--mem|limit), 300M\) .*\S+ of 300 MiB could not be reclaimed`,
		},
		{
			name: "kernel oom of a worker", job: "worker", wrap: "exec WARDEN run --",
			cause: event.CauseKernelOOM, says: `OOM killer ended one of its processes: cgroup .* of 300 MiB could not be reclaimed .*the command then ended with exit status 1`,
		},
	}
	var beds []*deathbed
	for i := range deaths {
		beds = append(beds, deaths[i].submit(t, c, warden, job))
	}
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
		job.Until(t, time.Minute, func(slurmtest.Result) bool {
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
