// Package observe reads the machine for the watcher. A full read makes a [view.View] of
// processes and limits, a fast one reads one counter of the limit that binds, and what may
// hang or is expensive is read on the side, each with a share of a core of its own.
//
// It promises that a view is never changed once it is made, that a read that hangs holds up
// nothing but its own answer, and that it tells nothing by itself: what it meets comes back
// as [view.News].
package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// Options are what an Observer works with.
type Options struct {
	Settings *settings.Policy
	Proc     string // "/proc" outside tests
	Sys      string // "/sys" outside tests
	Self     int    // our PID
	Lookup   func(string) (string, bool)
	Holder   int        // its PID, 0 where we attached, our own where we watch beside a task
	Command  rss.ProcID // that we hold or attached to
	Job      func() population.Job
	Probes   *probe.Set
	Scontrol Scontrol
	// Bell rings for LimitMet when the kernel says that a limit was met, and for LoaderNews
	// when loaders have written something.
	Bell                 *wake.Bell
	LimitMet, LoaderNews wake.Cause
	Stalled              wake.Cause // … and for this when tasks of the node wait for memory
	Subreaper            func(on bool) error
	Start                func(*exec.Cmd) error // has the holder start a program
}

// Observer owns everything that is read of processes and limits. All methods are for one
// goroutine.
type Observer struct {
	Pop       *population.Population
	Limits    *limit.Union   // nil until Open
	Counts    *counts.Counts // limits beside summed memory
	Workers   *workers.Workers
	Loader    *loader.Control // nil without the loader hook
	Hears     bool            // the bell rings for what loaders write; else it is looked for
	PSS       *PSS            // nil where no limit is compared in PSS
	files     *FilePages
	Forecasts policy.Forecasts
	SHMUsers  *SHMUsers

	Slurm     Slurm
	Diagnosis Diagnosis

	opt   Options
	steps stepLimits
}

// New returns an observer that has read nothing yet.
func New(opt Options) *Observer {
	// Where it cannot be read all workers count as seen fresh.
	from, _ := proctree.StartTime(opt.Proc, opt.Self)
	return &Observer{
		opt: opt,
		Pop: population.New(population.Options{
			Proc: opt.Proc, Tree: proctree.New(opt.Proc), Command: opt.Command, Followed: opt.Job,
			Holder: opt.Holder, Self: opt.Self, Names: hold.WatcherNames, Forks: hold.ForkNames,
		}),
		Counts:   &counts.Counts{},
		Workers:  workers.New(workers.Options{Proc: opt.Proc, From: from, EnvDir: loader.EnvDir, IsHook: loader.IsHook}),
		files:    NewFilePages(opt.Proc),
		SHMUsers: NewSHMUsers(opt.Probes, opt.Proc),
		Slurm:    Slurm{Reader: NewSlurm(opt.Probes, opt.Lookup, opt.Scontrol)},
	}
}

// limitsOf finds what limits the process pid. self are those of our own processes that
// count with it.
func (opt *Options) limitsOf(pid int, self []int, lookup func(string) (string, bool)) (*limit.Set, []limit.Warning) {
	s := opt.Settings
	return limit.Find(context.Background(), limit.Config{
		Proc: opt.Proc, Sys: opt.Sys, PID: pid, Self: self,
		User: s.Limit, UserShare: s.LimitShare, UserSource: s.LimitSource, Accounting: s.Accounting,
		Lookup: lookup,
		Slurm:  slurm.Search{Lookup: lookup, ReadFile: ReadWithin},
	})
}

// Open finds what is watched is held to, and begins to hear of it: of loaders, of stalls, of
// who enforces limits. Our own are found by the holder, those of what we attached to by the
// command. step is the command's.
func (o *Observer) Open(holder, command int, step string) (news view.News) {
	warnings := o.find(holder, command, step)
	opt := &o.opt
	if dir := opt.Settings.Dir; dir != "" {
		news.Fault("loader", o.OpenLoaders(dir))
	}
	news.Fault("worker-match", o.Workers.Pools.Match(opt.Settings.WorkerMatch, opt.Proc))
	o.enforced(&news)
	news.Fault("pressure", opt.Bell.Stalls(opt.Stalled, opt.Proc))
	o.Counts = counts.New(opt.Probes, opt.Proc, opt.Sys, command)
	o.Diagnosis = Diagnosis{State: diagnosis.New(), reader: NewSmaps(opt.Proc)}
	warn(warnings, &news)
	return news
}

// enforced does what follows from who enforces what here.
func (o *Observer) enforced(news *view.News) {
	if o.PSS == nil && o.Limits.NeedsPSS() {
		o.PSS = NewPSS(o.opt.Probes, o.opt.Proc)
	}
	// A subreaper brings orphans back under the task, where slurmstepd counts
	// them; so only where it does not sum by parent.
	if !o.Limits.SumsByPPID() {
		news.Fault("subreaper", o.opt.Subreaper(true))
	}
}

func warn(all []limit.Warning, news *view.News) {
	for _, w := range all {
		news.Fault(w.Part, errors.New(w.Text))
	}
}

// find finds the limits of what is watched.
func (o *Observer) find(holder, command int, step string) []limit.Warning {
	opt := &o.opt
	o.steps = stepLimits{proc: opt.Proc, probes: opt.Probes, ownStep: step, sets: map[string]*limit.Set{}}
	l := &o.steps
	conf, _ := opt.Lookup("SLURM_CONF")
	l.find = func(pid int) (*limit.Set, []limit.Warning) {
		return opt.limitsOf(pid, nil, population.EnvironmentOf(opt.Proc, opt.Sys, pid, conf).Lookup)
	}
	if o.Pop.FollowsJob() {
		l.of(o.Pop.Update(), true)
		warnings, _ := l.take()
		o.Limits = limit.Join(l.parts(o.Pop.Name)...)
		return warnings
	}
	pid, self := holder, []int{holder, opt.Self}
	switch {
	case holder == opt.Self: // beside a task, whose limits slurmstepd sets
		pid = command
	case o.Pop.Attached():
		// Where we count with it we are found like every other process.
		pid, self = command, nil
	}
	set, warnings := opt.limitsOf(pid, self, opt.Lookup)
	l.own = set
	o.Limits = limit.Join(limit.Part{Set: set})
	if job, in := o.Limits.Job(); in && !o.Pop.Attached() {
		o.Pop.Name = job.ID
	}
	return warnings
}

// HearSteps takes in the limits of other steps that were found, and says of how many.
func (o *Observer) HearSteps() (warnings []limit.Warning, found int) {
	if warnings, found = o.steps.take(); found > 0 {
		o.Limits.Replace(o.steps.parts(o.Pop.Name))
	}
	return warnings, found
}

// Full takes a sample and reads the limits against it. last is what was seen before.
func (o *Observer) Full(now time.Duration, last *view.View) (v *view.View, news view.News) {
	at := time.Now()
	procs, extra, gaps, err := o.population(last, &news)
	if err != nil {
		news.Fault("proctree", err)
		// What is a little old is nearer to the truth than nothing, or than a part.
		procs, extra, gaps = slices.Clone(last.Sample.Procs), slices.Clone(last.Sample.Extra), last.Sample.Gaps
	}
	o.PSS.Update(now, procs, extra)
	o.files.Update(now, last.Limits, procs, extra)
	s := rss.Sample{
		Seq: last.Sample.Seq + 1, At: at, Mono: now, Took: time.Since(at),
		Procs: procs, Extra: extra, Gaps: gaps,
	}
	var roles map[int]rss.Role
	if o.Loader != nil {
		roles = o.Loader.Roles()
		o.Workers.SetTrainers(o.Loader.Trainers())
	}
	for _, owner := range o.Workers.Update(&s, roles, append(slices.Clone(o.Pop.Tasks()), o.Pop.Command)...) {
		news.Fault("worker-match", fmt.Errorf("process %d starts no new worker where one has ended: no more of its workers are signalled", owner.PID))
	}
	o.Forecasts.Processes(now, s.Procs)
	limits := append(o.Limits.Read(&s), o.Counts.Read(now, procs, o.Pop.Command.PID, len(o.Workers.Trainers()) > 0)...)
	for i := range limits {
		l := &limits[i] // what is certain of a sum of PSS may be more than readings say that are seconds old
		l.Used = max(l.Used, min(o.LeastOf(l), l.UsedMax))
	}
	v = last.Next(now, s, limits)
	return v, news
}

// Fast reads the watched limit, and says whether a full read is needed: it has reached
// next, from which on it is judged again, or could not be read.
func (o *Observer) Fast(now time.Duration, last *view.View, next rss.Bytes) (v *view.View, full bool) {
	fast, ok := o.Limits.Fast(now, next, o.Pop.SumRSS)
	if !ok || fast.ID() != last.Limits[last.Watched].ID() {
		return last, true
	}
	return last.Fast(now, &fast), view.Growing(&fast) >= next
}

// population reads the tree and what counts beside it.
func (o *Observer) population(last *view.View, news *view.News) (procs, extra []rss.Proc, gaps rss.Gaps, err error) {
	procs, gaps, err = o.Pop.Read()
	if o.steps.of(o.Pop.Job(), false) {
		o.Limits.Replace(o.steps.parts(o.Pop.Name))
	}
	if err != nil {
		return nil, nil, gaps, err
	}
	// The first look is before the first line.
	if _, in := o.Limits.Job(); in && last.Sample.Seq > 0 && !o.Pop.FollowsJob() {
		if srun := population.Srun(procs); srun != 0 {
			news.Add(view.Line{Text: phrase.SrunInside(srun), Warn: true, Once: "srun"})
		}
	}
	extra, more, err := o.Limits.Extra(o.Pop.Tree, procs)
	return procs, extra, gaps.Add(more), err
}

// WatchLimits has the bell ring when the kernel says that one of these was met: it does so
// in memory.events of each level of cgroup v2, every 10 ms at most.
func (o *Observer) WatchLimits(limits []event.Limit) (err error) {
	for i := range limits {
		l := &limits[i]
		if l.Level == "" {
			continue
		}
		file := filepath.Join(l.Level, "memory.events")
		if _, missing := os.Stat(file); missing == nil {
			err = cmp.Or(err, o.opt.Bell.Watch(o.opt.LimitMet, unix.IN_MODIFY, file))
		}
	}
	return err
}

// LeastOf is the least that the anonymous memory of a trainer and its workers counts for
// l, 0 where that is not known. A process that is watched from outside may share with others
// outside.
func (o *Observer) LeastOf(l *event.Limit) rss.Bytes {
	if o.PSS == nil || o.Loader == nil || o.Pop.Attached() || l.Accounting != event.AccountingPSS || o.Limits.Step(l) != "" && o.Pop.IsJob() {
		return 0
	}
	return o.Workers.PSSFloor()
}

// Warnings are what could not be read or followed since the last call.
func (o *Observer) Warnings() (news view.News) {
	warn(o.Limits.Warnings(), &news)
	for _, err := range o.PSS.Told() {
		news.Fault("pss", err)
	}
	return news
}

// Ladder is what an observer must know of the judge.
type Ladder interface {
	// NextRung is the use at which the next rule fires for a limit.
	NextRung(*event.Limit) rss.Bytes
	// Rung is the lowest use at which a rule with that action fires for a limit.
	Rung(event.Action, *event.Limit) (at rss.Bytes, ok bool)
	// Uncertain says that only a closer reading can tell on which side of a rung use is.
	Uncertain([]event.Limit) bool
	// JobEndAhead is how long before the job's end the first rule on it fires, 0 for none.
	JobEndAhead() time.Duration
}

// Heard is what was read beside the full reads, and was not taken in yet.
type Heard struct {
	News view.News
	Any  bool // something was: when to wake is to be thought over
	Full bool // it calls for a full read
	// PSS is that a reading of PSS came on which a decision depends, and Woken that the loop
	// was woken for it.
	PSS, Woken bool
}

// Hear takes in what was read beside the full reads.
func (o *Observer) Hear(now time.Duration, v *view.View, ladder Ladder) (h Heard) {
	h.News = o.TryTorch(now, v)
	if woken := o.PSS != nil && o.PSS.Woken(); o.PSS != nil && o.PSS.TakeOne(now) {
		h.Any, h.PSS = true, ladder.Uncertain(v.Limits) && !o.PSS.Busy()
		h.Woken = h.PSS && woken
	}
	if a, ok := o.Slurm.Take(); ok {
		h.Full = true
		o.heardSlurm(&a, ladder.JobEndAhead(), &h.News)
	}
	fresh, read := o.Counts.Take(func() time.Duration { return now })
	h.Any = h.Any || read
	warnings, found := o.HearSteps()
	warn(warnings, &h.News)
	unmanaged := o.Pop.Heard()
	h.Full = h.Full || reached(v, fresh, ladder) || found > 0 || unmanaged
	return h
}

// Wake is how long after now the loop must wake for a read beside the full ones, not at all
// for [cadence.Never].
func (o *Observer) Wake(now time.Duration) time.Duration {
	pause := cadence.Never
	if count, ok := o.Counts.Next(now); ok {
		pause = count
	}
	if pss, ok := o.PSS.Next(now); ok {
		pause = min(pause, pss)
	}
	return pause
}

// reached says whether one of these limits is at or above the rung that was the next at
// the last full read.
func reached(v *view.View, fresh []event.Limit, ladder Ladder) bool {
	for i := range fresh {
		l := &fresh[i]
		if old := v.Limit(l.ID()); old == nil || l.Used >= ladder.NextRung(old) {
			return true
		}
	}
	return false
}

// AskSHMUsers asks who holds what in /dev/shm; level is the cgroup that is charged, empty
// for none. It wakes nothing, and does nothing while an answer is open.
func (o *Observer) AskSHMUsers(v *view.View, level string) {
	pids := counts.Sharers(v.Sample.Procs, o.Pop.Command.PID)
	if len(pids) == 0 {
		return
	}
	ask := shmQuestion{proc: o.SHMUsers.proc, pid: pids[0], level: level}
	for i := range v.Sample.Procs {
		ask.all = append(ask.all, v.Sample.Procs[i].ID.PID)
	}
	o.SHMUsers.Ask(ask, false)
}

// Diagnosis finds out what fills memory, with reads of its own.
type Diagnosis struct {
	State  *diagnosis.State // nil until Open
	reader *Smaps
	at     time.Duration
}

// diagnoseEvery is how often, as a recorded sample: a diagnosis is about minutes.
const diagnoseEvery = time.Second

// Busy says that something is being read for it.
func (d *Diagnosis) Busy() bool { return d.reader.Busy() }

// Diagnose takes in a view and returns what is found now, where that is due or may come
// early by tolerance.
func (o *Observer) Diagnose(now, tolerance time.Duration, v *view.View) []event.Diagnosis {
	d := &o.Diagnosis
	if d.State == nil || now-d.at < diagnoseEvery-tolerance && d.at > 0 {
		return nil
	}
	d.at = now
	l := diagnosis.Look{At: now, Procs: slices.Clone(v.Sample.Procs)}
	diagnosis.Guess(l.Procs)
	if b := v.Binding(); b != nil {
		l.Limit, l.Accounting, l.BySlurm = b.Limit, b.Accounting, b.Name == event.LimitSlurm
	}
	d.reader.TakeInto(now, &l)
	for _, c := range o.Counts.All() {
		l.Counts = append(l.Counts, diagnosis.Count(c))
	}
	if o.Loader != nil {
		l.Loaders = loadersOf(o.Workers.Trainers())
	}
	d.State.Add(&l)
	d.reader.AskFirst(now, d.State.Wants(), &v.Sample)
	return d.State.Findings()
}

// loadersOf is what the hook has reported about DataLoaders.
func loadersOf(trainers workers.Trainers) (all []diagnosis.Loader) {
	for _, t := range trainers {
		for _, l := range t.Loaders {
			one := diagnosis.Loader{PID: t.ID.PID, Workers: l.NumWorkers, Method: l.Start, Persistent: l.Persistent}
			if l.Pool {
				one.Pool = l.Kind
			}
			if u := l.Unforked; u != nil {
				one.By, one.Python, one.Sent, one.Own, one.CUDA, one.Registered = u.By, t.Python, u.Sent, u.Own, u.CUDA, u.Registered
			}
			all = append(all, one)
		}
	}
	return all
}

// OwnCost measures the holder and the watcher; who attached is both in one, and has no
// holder (0). What could be measured is returned beside an error.
func OwnCost(proc string, holder, watcher int) (out []event.Cost, err error) {
	for _, p := range []struct {
		who string
		pid int
	}{{"holder", holder}, {"watcher", watcher}} {
		if p.pid == 0 || p.who == "holder" && holder == watcher {
			continue
		}
		c, cerr := proctree.CostOf(proc, p.pid)
		switch {
		case proctree.Vanished(cerr):
			continue
		case cerr != nil:
			err = errors.Join(err, cerr)
			continue
		}
		out = append(out, event.Cost{
			Process: p.who, PID: p.pid, RSS: c.RSS, Anon: c.Anon, PSS: c.PSS,
			Threads: c.Threads, Descriptors: c.Descriptors, CPU: c.CPU.Seconds(), Wakeups: c.Wakeups,
		})
	}
	return out, err
}
