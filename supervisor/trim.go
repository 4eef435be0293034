package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

func (w *watcher) canTrim(l *event.Limit) event.Feasibility {
	if l.Accounting != event.AccountingRSS && l.Accounting != event.AccountingPSS {
		return event.Feasibility{Reason: event.ReasonNoHelp, Detail: "mapped file pages do not count here"}
	}
	if w.Settings.Trim == settings.TrimPtrace && w.traces() {
		return w.canTrace(l)
	}
	hook := w.canTrimByHook(l)
	if !w.traces() {
		return hook
	}
	trace := w.canTrace(l)
	switch {
	case hook.OK || trace.OK:
		return event.Feasibility{OK: true, Gain: hook.Gain + trace.Gain}
	case trace.Reason == event.ReasonNoWorker && hook.Reason == event.ReasonNothing:
		return hook
	case trace.Reason == event.ReasonNoWorker:
		trace.Detail = w.observe.Workers.NoHello() + ", and " + trace.Detail
	}
	return trace
}

// muchMapped is the share of a limit that workers must have mapped to be trimmed ahead
// of the rung.
const muchMapped = 0.02

// canTrimByHook answers for the part of a trim that is done by the hook.
func (w *watcher) canTrimByHook(l *event.Limit) event.Feasibility {
	if !w.Settings.Trim.Hook() || w.observe.Loader == nil {
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: cmp.Or(w.Able.Hook, noHook)}
	}
	mappers := w.observe.Workers.Mappers(l.Accounting)
	if len(mappers) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker, Detail: w.observe.Workers.NoHello()}
	}
	var gain rss.Bytes
	for _, m := range mappers {
		gain += w.observe.Workers.Trimmable(m)
	}
	if gain == 0 {
		return event.Feasibility{Reason: event.ReasonNothing}
	}
	return event.Feasibility{OK: true, Gain: gain}
}

// traces says that processes may be traced: never those that somebody else
// started.
func (w *watcher) traces() bool { return w.Settings.Trim.Ptrace() && w.Able.Ptrace == "" }

// tracesFor says that a limit counts what they give back.
func (w *watcher) tracesFor(l *event.Limit) bool {
	return w.traces() && (l.Accounting == event.AccountingRSS || l.Accounting == event.AccountingPSS)
}

// canTrace answers for the part of a trim that is done by ptrace.
func (w *watcher) canTrace(l *event.Limit) event.Feasibility {
	list, h := w.tracees(l.Accounting)
	for _, e := range list {
		h.Gain += w.observe.Workers.Trimmable(e)
	}
	h.OK = len(list) > 0
	return h
}

// beginTrim has processes give mapped pages back: those with the hook first,
// and by ptrace what is then still above the goal.
func (w *watcher) beginTrim(f *inFlight, l *event.Limit) {
	var hooked []workers.Usage
	if w.Settings.Trim.Hook() && w.observe.Loader != nil {
		hooked = slices.DeleteFunc(w.observe.Workers.Mappers(l.Accounting), func(m workers.Usage) bool { return w.observe.Workers.Trimmable(m) == 0 })
	}
	if f.running = w.trimming(f, hooked, f.before.Used, f.began); f.running == nil {
		w.finish(action.Result{Reason: event.ReasonNothing})
		return
	}
	if len(hooked) == 0 && w.traces() {
		w.advance() // the plan is asked for now, not with the next sample
	}
}

// trimming begins a trim, of a limit that stands at used: nil where nobody is
// there to be trimmed.
func (w *watcher) trimming(f *inFlight, hooked []workers.Usage, used rss.Bytes, now time.Duration) action.Running {
	var pids []int
	for _, m := range hooked {
		if p := w.view.Sample.Find(m.ID.PID); p != nil {
			pids = append(pids, m.ID.PID)
			f.acted.Procs = append(f.acted.Procs, *p)
		}
	}
	switch {
	case !w.traces():
		return action.Trim(w.observe.Loader, pids, now)
	case len(pids) > 0:
		return action.Then(action.Trim(w.observe.Loader, pids, now), func(at action.World) action.Running {
			return w.trace(f, f.before.Accounting, at.Used, at.Now)
		})
	}
	return w.trace(f, f.before.Accounting, used, now)
}

// trace begins the part of a trim that is done by ptrace, of a limit that stands
// at used: nil where there is no need of it.
func (w *watcher) trace(f *inFlight, a event.Accounting, used rss.Bytes, now time.Duration) action.Running {
	goal := w.goalOf(f, used)
	list, _ := w.tracees(a)
	if used < goal.Below || len(list) == 0 {
		return nil
	}
	mappers := make([]action.Mapper, len(list))
	for i, m := range list {
		mappers[i] = action.Mapper{ID: m.ID, Share: m.CountedMapped.Of(m.Mapped)}
	}
	return action.Trace(traced{w}, mappers, goal, now)
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

// growthUntilTraced is the same, whoever is there to be trimmed: 15
// points at most. What has its pages back within a second of each trim, and would
// have stayed below that by itself, is not trimmed for ever.
func (w *watcher) growthUntilTraced(l *event.Limit) rss.Bytes {
	if !w.tracesFor(l) {
		return 0
	}
	rate := w.view.Rate(l)
	return min(rss.Bytes(rate.Latest(w.now())*w.tracer.times.expected().Seconds()), l.Limit.Scale(mostLead))
}

// growthRoom is for how long what grows at the rate seen is to stay below the
// rung: in the processes that are trimmed nothing holds growth back between two
// trims, as the hook's budgets do.
const growthRoom = time.Second

// goalOf is the use at which the rung counts as left, and what is to grow until
// it is met again. A forecast says nothing about amounts.
func (w *watcher) goalOf(f *inFlight, used rss.Bytes) action.Goal {
	goal := action.Goal{Used: used, Lags: f.before.Accounting == event.AccountingPSS}
	if f.decision.Asked() {
		return goal
	}
	if need := f.decision.Rung.Need(&f.before); need > 0 {
		rate := w.view.Rate(&f.before)
		growth := rss.Bytes(rate.Latest(w.now()) * growthRoom.Seconds())
		goal.Below = max(f.before.Used.Sub(need+growth), 1)
	}
	return goal
}

// trimAhead is how far below its rung a trim by the hook begins: from the rung of the
// warning on, where that gives back much for certain. Above it workers keep to budgets
// that leave each the least, and what many have together then may be all that is left
// for what the trainer needs all at once. slurmstepd kills on it.
func (w *watcher) trimAhead(l *event.Limit) rss.Bytes {
	rung, ok := w.ladder.Rung(event.ActionTrim, l)
	if !ok || l.Name != event.LimitSlurm {
		return 0
	}
	at, ok := w.ladder.Rung(event.ActionWarn, l)
	if !ok || at >= rung || l.Used < at {
		return 0
	}
	if h := w.canTrimByHook(l); !h.OK || h.Gain < max(event.MinGain(0), l.Limit.Scale(muchMapped)) {
		return 0
	}
	return min(rung-at, l.Limit.Scale(mostLead))
}
