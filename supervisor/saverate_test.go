package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/probe/probetest"
	"github.com/rsswarden/rsswarden/supervisor/saveratetest"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// The live watcher beside a made-up job: its processes as files of a made-up /proc, its
// cgroup, Slurm's environment and configuration, the hook's run directory.

const rateStepd = theHolder - 1

// rateStand is the two of them. It is for one goroutine, in a bubble of synctest.
type rateStand struct {
	*stand
	world   *rateWorld
	trainer rss.ProcID
	written map[int]rsstest.Process
	files   map[string]*rateFile
	wrote   bool                                                  // something, since the last look
	seen    uint64                                                // full looks when ctl was read last
	ctl     []byte                                                // as it was read last
	pssHand *probetest.ByHand[proctree.PSSAsk, observe.PSSAnswer] // nil where PSS is not read
	pssAsk  *proctree.PSSAsk                                      // being answered …
	pssAt   time.Duration                                         // … then
}

// rateFile is a file that is written again and again: kept open, and only where it
// has changed.
type rateFile struct {
	*os.File
	text string
}

// newRateStand makes them.
func newRateStand(t *testing.T, spec *saveratetest.Spec) *rateStand {
	t.Helper()
	r := &rateStand{written: map[int]rsstest.Process{}, files: map[string]*rateFile{}}
	dir, conf := t.TempDir(), filepath.Join(t.TempDir(), "slurm.conf")
	env := map[string]string{
		"SLURM_JOB_ID": "46", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n1", "SLURM_CONF": conf, "SLURM_JOB_END_TIME": "9999999999",
	}
	wardentest.NoError(t, os.Chmod(dir, 0o700))
	wardentest.NoError(t, os.WriteFile(conf, []byte(slurmConf(spec)), 0o600))
	r.stand = newStand(t, with(env), func(o *Options) { o.Settings.Limit, o.Settings.Events = 0, "" })
	pid := os.Getpid()
	start, err := proctree.StartTime("/proc", pid)
	wardentest.NoError(t, err)
	r.trainer = rss.ProcID{PID: pid, Start: start}
	r.world = newRateWorld(spec, pid, true)
	r.fs.Write("proc/meminfo", "MemTotal: 1073741824 kB\nMemFree: 1073741824 kB\nMemAvailable: 1073741824 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	r.fs.Write(fmt.Sprintf("proc/%d/limits", theHolder), fmt.Sprintf("Limit                     Soft Limit           Hard Limit           Units     \nMax resident set          %d           %[1]d           bytes     \n", spec.Limit))
	r.fs.Write("proc/self/mountinfo", map[bool]string{
		true:  "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n",
		false: "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
	}[spec.Accounting == saveratetest.CgroupV2])
	r.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), map[bool]string{true: "0::/slurm/job_46\n", false: "4:memory:/slurm/job_46\n"}[spec.Accounting == saveratetest.CgroupV2])
	r.render()
	if spec.Support != saveratetest.None {
		r.Settings.Dir = dir
		r.file("hello", r.trainer, fmt.Sprintf(`{"v":1,"pid":%d,"start":%d,"ppid":%d,"torch":"1.13.0","can_recycle":%v}`, pid, start, theCommand, spec.Support == saveratetest.Recycle))
		r.observe.Loader, err = loader.Open(dir)
		wardentest.NoError(t, err)
		r.observe.Loader.Trials = loader.NewTrials(&r.probes, os.Environ, r.Link.Start, true)
	}
	// Told by us: a goroutine that waits for inotify would hold time up.
	r.Settings.Dir, r.observe.Hears = "", true
	r.open(r.holder.begin)
	r.Settings.Dir = dir
	r.alone()
	return r
}

func slurmConf(s *saveratetest.Spec) string {
	gather := "JobAcctGatherType=jobacct_gather/cgroup\nTaskPlugin=task/cgroup\n"
	switch s.Accounting {
	case saveratetest.SlurmRSS:
		gather = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nTaskPlugin=task/none\n"
	case saveratetest.SlurmPSS:
		gather = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill,UsePss\nTaskPlugin=task/none\n"
	}
	return gather + fmt.Sprintf("JobAcctGatherFrequency=task=%d\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n", int(max(s.Poll, time.Second).Seconds()))
}

// alone ends what reads on the side, by goroutines of its own and in its own time:
// maps, descriptors, /dev/shm and diagnoses, on which no action on memory rests. PSS
// is answered by the job.
func (r *rateStand) alone() {
	r.t.Cleanup(func() {
		for name := range r.files {
			r.closeFile(name)
		}
	})
	r.observe.Counts, r.observe.Diagnosis.State, r.slim.done = &counts.Counts{}, nil, true
	if r.observe.PSS != nil {
		r.pssHand = probetest.New[proctree.PSSAsk, observe.PSSAnswer](&r.probes)
		r.observe.PSS = observe.PSSBy(r.pssHand.Reader)
		r.t.Cleanup(func() {
			if r.pssHand.Asked(); r.pssHand.Pending() { // no goroutine may be left
				r.pssHand.Answer(r.t, observe.PSSAnswer{})
			}
		})
	}
}

// render writes what the job has now, and what its hook has said.
func (r *rateStand) render() {
	r.t.Helper()
	w := r.world
	r.process(rsstest.Process{PID: rateStepd, Parent: 1, Start: 1, Comm: "slurmstepd", Anon: 8 * rss.MiB})
	r.process(rsstest.Process{PID: theHolder, Parent: rateStepd, Start: 2, Comm: "rsswarden", Anon: oursAnon / 2, File: oursFile / 2})
	r.process(rsstest.Process{PID: r.Self, Parent: theHolder, Start: 3, Comm: "rsswarden", Anon: oursAnon / 2, File: oursFile / 2})
	r.process(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "bash", Anon: w.Beside})
	r.process(rsstest.Process{PID: r.trainer.PID, Parent: theCommand, Start: r.trainer.Start, Comm: "python", Anon: w.trainer(), File: w.Libs})
	alive := []int{rateStepd, theHolder, r.Self, theCommand, r.trainer.PID}
	for _, o := range w.processes() {
		alive = append(alive, o.pid)
		// The trainer's start is that of this very process: what seems to have started
		// before it, the machine being up for long, would be no child of it.
		r.process(rsstest.Process{PID: o.pid, Parent: r.trainer.PID, Start: r.trainer.Start + uint64(o.pid), Comm: "python", Anon: o.Heap + o.Private, File: o.Libs + o.Mapped})
	}
	for pid := range r.written {
		if !slices.Contains(alive, pid) {
			for _, name := range []string{"stat", "statm", "status"} {
				r.closeFile(fmt.Sprintf("proc/%d/%s", pid, name))
			}
			r.fs.End(pid)
			r.wrote = true
			delete(r.written, pid)
		}
	}
	if w.Accounting.Kernel() {
		r.cgroup()
	}
	if len(w.said) == 0 {
		return
	}
	var b bytes.Buffer
	for _, line := range w.said {
		fmt.Fprintf(&b, "{\"t\":%f,%s\n", float64(time.Now().UnixNano())/1e9, line[1:])
	}
	w.said = nil
	f, err := os.OpenFile(filepath.Join(r.Settings.Dir, fmt.Sprintf("log.%d.%d", r.trainer.PID, r.trainer.Start)), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	wardentest.NoError(r.t, err)
	defer f.Close()
	if _, err := f.Write(b.Bytes()); err != nil {
		r.t.Fatal(err)
	}
}

// process writes a process where it has changed.
func (r *rateStand) process(p rsstest.Process) {
	if r.written[p.PID] == p {
		return
	}
	r.written[p.PID] = p
	for name, text := range p.Files() {
		r.write(fmt.Sprintf("proc/%d/%s", p.PID, name), text)
	}
}

// write writes a file of the tree.
func (r *rateStand) write(name, text string) {
	f := r.files[name]
	if f != nil && f.text == text {
		return
	}
	r.wrote = true
	if f == nil {
		r.fs.Write(name, text)
		file, err := os.OpenFile(r.fs.Path(name), os.O_WRONLY, 0)
		wardentest.NoError(r.t, err)
		r.files[name] = &rateFile{file, text}
		return
	}
	_, err := f.WriteAt([]byte(text), 0)
	if len(text) < len(f.text) {
		err = errors.Join(err, f.Truncate(int64(len(text))))
	}
	wardentest.NoError(r.t, err)
	f.text = text
}

func (r *rateStand) closeFile(name string) {
	if f := r.files[name]; f != nil {
		f.Close()
		delete(r.files, name)
	}
}

// cgroup writes the charge of the job's cgroup: what cannot be reclaimed, and page
// cache for as long as there is room.
func (r *rateStand) cgroup() {
	w := r.world
	m := w.memory()
	used := w.used()
	cache := min(m.Touched()+rss.Bytes(w.step)*w.Cache, w.Limit.Sub(used))
	dir := "sys/fs/cgroup/memory/slurm/job_46/"
	files := map[string]string{
		"memory.usage_in_bytes": fmt.Sprintln(uint64(used + cache)), "memory.limit_in_bytes": fmt.Sprintln(uint64(w.Limit)),
		"memory.oom_control": "oom_kill 0\n",
		"memory.stat":        fmt.Sprintf("total_rss %d\ntotal_cache %d\ntotal_active_file %d\ntotal_inactive_file %d\n", used, cache, cache/2, cache-cache/2),
	}
	if w.Accounting == saveratetest.CgroupV2 {
		dir = "sys/fs/cgroup/slurm/job_46/"
		files = map[string]string{
			"memory.current": fmt.Sprintln(uint64(used + cache)), "memory.max": fmt.Sprintln(uint64(w.Limit)), "memory.high": "max\n",
			"memory.stat": fmt.Sprintf("anon %d\nfile %d\nactive_file %d\ninactive_file %d\n", used, cache, cache/2, cache-cache/2),
		}
	}
	for name, text := range files {
		r.write(dir+name, text)
	}
}

// askedPSS takes the question that is put to the job, if one is.
func (r *rateStand) askedPSS() {
	if r.observe.PSS == nil || r.pssAsk != nil {
		return
	}
	if ask, ok := r.pssHand.Asked(); ok {
		r.pssAsk = &ask
		r.pssAt = r.world.now + pssCost(r.written[ask.ID.PID].Anon+r.written[ask.ID.PID].File)
	}
}

// pssCost is what a reading of smaps_rollup takes: 7 to 21 ms for each GiB.
func pssCost(resident rss.Bytes) time.Duration {
	return 50*time.Microsecond + time.Duration(resident.Of(rss.GiB)*float64(14*time.Millisecond))
}

// answerPSS answers it.
func (r *rateStand) answerPSS() {
	ask := *r.pssAsk
	r.pssAsk = nil
	p := r.written[ask.ID.PID]
	got := observe.PSSAnswer{Ask: ask, Err: os.ErrNotExist}
	if p.PID != 0 {
		cost := pssCost(p.Anon + p.File)
		held := cost
		if ask.Pieces {
			held /= 8 // mmap_lock is given back between two mappings
		}
		anon, file := r.proportional(p.PID)
		got = observe.PSSAnswer{Ask: ask, PSS: rss.PSS{PSS: anon + file, RSS: p.Anon + p.File, Anon: anon, File: file, Mapped: p.File, Split: true, Cost: cost, Held: held}}
	}
	r.pssHand.Answer(r.t, got)
	r.heardProbes()
}

// proportional is the PSS of a process: what is its own and its part of the
// trainer's heap, and its part of the libraries and the data file.
func (r *rateStand) proportional(pid int) (anon, file rss.Bytes) {
	w := r.world
	m := w.memory()
	heap, libs, mapped := float64(m.Trainer), float64(m.Libs), 0.0
	for _, o := range m.Workers {
		heap += float64(o.Heap - min(o.Copied, o.Heap))
		libs += float64(o.Libs)
		mapped += float64(o.Mapped)
	}
	part := func(has rss.Bytes, of rss.Bytes, shares float64) rss.Bytes {
		return rss.Bytes(float64(of) * float64(has) / math.Max(shares, 1))
	}
	if pid == r.trainer.PID {
		return part(m.Trainer, m.Trainer, heap), part(m.Libs, m.Libs, libs)
	}
	for _, o := range w.processes() {
		if o.pid == pid {
			return o.Private + o.Copied + part(o.Heap-min(o.Copied, o.Heap), m.Trainer, heap), part(o.Libs, m.Libs, libs) + part(o.Mapped, m.Touched(), mapped)
		}
	}
	p := r.written[pid]
	return p.Anon, p.File / 2
}

// readCtl has the job read what the watcher wrote.
func (r *rateStand) readCtl() {
	if r.seen == r.view.Sample.Seq {
		return // it is written in full looks only
	}
	r.seen = r.view.Sample.Seq
	data, err := os.ReadFile(filepath.Join(r.Settings.Dir, fmt.Sprintf("ctl.%d.%d", r.trainer.PID, r.trainer.Start)))
	if err != nil || bytes.Equal(data, r.ctl) {
		return // there is none yet
	}
	r.ctl = data
	var c rateCtl
	wardentest.NoError(r.t, json.Unmarshal(data, &c))
	r.world.asked(c)
}

// looks runs the loop of the watcher beside the job until the job is over: what
// [engine.loop] does on a tick, on news of the hook and on a reading of PSS.
func (r *rateStand) looks() (n int) {
	w := r.world
	for !w.over() {
		until := w.now + r.sleep(r.pause(r.now()))
		if r.pssAsk != nil {
			until = min(until, r.pssAt)
		}
		before := w.now
		w.advance(until)
		time.Sleep(w.now - before)
		if w.over() {
			break
		}
		news := len(w.said) > 0
		r.wrote = false
		r.render()
		n++
		switch {
		case news:
			if r.poll(true) || r.acts.Heard() {
				r.full()
			}
		case r.pssAsk != nil && w.now >= r.pssAt:
			r.answerPSS()
		case !r.idleTick():
			r.tick()
		}
		r.readCtl()
		r.askedPSS()
	}
	return n
}

// idleTick takes a fast tick over files in which nothing has changed since the last
// look: it would read what that read, and only the rate takes note. Near a rung
// the watcher looks 500 times a second, which is what a simulation spends its time
// on. It is false where the tick is more than that.
func (r *rateStand) idleTick() bool {
	now := r.look()
	pss, hurried := r.observe.PSS.Next(now)
	switch {
	case hurried && pss <= 0, r.wrote, r.view.Watched < 0, r.pace.HolderDue(now, cadence.HolderEvery) <= sameWake, !r.pace.Due(now), r.pace.FullDue(r.paced(now)):
		return false
	}
	r.pace.Again()
	b := &r.view.Limits[r.view.Watched]
	r.rate(b).Add(now, view.Growing(b))
	return true
}

// rateEnd is how one job ended, bare and wrapped.
type rateEnd struct {
	saveratetest.Label
	bare, killed bool
	at           time.Duration // … by the job's clock
	nearest      float64       // most used of the limit, ours included
	acted        int           // decisions that did something, or tried
	budget       int           // trims that workers made by themselves to keep to a budget
	recycles     int
	late         int           // … of these after each worker had made three batches
	stalls       time.Duration // in which the trainer paused for recycles
	why          string        // the last line, and the memory then
}

// simulate runs one job, bare and wrapped.
func simulate(t *testing.T, seed uint64, scale *saveratetest.Scale) (e rateEnd) {
	spec := saveratetest.New(seed, scale)
	e.Label = spec.Label()
	bare := newRateWorld(&spec, 1, false)
	for !bare.over() {
		bare.said = nil
		bare.advance(bare.now + time.Hour)
	}
	e.bare = bare.killed
	synctest.Test(t, func(t *testing.T) {
		r := newRateStand(t, &spec)
		r.looks()
		w := r.world
		e.killed, e.at, e.nearest, e.stalls = w.killed, w.now, w.peak.Of(spec.Limit), w.stalls
		saved := &r.tell.Sum.Saved
		for i := range saved.Actions {
			if a := &saved.Actions[i]; a.Action.Frees() {
				e.acted += a.Fired
			}
		}
		e.budget, e.recycles, e.late = saved.WorkerTrims, saved.Recycled, w.late
		e.why = r.why()
	})
	return e
}

// why says the job's state in the end.
func (r *rateStand) why() string {
	w := r.world
	m := w.memory()
	var leaked, mapped rss.Bytes
	for _, o := range m.Workers {
		leaked += o.Private.Sub(w.Fresh)
		mapped += o.Mapped
	}
	doing := "nothing in flight"
	if f := r.acts.InFlight(); f != nil {
		doing = fmt.Sprintf("%s in flight for %v", f.Decision.Action, (r.now() - f.Began).Round(time.Millisecond))
	}
	return fmt.Sprintf("%d workers, a batch each %v; used %v of %v: leaked %v, mapped %v, the rest %v; %s; last said: %s",
		w.Workers, w.Step*time.Duration(w.Workers), w.used(), w.Limit, leaked, mapped, w.used().Sub(leaked+mapped), doing, r.lines.last())
}

// onTmpfs has temporary directories in memory for as long as the test runs: a
// simulation writes small files some million times. It is t.Setenv, which does not
// go with tests that run in parallel below.
func onTmpfs(t *testing.T) {
	t.Helper()
	const name = "TMPDIR"
	if was, ok := os.LookupEnv(name); ok {
		t.Cleanup(func() { os.Setenv(name, was) })
	} else {
		t.Cleanup(func() { os.Unsetenv(name) })
	}
	wardentest.NoError(t, os.Setenv(name, "/dev/shm"))
}

// rateSeeds is how many jobs of a scale are run, the first ones in the order of their
// seeds: some seconds' worth, and all where RSSWARDEN_ENDURANCE is set, as `make
// endurance` does.
func rateSeeds(scale *saveratetest.Scale) uint64 {
	if os.Getenv("RSSWARDEN_ENDURANCE") != "" {
		return scale.Seeds
	}
	return scale.Seeds / 5
}

// TestSaveRate is the save rate in simulation: jobs of package saverate, 500 or the
// first of them as [rateSeeds] says, whose labels were there before, on a clock of
// their own, beside the live watcher with the default ladder. Nothing is left out of what decides and acts but the holder and the
// wire: limits are found in made-up files, budgets and requests go through the run
// directory, and a hook that behaves and takes as long as ours meets them.
//
// Nothing is done to an innocent, nothing is killed that lives bare, and of the jobs
// that fit all are carried but those of [rateMisses], each with its reason. Who
// carries one more takes it out of that list.
func TestSaveRate(t *testing.T) {
	onTmpfs(t)
	var table rateTable
	eachRate(t, &saveratetest.Simulated, rateSeeds(&saveratetest.Simulated), table.add)
	t.Log(&table)
	if table.touched > 0 {
		t.Errorf("%d innocents were acted on", table.touched)
	}
}

// TestSaveRateSteady: jobs that do not grow are left alone above the rungs too. Before
// it is known what its workers need, one useless recycle of each place is allowed, and
// trainers pause for them for no more than a hundredth of the job.
func TestSaveRateSteady(t *testing.T) {
	onTmpfs(t)
	var table rateTable
	late := 0
	eachRate(t, &saveratetest.Steadies, rateSeeds(&saveratetest.Steadies), func(t *testing.T, e rateEnd) {
		table.add(t, e)
		table.mu.Lock()
		defer table.mu.Unlock()
		late += e.late
		if e.late > e.Spec.Workers {
			t.Errorf("%d recycles of %d places in a job that does not change, %d in all: %v\n\t%s", e.late, e.Spec.Workers, e.recycles, e.Label, e.why)
		}
		if most := e.Spec.Duration() / 100; e.stalls > most {
			t.Errorf("the trainer paused for %v, want %v at most: %v", e.stalls, most, e.Label)
		}
	})
	t.Logf("%v, %d of them when nothing changed", &table, late)
}

// eachRate runs jobs of a scale, as many at a time as there are cores.
func eachRate(t *testing.T, scale *saveratetest.Scale, seeds uint64, end func(*testing.T, rateEnd)) {
	t.Helper()
	t.Run("jobs", func(t *testing.T) {
		for seed := uint64(1); seed <= seeds; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				end(t, simulate(t, seed, scale))
			})
		}
	})
}

// rateTable adds up how jobs ended.
type rateTable struct {
	mu                                sync.Mutex
	jobs, bare, fits, carried, lost   int
	dead, innocents, touched, budgets int
	recycles                          int
	stalls                            time.Duration
	near                              int // jobs that live bare and are no innocents …
	nearRecycles                      int // … and what is done to them
	nearStalls                        time.Duration
}

// String is the table in a line.
func (r *rateTable) String() string {
	return fmt.Sprintf("%d jobs: killed bare %d, killed wrapped %d; %d fit, of which killed wrapped %d (%.1f %% completed) and %d would be killed bare and were carried, by %d recycles in all, for which trainers stood still for %v; %d innocents, acted on %d, kept to a budget %d; %d above 80 %% of their limit that live bare: %d recycles, for which trainers stood still for %v",
		r.jobs, r.bare, r.dead, r.fits, r.lost, 100*float64(r.fits-r.lost)/float64(max(r.fits, 1)), r.carried, r.recycles, r.stalls.Round(time.Millisecond), r.innocents, r.touched, r.budgets,
		r.near, r.nearRecycles, r.nearStalls.Round(time.Millisecond))
}

func (r *rateTable) add(t *testing.T, e rateEnd) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs++
	r.recycles += e.recycles
	r.stalls += e.stalls
	if e.bare {
		r.bare++
	}
	if e.killed {
		r.dead++
	}
	reason, known := "", false
	if e.Spec.Class != saveratetest.Steady {
		reason, known = rateMisses[e.Spec.Seed]
	}
	switch {
	case e.killed && !e.bare:
		t.Errorf("killed wrapped and not bare: %v\n\t%s", e.Label, e.why)
	case e.killed && e.Fits:
		r.lost++
		t.Logf("killed at %v, %s: %v\n\t%s", e.at.Round(time.Second), reason, e.Label, e.why)
		if !known {
			t.Errorf("seed %d fits, and is killed", e.Spec.Seed)
		}
	case known:
		t.Errorf("seed %d is carried: it is to be taken out of the list of misses", e.Spec.Seed)
	}
	if e.Fits {
		r.fits++
		if e.bare && !e.killed {
			r.carried++
		}
	}
	if !e.Innocent {
		if !e.bare {
			r.near++
			r.nearRecycles += e.recycles
			r.nearStalls += e.stalls
		}
		return
	}
	r.innocents++
	if e.acted > 0 {
		r.touched++
		t.Errorf("acted %d times on an innocent: %v\n\t%s", e.acted, e.Label, e.why)
	}
	if e.budget > 0 {
		r.budgets++
		t.Logf("workers of an innocent trimmed themselves %d times to keep to their budget: %v\n\t%s", e.budget, e.Label, e.why)
	}
}

// Why a job that fits is killed all the same.
const missBurst = "a burst of the trainer's takes more at once than is left where nothing is done below 80 %: 28 % of the limit (88), 17 % three batches after, as long as its only worker takes to be replaced (257)"

// rateMisses are the seeds of the jobs that fit and are killed.
var rateMisses = map[uint64]string{
	88: missBurst, 257: missBurst,
}
