package supervisor

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

func newEngine(opt Options, begin hold.Begin) *engine {
	run := tell.NewRun(&opt.Settings.Run, opt.Proc, opt.Lookup)
	run.Holder, run.Self, run.WholeJob = begin.Holder, opt.Self, opt.Job != nil
	e := &engine{
		Options: opt,
		clock:   clock{started: time.Now()},
		bell:    wake.New(),
		view:    &view.View{Watched: -1},
		pace:    cadence.Pace{Interval: opt.Settings.Interval, Tolerance: sameWake, Processors: runtime.NumCPU()},
	}
	e.tell = tell.New(opt.Log, &e.Settings, run)
	e.tell.RingFailures(func() { e.bell.Ring(sinkFailed) })
	command := rss.ProcID{PID: begin.PID, Start: begin.Start}
	if command.Start == 0 {
		// The holder could not read it. Without it no signal is sent.
		command.Start, _ = proctree.StartTime(opt.Proc, begin.PID)
	}
	e.node = node.New(node.Options{
		Proc: opt.Proc, Probes: &e.probes, Bell: e.bell, Cause: rankNews, Kill: func(id rss.ProcID, sig syscall.Signal) error { return e.acts.Kill(id, sig) }, Override: opt.Link.Override,
	})
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolBy(ctx, opt.Link.Start, args...)
	}
	e.observe = observe.New(observe.Options{
		Settings: &e.Settings.Policy, Proc: opt.Proc, Sys: opt.Sys, Self: opt.Self, Lookup: opt.Lookup,
		Holder: begin.Holder, Command: command, Job: opt.Job, Probes: &e.probes, Scontrol: scontrol,
		Bell: e.bell, LimitMet: limitMet, LoaderNews: loaderNews, Stalled: stalled, Start: opt.Link.Start, Subreaper: opt.Link.Subreaper,
	})
	env := &action.Env{
		Observer: e.observe, Settings: &e.Settings.Policy, Able: opt.Able, Proc: opt.Proc, Sys: opt.Sys, Self: opt.Self, Attempt: begin.Attempt, Lookup: opt.Lookup, Now: e.now,
		View: e.view, Holder: opt.Link, Ranks: ranks{e}, Tell: e.tell,
	}
	e.oom = &action.OOMPrefer{Env: env}
	e.acts = action.New(env, action.Options{
		Probes: &e.probes, Scontrol: scontrol, Read: e.read, Ring: func() { e.bell.Ring(actionDue) },
	})
	e.slim.done = e.observe.Pop.Attached() // Slurm does not count us as the job's then
	e.tell.Sum.Watched = begin.Attempt <= 1 && !e.observe.Pop.Attached()
	return e
}

// open sets up everything that a run needs and says what was found. Nothing is
// said before the start event, which is the first.
func (e *engine) open(begin hold.Begin) {
	s := &e.Settings
	e.observe.Slurm.Asks = e.node.Joined() || e.observe.Pop.Attached()
	news := e.observe.Open(begin.Holder, begin.PID, e.node.Me.Step)
	e.acts.Ladder = policy.New(s.Rules, begin.Attempt)
	e.tell.Readers = tell.Readers{
		Counts: e.observe.Counts.Of, Pace: e.observe.Counts.Pace, Outside: e.observe.Limits.Outside, Kills: e.observe.Limits.OOMKills,
		Costs: func() ([]event.Cost, error) { return observe.OwnCost(e.Proc, begin.Holder, e.Self) },
	}
	e.tell.Record.Open(e.observe.Pop.Command, begin.Attempt, begin.Last)
	e.tell.Textfile.Open(e.observe.Pop.Name)
	if !e.node.Successor {
		e.read()
		e.tell.Start(e.starts(begin), e.view)
	}
	e.tell.Tell(e.now(), e.early)
	if e.takeLead() || e.node.Successor {
		e.read()
	}
	e.serve()
	if e.node.Successor {
		e.tell.StartAgain(e.starts(begin), e.view)
	}
	news.Fault("inotify", e.observe.WatchLimits(e.view.Limits))
	e.tell.Tell(e.now(), news)
	e.tell.Faults(e.now(), "start", s.Warnings...)
	if !s.RulesOfSite() { // those are for all jobs, and no job has all limits
		e.tell.Faults(e.now(), "start", phrase.Unmatched(s.Rules, e.view.Limits)...)
	}
	e.openAlerts()
	e.full()
	e.acts.SayLastAttempt()
	// Late and on the side: thousands of ranks that all ask at their start are a storm.
	e.acts.PrefetchJob(rand.N(5 * time.Second))
	e.observe.Slurm.Begin(e.now(), e.observe.Limits)
}

// openAlerts starts sending. A follower has no limits, and so no name for
// the job from there.
func (e *engine) openAlerts() {
	opt := tell.AlertOptions{Environ: hold.Environ(), Start: e.Link.Start, Step: e.node.Me.Step}
	if e.observe.Limits != nil {
		opt.Job, _, _ = strings.Cut(e.observe.Pop.Name, ".") // of a step that we attached to
		if job, in := e.observe.Limits.Job(); in && e.Able.Comment == "" {
			opt.CommentJob = tell.CommentJob(job, !e.node.Joined())
		}
	} else if job := e.tell.Run.Job; job != nil {
		opt.Job = job.ID
	}
	e.tell.Alerts.Open(opt, bootTime())
}

// starts is how we begin.
func (e *engine) starts(begin hold.Begin) *tell.Start {
	pop := e.observe.Pop
	s := &tell.Start{PID: begin.PID, Attempt: begin.Attempt, Job: pop.Name, Cannot: e.Able.Cannot, Rank: e.node.Me.Task}
	if pop.Attached() {
		if pop.FollowsJob() {
			s.Steps = pop.Job().String()
		}
		return s
	}
	s.Outer = population.OuterRun(e.Proc, begin.Holder)
	s.OuterBySite = s.Outer != 0 && population.BySite(e.Proc, s.Outer)
	if e.observe.Limits == nil || e.Able.Exit != "" { // another leads, or the user typed nothing
		return s
	}
	s.Slurm, s.Batch = e.observe.Limits.Job()
	if p, err := pop.Tree.One(begin.Holder); err == nil {
		if pp, err := pop.Tree.One(p.Parent); err == nil {
			s.Parent = pp.Comm
		}
	}
	return s
}
