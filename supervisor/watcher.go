package supervisor

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// coolDown is the pause between an action that was enough and the next. What
// an action brought is measured at once, no average lags behind it, so there is
// nothing to wait for but the next crossing.
const coolDown = 200 * time.Millisecond

// Options are what one watcher works with.
type Options struct {
	Settings settings.Settings
	Link     Holder
	Proc     string // "/proc"
	Sys      string // "/sys"
	Self     int    // PID of the watcher
	Lookup   func(string) (string, bool)
	Log      tell.Lines
	Able     attach.Abilities
	Job      func() population.Job // of a job that we attached to; else nil
}

// Holder is the holder as the watcher sees it: [hold.Link] outside tests.
type Holder interface {
	Begin() hold.Begin
	// Messages yields what the holder says, in its order.
	Messages() <-chan hold.Message
	Subreaper(on bool) error
	Override(status int) error
	Unstick() error
	Start(cmd *exec.Cmd) error
	// Trim asks for one piece to be given back; a message answers.
	Trim(hold.TrimRequest) error
}

// watcher is the state of the loop. Only the loop's goroutine touches it.
type watcher struct {
	Options
	clock

	early   view.News // what was met before anything could be said
	node    *node.Place
	observe *observe.Observer
	probes  probe.Set
	bell    *wake.Bell // rings for what is in wakes.go

	tell *tell.Fan
	slim selfTrim
	view *view.View // what was seen last
	pace cadence.Pace
	acts *action.Set
	oom  *action.OOMPrefer
}

// Watch watches the command of opt.Link until it has ended, and says so.
func Watch(opt Options) {
	begin := opt.Link.Begin()
	if s := &opt.Settings; begin.LeftOut {
		s.Dir = ""
		s.Warnings = append(s.Warnings, "loaders are not talked to: the environment leaves no room for our variables (E2BIG)")
	}
	w := newWatcher(opt, begin)
	if w.join(begin); w.node.Leads() {
		w.open(begin)
	} else {
		w.openFollowing(begin)
	}
	w.loop()
	if limits := w.observe.Limits; limits != nil {
		limits.Close()
	}
}

func newWatcher(opt Options, begin hold.Begin) *watcher {
	s := &opt.Settings
	run := tell.NewRun(s, opt.Proc, opt.Lookup)
	run.Holder, run.Self, run.WholeJob = begin.Holder, opt.Self, opt.Job != nil
	w := &watcher{
		Options: opt,
		clock:   clock{started: time.Now()},
		bell:    wake.New(),
		view:    &view.View{Watched: -1},
		pace:    cadence.Pace{Interval: opt.Settings.Interval, Tolerance: sameWake},
	}
	w.tell = tell.New(opt.Log, &w.Settings, run)
	command := rss.ProcID{PID: begin.PID, Start: begin.Start}
	if command.Start == 0 {
		// The holder could not read it. A signal goes to nobody without it.
		command.Start, _ = proctree.StartTime(opt.Proc, begin.PID)
	}
	w.node = node.New(node.Options{
		Proc: opt.Proc, Probes: &w.probes, Bell: w.bell, Cause: rankNews, Kill: func(id rss.ProcID, sig syscall.Signal) error { return w.acts.Kill(id, sig) }, Override: opt.Link.Override,
	})
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolBy(ctx, opt.Link.Start, args...)
	}
	w.observe = observe.New(observe.Options{
		Settings: &w.Settings, Proc: opt.Proc, Sys: opt.Sys, Self: opt.Self, Lookup: opt.Lookup,
		Holder: begin.Holder, Command: command, Job: opt.Job, Probes: &w.probes, Scontrol: scontrol,
		Bell: w.bell, LimitMet: limitMet, LoaderNews: loaderNews, Stalled: stalled, Start: opt.Link.Start, Subreaper: opt.Link.Subreaper,
	})
	env := &action.Env{
		Observer: w.observe, Settings: &w.Settings, Able: opt.Able, Proc: opt.Proc, Sys: opt.Sys, Self: opt.Self, Lookup: opt.Lookup, Now: w.now,
		View: w.view, Holder: opt.Link, Ranks: ranks{w}, Tell: w.tell,
	}
	w.oom = &action.OOMPrefer{Env: env}
	w.acts = action.New(env, action.Options{
		Probes: &w.probes, Attempt: begin.Attempt, Scontrol: scontrol, Read: w.read, Ring: func() { w.bell.Ring(actionDue) },
	})
	w.slim.done = w.observe.Pop.Attached() // Slurm does not count us as the job's then
	w.tell.Sum.Watched = begin.Attempt <= 1 && !w.observe.Pop.Attached()
	return w
}

// open sets up everything that a run needs and says what was found. Nothing is
// said before the start event, which is the first.
func (w *watcher) open(begin hold.Begin) {
	s := &w.Settings
	w.observe.Slurm.Asks = w.node.Joined() || w.observe.Pop.Attached()
	news := w.observe.Open(begin.Holder, begin.PID, w.node.Me.Step)
	options := policy.Options{CoolDown: coolDown}
	if begin.Attempt > 1 {
		options.FirstID = uint64(begin.Attempt)<<32 | 1
	}
	w.acts.Ladder = policy.New(s.Rules, options)
	w.tell.Readers = tell.Readers{
		Counts: w.observe.Counts.Of, Pace: w.observe.Counts.Pace, Outside: w.observe.Limits.Outside, Kills: w.observe.Limits.OOMKills,
		Costs: func() ([]event.Cost, error) { return observe.OwnCost(w.Proc, begin.Holder, w.Self) },
	}
	w.tell.Record.Open(w.observe.Pop.Command, begin.Attempt, begin.Last)
	w.tell.Textfile.Open(w.observe.Pop.Name)
	if !w.node.Heir {
		w.read()
		w.tell.Start(w.starts(begin), w.view)
	}
	w.tell.Tell(w.now(), w.early)
	if w.takeLead() || w.node.Heir {
		w.read()
	}
	w.serve()
	if w.node.Heir {
		w.tell.StartAgain(w.starts(begin), w.view)
	}
	news.Fault("inotify", w.observe.WatchLimits(w.view.Limits))
	w.tell.Tell(w.now(), news)
	w.tell.Faults(w.now(), "start", s.Warnings...)
	if !s.RulesOfSite() { // those are for all jobs, and no job has all limits
		w.tell.Faults(w.now(), "start", phrase.Unmatched(s.Rules, w.view.Limits)...)
	}
	w.openAlerts()
	w.full()
	w.acts.SayLastLife()
	// Late and on the side: thousands of ranks that all ask at their start are a storm.
	w.acts.Foresee(rand.N(5 * time.Second))
	w.observe.Slurm.Begin(w.now(), w.observe.Limits)
}

// openAlerts begins to tell receivers. A follower has no limits, and so no name for
// the job from there.
func (w *watcher) openAlerts() {
	opt := tell.AlertOptions{Environ: hold.Environ(), Start: w.Link.Start, Step: w.node.Me.Step}
	if w.observe.Limits != nil {
		opt.Job, _, _ = strings.Cut(w.observe.Pop.Name, ".") // of a step that we attached to
		if job, in := w.observe.Limits.Job(); in && w.Able.Comment == "" {
			opt.CommentJob = tell.CommentJob(job, !w.node.Joined())
		}
	} else if job := w.tell.Run.Job; job != nil {
		opt.Job = job.ID
	}
	w.tell.Alerts.Open(opt, bootTime())
}

// starts is how we begin.
func (w *watcher) starts(begin hold.Begin) *tell.Start {
	pop := w.observe.Pop
	s := &tell.Start{PID: begin.PID, Attempt: begin.Attempt, Job: pop.Name, Cannot: w.Able.Cannot, Rank: w.node.Me.Task}
	if pop.Attached() {
		if pop.FollowsJob() {
			s.Steps = pop.Job().String()
		}
		return s
	}
	s.Outer = population.OuterRun(w.Proc, begin.Holder)
	if w.observe.Limits == nil { // another leads
		return s
	}
	s.Slurm, s.Batch = w.observe.Limits.Job()
	if p, err := pop.Tree.One(begin.Holder); err == nil {
		if pp, err := pop.Tree.One(p.Parent); err == nil {
			s.Parent = pp.Comm
		}
	}
	return s
}

// runTime is the time since the run began.
func (w *watcher) runTime() time.Duration { return w.tell.Run.Took(w.started) }

// fault says that a part of ours does not work. The command runs on.
func (w *watcher) fault(part string, err error) {
	w.tell.Fault(w.now(), part, err)
}
