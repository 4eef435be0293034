package main_test

import (
	"encoding/csv"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/slurm/slurmtest"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
		if isWatcher(a) == isWatcher(b) {
			return 0
		} else if isWatcher(a) {
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
		if isWatcher(pid) {
			d.killed = time.Now()
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
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
			if isWatcher(pid) {
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
	c := slurmtest.Start(t, slurmtest.Linux, slurmtest.Options{CPUs: 16, RealMemory: 20000})
	warden := c.Install(t, binary)
	job := pythonJob(t, c, "die.py", dyingJob)
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
			cause: event.CauseOverKill, says: `killed by slurmstepd \(OverMemoryKill\): the summed RSS of step \S+ was \S+ MiB of 300 MiB`,
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
			cause: event.CauseCrash, alone: event.CauseUnknown, says: `the job failed after the record breaks off|or rsswarden's watcher alone`,
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
		if err != nil {
			t.Fatal(err)
		}
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
	c := slurmtest.Start(t, slurmtest.Cgroup, slurmtest.Options{CPUs: 16, RealMemory: 20000})
	warden := c.Install(t, binary)
	job := pythonJob(t, c, "die.py", dyingJob)
	deaths := []dying{
		{
			name: "kernel oom", job: "grow", wrap: "exec WARDEN run --",
			cause: event.CauseKernelOOM, says: `killed by the kernel: cgroup \S+ \(the job's (--mem|limit), 300M\) .*\S+ MiB of 300 MiB could not be reclaimed`,
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
