package action

import (
	"cmp"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// trimming has processes give mapped file pages back: those with the hook first, and by ptrace
// what is then still above the goal.
type trimming struct{ *Tracer }

func (a trimming) Can(_ event.Rule, l *event.Limit) event.Feasibility {
	if a.Settings.Trim == settings.TrimPtrace && a.traces() {
		return a.canTrace(l)
	}
	hook := a.canTrimByHook(l)
	if !a.traces() {
		return hook
	}
	trace := a.canTrace(l)
	switch {
	case hook.OK || trace.OK:
		return event.Feasibility{OK: true, Gain: hook.Gain + trace.Gain}
	case trace.Reason == event.ReasonNoWorker && hook.Reason == event.ReasonNothing:
		return hook
	case trace.Reason == event.ReasonNoWorker:
		trace.Detail = strings.TrimPrefix(a.Workers.NoHello()+"; "+trace.Detail, "; ")
	}
	return trace
}

// Lead is that of the part which begins first.
func (a trimming) Lead(l *event.Limit) rss.Bytes {
	if lead := a.trimAhead(l); lead > 0 {
		return lead
	}
	if lead := a.growthUntilTraced(l); lead > 0 && a.canTrace(l).OK {
		return lead
	}
	return 0
}

// muchMapped is the share of a limit that workers must have mapped to be trimmed ahead
// of the rung.
const muchMapped = 0.02

// canTrimByHook answers for the part of a trim that is done by the hook.
func (a trimming) canTrimByHook(l *event.Limit) event.Feasibility {
	if !a.Settings.Trim.Hook() || a.Loader == nil {
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: cmp.Or(a.Able.Hook, noHook)}
	}
	mappers := a.Workers.Mappers(l.Accounting)
	if len(mappers) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker, Detail: a.Workers.NoHello()}
	}
	var gain rss.Bytes
	for _, m := range mappers {
		gain += a.Workers.Trimmable(m)
	}
	if gain == 0 {
		return event.Feasibility{Reason: event.ReasonNothing}
	}
	return event.Feasibility{OK: true, Gain: gain}
}

// traces says that processes may be traced: never those that rsswarden did not
// start.
func (a trimming) traces() bool { return a.Settings.Trim.Ptrace() && a.Able.Ptrace == "" }

// tracesFor says that a limit counts what they give back.
func (a trimming) tracesFor(l *event.Limit) bool {
	return a.traces() && event.ActionTrim.Fits(l).OK
}

// canTrace answers for the part of a trim that is done by ptrace.
func (a trimming) canTrace(l *event.Limit) event.Feasibility {
	list, h := a.Tracees(l.Accounting)
	for _, e := range list {
		h.Gain += a.Workers.Trimmable(e)
	}
	h.OK = len(list) > 0
	return h
}

func (a trimming) Begin(f *Flight, l *event.Limit) (Running, Result) {
	var pids []int
	if a.Settings.Trim.Hook() && a.Loader != nil {
		for _, m := range a.Workers.Mappers(l.Accounting) {
			if a.Workers.Trimmable(m) > 0 && a.View.Sample.Find(m.ID.PID) != nil {
				pids = append(pids, m.ID.PID)
			}
		}
	}
	f.actOn(&a.View.Sample, pids)
	var run Running
	switch {
	case !a.traces():
		run = Trim(a.Loader, pids, f.Began)
	case len(pids) > 0:
		run = Then(Trim(a.Loader, pids, f.Began), func(at World) Running { return a.trace(f, at.Used, at.Now) })
	default:
		run = a.trace(f, f.Before.Used, f.Began)
	}
	if run == nil {
		return nil, Result{Reason: event.ReasonNothing}
	}
	return run, Result{}
}

func (a trimming) targets(cmd *control.Command) []target {
	var pids []int
	for _, m := range a.Workers.Mappers(event.AccountingRSS) {
		pids = append(pids, m.ID.PID)
	}
	return a.hookTargets(cmd, pids)
}

func (a trimming) beginFor(f *Flight, pids []int) (Running, Result) {
	return Trim(a.Loader, pids, f.Began), Result{}
}

func (a trimming) instead() string { return "%s does it by ptrace, which needs no hook" }

// trace begins the part of a trim that is done by ptrace, of a limit with the use
// used: nil where there is no need of it.
func (a trimming) trace(f *Flight, used rss.Bytes, now time.Duration) Running {
	goal := a.goalOf(f, used)
	list, _ := a.Tracees(f.Before.Accounting)
	if used < goal.Below || len(list) == 0 {
		return nil
	}
	var all []*Tracee
	for _, m := range list {
		all = append(all, &Tracee{ID: m.ID, Share: m.CountedMapped.Of(m.Mapped)})
	}
	a.flight = f
	return Trace(a.Tracer, all, goal, now)
}

// firstTraceTime is for how long growth goes on, as long as nothing was trimmed,
// from a look until the first process has given pages back by ptrace: where all
// processors of a node are taken, that is 300 ms.
const firstTraceTime = 500 * time.Millisecond

// traceTimes is the time that it took when it was measured last, and twice that
// counts: some tens of milliseconds where there are processors to spare.
type traceTimes struct{ last time.Duration }

func (t *traceTimes) add(d time.Duration) { t.last = max(d, t.last*3/4) }

func (t *traceTimes) expected() time.Duration {
	if t.last == 0 {
		return firstTraceTime
	}
	return min(2*t.last, 2*firstTraceTime)
}

// mostLead is how far ahead of its rung an action may begin, of the limit.
const mostLead = 0.15

// growthUntilTraced is by how much a limit grows until a trim by ptrace takes effect: 15
// points at most. What has its pages back within a second of each trim, and would
// have stayed below that by itself, is not trimmed for ever.
func (a trimming) growthUntilTraced(l *event.Limit) rss.Bytes {
	if !a.tracesFor(l) {
		return 0
	}
	return min(rss.Bytes(a.View.Latest(l)*a.times.expected().Seconds()), l.Limit.Scale(mostLead))
}

// growthRoom is for how long what grows at the rate seen is to stay below the
// rung: in the processes that are trimmed nothing holds growth back between two
// trims, as the hook's budgets do.
const growthRoom = time.Second

// goalOf is the use at which the rung counts as left, and what is to grow until
// it is met again. A forecast says nothing about amounts.
func (a trimming) goalOf(f *Flight, used rss.Bytes) Goal {
	goal := Goal{Used: used, Lags: f.Before.Accounting == event.AccountingPSS}
	if f.Decision.Asked() {
		return goal
	}
	if need := f.Decision.Rung.Need(&f.Before); need > 0 {
		growth := rss.Bytes(a.View.Latest(&f.Before) * growthRoom.Seconds())
		goal.Below = max(f.Before.Used.Sub(need+growth), 1)
	}
	return goal
}

// trimAhead is how far below its rung a trim by the hook begins: from the rung of the
// warning on, where that gives back much for certain. Above it workers keep to budgets
// that leave each the least, and what many have together then may be all that is left
// for what the trainer needs all at once. slurmstepd kills on it.
func (a trimming) trimAhead(l *event.Limit) rss.Bytes {
	rung, ok := a.Ladder.Rung(event.ActionTrim, l)
	if !ok || l.Name != event.LimitSlurm {
		return 0
	}
	at, ok := a.Ladder.Rung(event.ActionWarn, l)
	if !ok || at >= rung || l.Used < at {
		return 0
	}
	if h := a.canTrimByHook(l); !h.OK || h.Gain < max(event.MinGain(0), l.Limit.Scale(muchMapped)) {
		return 0
	}
	return min(rung-at, l.Limit.Scale(mostLead))
}
