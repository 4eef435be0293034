package action

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// Set is all actions, and what is in flight. Only the loop's goroutine touches it.
type Set struct {
	*Env
	Options
	all      map[event.Action]Action
	Tracer   *holderTracer
	programs *executing
	requeue  *requeuing
	flight   *Flight
	said     []Said   // by loaders, since the action in flight looked last
	came     arrivals // of the tracer, since then
	wakes    *time.Timer
	Requests *Requests
}

// Options are what a [Set] has of its loop.
type Options struct {
	Probes *probe.Set
	// Scontrol asks Slurm.
	Scontrol observe.Scontrol
	// Read reads everything again, into [Env.View]: what ended an action may be newer.
	Read func()
	// Ring wakes the loop to look at the action in flight, and at programs that have ended.
	Ring func()
}

// New returns all actions, none of which is in flight.
func New(e *Env, o Options) *Set {
	s := &Set{Env: e, Options: o}
	s.Tracer = newTracer(e, o.Probes, e.Attempt)
	s.programs = &executing{e, NewPrograms(e.Holder.Start, func(line string) { e.Tell.Info("exec: " + line) })}
	s.programs.ring = o.Ring
	s.requeue = &requeuing{Env: e, asking: newFactsReader(e.Proc, o.Scontrol)}
	s.Requests = &Requests{set: s}
	s.all = map[event.Action]Action{
		event.ActionWarn:    warning{e, s.requeue},
		event.ActionTrim:    trimming{s.Tracer},
		event.ActionRecycle: recycling{e},
		event.ActionGC:      collecting{e},
		event.ActionSignal:  signalling{e},
		event.ActionExec:    s.programs,
		event.ActionRequeue: s.requeue,
		event.ActionStop:    stopping{e},
	}
	return s
}

// settling is how long the outcome of an action waits for readings of PSS that
// tell its outcome.
const settling = time.Second

// InFlight is what is being done, nil for nothing.
func (a *Set) InFlight() *Flight { return a.flight }

// Leads are how much each limit grows by until the action of a rule takes effect, or until
// it is counted again, where that is anything. The hook is given budgets ahead instead.
func (a *Set) Leads() map[event.Ask]rss.Bytes {
	var all map[event.Ask]rss.Bytes
	for r, l := range a.Ladder.Uncrossed(a.View.Limits) {
		if n := a.Lead(r.Action, l); n > 0 {
			if all == nil {
				all = map[event.Ask]rss.Bytes{}
			}
			all[event.Ask{Rule: r, On: l.ID()}] = n
		}
	}
	return all
}

// Lead is by how much a limit grows until an action takes effect.
func (a *Set) Lead(of event.Action, l *event.Limit) rss.Bytes {
	if late, ok := a.all[of].(leading); ok {
		return late.Lead(l)
	}
	return 0
}

// Can says whether the action of a rule can help a limit now.
func (a *Set) Can(r event.Rule, l *event.Limit) event.Feasibility {
	if fits := r.Action.Fits(l); !fits.OK {
		return fits
	}
	switch does, ok := a.all[r.Action]; {
	case a.flight != nil && a.flight.manual && r.Action.Frees():
		return event.Feasibility{Reason: event.ReasonOccupied, Later: true} // what was asked for by hand ends first
	case ok:
		return does.Can(r, l)
	}
	return event.Feasibility{Reason: event.ReasonUnsupported}
}

func (a *Set) Decide(d event.Decision) {
	d.Head = event.Head{V: event.Version, Time: time.Now(), Event: event.NameDecision}
	a.Tell.Put(event.NameDecision, func(h event.Head) any { d.Head = h; return d })
	l := a.View.Limit(d.On)
	if w, ok := a.all[d.Action].(warning); ok {
		w.warn(&d, l)
		return
	}
	if asks, ok := a.all[d.Action].(asking); ok {
		r, over := Result{Reason: event.ReasonDryRun}, true
		if !a.Settings.DryRun {
			r, over = asks.Ask(d, l)
		}
		if over {
			a.answer(d, l, r)
		}
		return
	}
	if l == nil {
		// A decision is about a reading: this cannot happen. The ladder would wait.
		a.Ladder.Done(event.Outcome{Decision: d.ID, Reason: event.ReasonError})
		return
	}
	if a.flight != nil {
		// Only a stop does not wait. The ladder is to hear of what it overtook,
		// or it would wait for that where the stop fails.
		a.finish(Result{Reason: event.ReasonError, Detail: "overtaken by " + d.Rule})
	}
	a.fly(&Flight{Decision: d, Began: a.Now(), Before: *l, rate: a.View.Latest(l)}, func(f *Flight) (Running, Result) {
		begins, ok := a.all[d.Action].(beginning)
		switch {
		case a.Settings.DryRun:
			r := Result{Reason: event.ReasonDryRun}
			if would, ok := begins.(recycling); ok {
				if u, reason := would.pick(l); reason == event.ReasonNone {
					r.PID = u.ID.PID
				}
			}
			return nil, r
		case !ok:
			return nil, Result{Reason: event.ReasonUnsupported}
		}
		return begins.Begin(f, l)
	})
}

// fly begins an action, and ends it where it is over at once.
func (a *Set) fly(f *Flight, begin func(*Flight) (Running, Result)) {
	a.flight, a.said, a.came = f, nil, arrivals{}
	run, r := begin(f)
	if a.flight != f {
		return
	}
	if f.Running = run; run == nil {
		a.finish(r)
		return
	}
	if _, traces := run.(*trace); traces {
		a.Advance() // the plan is asked for now, not with the next sample
	}
}

// answer reports the result of a decision that only asked another process. It frees
// nothing by itself, and does not claim what is freed meanwhile or later.
func (a *Set) answer(d event.Decision, l *event.Limit, r Result) {
	o := event.Outcome{Decision: d.ID, OK: r.OK, Reason: r.Reason, Detail: r.Detail, PID: r.PID, Before: d.Used, After: d.Used, Duration: r.Took.Seconds(), Exit: r.Exit}
	if l != nil {
		if now := a.View.Limit(l.ID()); now != nil {
			o.After = now.Used // a command of exec= may have run for long
		}
	}
	a.Tell.Outcome(&d, &o)
	a.Tell.About(a.Now(), &d, l, "", phrase.Outcome(&d, &o, 0))
}

func (a *Set) finish(r Result) {
	f, o := a.conclude(r)
	if f.manual {
		a.Requests.stepDone(f, &o)
		return
	}
	share := ""
	if share = phrase.Leap(&f.Decision); share == "" && f.Decision.Lead > 0 {
		share = phrase.Rising(f.rate)
	}
	a.Tell.About(a.Now(), &f.Decision, &f.Before, share, phrase.Outcome(&f.Decision, &o, len(f.Acted.Procs)))
}

// conclude ends the action in flight without a line on stderr.
func (a *Set) conclude(r Result) (*Flight, event.Outcome) {
	f := a.flight
	f.over = true
	a.flight, a.said, a.came = nil, nil, arrivals{}
	now := a.Now()
	o := event.Outcome{
		Decision: f.Decision.ID, OK: r.OK, Reason: r.Reason, Detail: r.Detail, PID: r.PID,
		Before: f.Before.Used, After: f.Before.Used,
		Duration: (now - f.Began).Seconds(), Paused: r.Paused.Seconds(), Stopped: r.Stopped.Seconds(),
	}
	if l := a.View.Limit(f.Before.ID()); l != nil {
		o.After = certain(l)
	}
	if r.OK && f.target != "" {
		o.Detail = f.target
	}
	if r.OK && f.Decision.Action != event.ActionRequeue {
		// Others grow meanwhile, so the limit's own fall understates what the
		// processes acted on gave back; both are measured.
		o.Freed = o.Before.Sub(o.After)
		given := a.Workers.GivenBack(&f.Acted, &f.Before)
		if f.Before.Accounting == event.AccountingPSS {
			a.PSS.Acted()
			given, _ = a.Workers.OwnBack(&f.Acted)
		}
		o.Freed = max(o.Freed, given)
	}
	told := o
	if f.target != "" {
		// What was not meant goes on, and so does what judges it.
		told.OK = false
	}
	a.Ladder.Pass(now) // what it repeats it repeats from now on
	a.Ladder.Done(told)
	if r.OK && f.Decision.Action == event.ActionRecycle {
		a.Workers.RecycleTook = now - f.Began
		worker := &f.Acted.Procs[0]
		a.Tell.Status.CountRecycled(a.Ranks.Key(worker.Parent))
		if f.Acted.Pool != nil {
			a.Tell.Status.ReplacedIn(&a.View.Sample, worker)
		}
	}
	a.Tell.Outcome(&f.Decision, &o)
	return f, o
}

// Step looks whether the action in flight has ended.
func (a *Set) Step() {
	f := a.flight
	if f == nil || f.Running == nil {
		return
	}
	if f.result == nil {
		r, done := f.Running.Step(a.world(a.View.Sample.Mono))
		a.wake(f.Running)
		if !done {
			return
		}
		// The last sample may be older than what ended the action.
		a.Read()
		f.result, f.until = &r, a.Now()+settling
	}
	if f.result.OK && a.Now() < f.until && a.uncertain(&f.Before) {
		if _, known := a.Workers.OwnBack(&f.Acted); !known {
			return
		}
	}
	a.finish(*f.result)
}

// certain is the use of a limit, at most.
func certain(l *event.Limit) rss.Bytes {
	if l.Accounting == event.AccountingPSS {
		return l.UsedMax
	}
	return l.Used
}

// uncertain says that the use of a limit is not known well enough to measure by: a worker
// that ended has left its shared pages to the others, and only a new reading of PSS shows
// how many.
func (a *Set) uncertain(before *event.Limit) bool {
	l := a.View.Limit(before.ID())
	return l != nil && l.Accounting == event.AccountingPSS && l.UsedMax-l.Used >= event.MinGain(0)
}

// world is what an action in flight may look at, and has looked at then.
func (a *Set) world(now time.Duration) World {
	f := a.flight
	at := World{Now: now, Sample: &a.View.Sample, Said: a.said, Planned: a.came.planned, Taken: a.came.taken, Used: f.Before.Used}
	if l := a.View.Limit(f.Before.ID()); l != nil {
		at.Used = certain(l)
	}
	a.said, a.came = nil, arrivals{}
	return at
}

func (a *Set) Hear(s Said) {
	if a.flight != nil && a.flight.result == nil {
		a.said = append(a.said, s)
	}
}

// Heard says that there is a report that the action in flight has not looked at.
func (a *Set) Heard() bool { return len(a.said) > 0 }

// Planned takes in what a process has to give back, if that was read, and says whether a
// full read is called for.
func (a *Set) Planned() bool {
	p, ok := a.Tracer.planned()
	if !ok {
		return false
	}
	a.came.planned = append(a.came.planned, p)
	return a.Advance()
}

// Trimmed takes in that a piece was given back, or why not: [Set.Advance] goes on with it.
func (a *Set) Trimmed(answer hold.TrimAnswer) {
	if of, ours := a.Tracer.taken(answer); ours {
		a.came.taken = append(a.came.taken, of)
	}
}

// Advance lets the action in flight go on with what came for it, and says
// whether a full read is called for: it has ended, or needs one.
func (a *Set) Advance() bool {
	f := a.flight
	if f == nil || f.Running == nil || f.result != nil {
		a.came = arrivals{}
		return false
	}
	r, done := f.Running.Step(a.world(a.Now()))
	a.wake(f.Running)
	if done {
		f.result, f.until = &r, a.Now()+settling
	}
	return done || Awaits(f.Running)
}

// wake has the loop look at an action again when that asks for it.
func (a *Set) wake(r Running) {
	switch at := Wakes(r); {
	case at == 0:
	case a.wakes == nil:
		a.wakes = time.AfterFunc(max(at-a.Now(), 0), a.Ring)
	default:
		a.wakes.Reset(max(at-a.Now(), 0))
	}
}

// TracesFor says that a limit counts what processes give back by ptrace.
func (a *Set) TracesFor(l *event.Limit) bool { return trimming{a.Tracer}.tracesFor(l) }

// UntilTraced is by how much a limit grows until a trim by ptrace takes effect.
func (a *Set) UntilTraced(l *event.Limit) rss.Bytes { return trimming{a.Tracer}.growthUntilTraced(l) }

// Next is the use from which on a limit with this use is judged again: its
// next rung, or, where rungs were crossed, a little more: a worker that had
// nothing to give back may have by then. It is always above used.
func (a *Set) Next(l *event.Limit, used rss.Bytes) rss.Bytes {
	first := a.Ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit}).Sub(a.UntilTraced(l))
	next := max(first, used+max(event.MinGain(0), l.Limit/100))
	if rung := a.Ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit, Used: used}); rung > used {
		next = min(next, rung)
	}
	return next
}

// PrefetchJob has Slurm asked about the job ahead, see [requeuing.prefetchJob].
func (a *Set) PrefetchJob(delay time.Duration) { a.requeue.prefetchJob(delay) }

// Receivers are the processes that a signal= rule goes to, and why to no others.
func (a *Set) Receivers(r event.Rule, l *event.Limit) ([]*rss.Proc, event.Feasibility) {
	return signalling{a.Env}.receivers(r, l)
}

// Recyclable are the workers that could be recycled for a limit.
func (a *Set) Recyclable(l *event.Limit) []workers.Usage { return recycling{a.Env}.recyclable(l) }

// AsksSlurm says that the facts about the job are being asked for.
func (a *Set) AsksSlurm() bool { return a.requeue.asking.Busy() }

// Requeued is how the job was put into the queue, nil where it was not.
func (a *Set) Requeued() *tell.Requeued { return a.requeue.done }

// HearSignal takes in one that the holder got: a command that was asked to end has not ended by
// itself.
func (a *Set) HearSignal(s hold.Signal) {
	switch unix.Signal(s.Signal) {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT:
		if u := a.requeue.under; u != nil && u.sent == nil {
			a.requeue.asked = tell.SignalName(s.Signal)
		}
	}
}

// Ended yields the programs of exec= that have ended, for [Set.Ran].
func (a *Set) Ended() <-chan Ran { return a.programs.Ended() }

func (a *Set) HearPrograms() {
	for {
		select {
		case r := <-a.programs.Ended():
			a.Ran(r)
		default:
			return
		}
	}
}

// Ran says what came of a program, and starts the next.
func (a *Set) Ran(r Ran) {
	a.answer(r.decision, r.limit, r.Result)
	a.programs.Next()
	a.Ranks.SaveHandover()
}

// Waiting is the decision on a program that waits for another, 0 for none.
func (a *Set) Waiting() uint64 { return a.programs.Waiting() }

// KeepRequeue has a requeue that only waited for its checkpoint count as begun: our command
// has ended by itself, and we see to it, see [Set.End].
func (a *Set) KeepRequeue() {
	if f := a.flight; f != nil && f.Decision.Action == event.ActionRequeue && a.requeue.asked == "" {
		a.Ladder.Begun(f.Decision.ID)
	}
}

// LastPatience is how long a program of exec= may go on when what is watched has
// ended: it may be the one that notifies the user.
const LastPatience = 700 * time.Millisecond

func (a *Set) Close() {
	for _, r := range a.programs.Close(LastPatience) {
		a.answer(r.decision, r.limit, r.Result)
	}
}

// End ends the action in flight, which the command's end has ended: for a stop that
// is what was wanted, and what that has ended beside the command is returned.
func (a *Set) End(said bool) (ended []rss.ProcID) {
	if a.flight == nil {
		return nil
	}
	r := Result{Reason: event.ReasonVanished}
	switch a.flight.Decision.Action {
	case event.ActionRequeue:
		a.finish(a.requeue.end(a.flight, said)) // what became of the job is to be read
		return nil
	case event.ActionStop:
		if a.Tell.Sum.Stopped || a.Pop.Attached() {
			r = Result{OK: true, Reason: event.ReasonDone}
			ended = stopping{a.Env}.endLeft()
		} else {
			r.Detail = fmt.Sprintf("our command, which was not meant; %s is stopped without us", a.flight.target)
		}
	}
	a.conclude(r)
	return ended
}
