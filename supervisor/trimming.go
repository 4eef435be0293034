package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file trims: by the hook, and by ptrace where that was asked for.

func (w *watcher) canTrim(l *event.Limit) policy.Help {
	switch {
	case l.Accounting != event.AccountingRSS && l.Accounting != event.AccountingPSS:
		return policy.Help{Reason: event.ReasonNoHelp, Detail: "mapped file pages do not count here"}
	case w.Settings.Trim == TrimPtrace && w.traces():
		return w.canTrace(l)
	}
	hook := w.canTrimByHook(l)
	if !w.traces() {
		return hook
	}
	trace := w.canTrace(l)
	switch {
	case hook.OK || trace.OK:
		return policy.Help{OK: true, Gain: hook.Gain + trace.Gain}
	case trace.Reason == event.ReasonNoWorker && hook.Reason == event.ReasonNothing:
		return hook
	case trace.Reason == event.ReasonNoWorker:
		trace.Detail = "no PyTorch loader said hello, and " + trace.Detail
	}
	return trace
}

// canTrimByHook answers for the part of a trim that is done by the hook.
func (w *watcher) canTrimByHook(l *event.Limit) policy.Help {
	if !w.Settings.Trim.Hook() || w.loader == nil {
		return policy.Help{Reason: event.ReasonUnsupported, Detail: w.noHook()}
	}
	mappers := w.workers.mappers(&w.last, l.Accounting)
	if len(mappers) == 0 {
		return policy.Help{Reason: event.ReasonNoWorker, Detail: "no PyTorch loader said hello"}
	}
	var gain rss.Bytes
	for _, m := range mappers {
		gain += w.workers.trimmable(m)
	}
	if gain == 0 {
		return policy.Help{Reason: event.ReasonNothing}
	}
	return policy.Help{OK: true, Gain: gain}
}

// traces says that processes may be traced: never those that somebody else
// started.
func (w *watcher) traces() bool { return w.Settings.Trim.Ptrace() && w.Attached == nil }

// canTrace answers for the part of a trim that is done by ptrace.
func (w *watcher) canTrace(l *event.Limit) policy.Help {
	list, h := w.tracees(l.Accounting)
	for _, e := range list {
		h.Gain += w.workers.trimmable(e)
	}
	h.OK = len(list) > 0
	return h
}

// beginTrim has processes give mapped pages back: those with the hook first,
// and by ptrace what is then still above the goal.
func (w *watcher) beginTrim(f *inFlight, l *event.Limit) {
	var pids []int
	if w.Settings.Trim.Hook() && w.loader != nil {
		for _, m := range w.workers.mappers(&w.last, l.Accounting) {
			if w.workers.trimmable(m) > 0 {
				pids = append(pids, m.ID.PID)
				f.actedOn = append(f.actedOn, *w.last.Find(m.ID.PID))
			}
		}
	}
	switch {
	case !w.traces():
		f.running = action.Trim(w.loader, pids, f.began)
	case len(pids) > 0:
		f.running = action.Then(action.Trim(w.loader, pids, f.began), func(at action.World) action.Running {
			return w.trace(f, l.Accounting, at.Used, at.Now)
		})
	default:
		if f.running = w.trace(f, l.Accounting, f.before.Used, f.began); f.running == nil {
			w.finish(action.Result{Reason: event.ReasonNothing})
			return
		}
		w.advance() // the plan is asked for now, not with the next sample
	}
}

// trace begins the part of a trim that is done by ptrace, of a limit that stands
// at used: nil where there is no need of it.
func (w *watcher) trace(f *inFlight, a event.Accounting, used rss.Bytes, now time.Duration) action.Running {
	goal := goalOf(f, used)
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

// goalOf is the use at which the rung counts as left. A forecast says nothing
// about amounts.
func goalOf(f *inFlight, used rss.Bytes) action.Goal {
	goal := action.Goal{Used: used, Lags: f.before.Accounting == event.AccountingPSS}
	if r, err := policy.ParseRule(f.decision.Rule); err == nil {
		if need := r.Need(&f.before); need > 0 {
			goal.Below = f.before.Used.Sub(need)
		}
	}
	return goal
}
