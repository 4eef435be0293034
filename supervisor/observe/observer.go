// Package observe reads the machine for the watcher. A full read makes a [view.View] of
// processes and limits, a fast one reads one counter of the limit that binds, and what may
// hang or is expensive is read on the side, each with a share of a core of its own.
//
// It promises that a view is never changed once it is made, that a read that hangs holds up
// nothing but its own answer, and that it tells nothing by itself: what it meets comes back
// as [view.News].
package observe

import (
	"context"
	"errors"
	"os/exec"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/loader"
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
	Settings *settings.Settings
	Proc     string // "/proc" outside tests
	Sys      string // "/sys" outside tests
	Self     int    // our PID
	Lookup   func(string) (string, bool)
	Holder   int        // its PID, 0 where we attached
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
			Holder: opt.Holder, Self: opt.Self, Names: hold.WatcherNames,
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
		User: s.Limit, UserShare: s.LimitShare, UserSource: s.LimitSource(), Accounting: s.Accounting,
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
	if o.Pop.Attached() {
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
