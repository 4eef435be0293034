package supervisor

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

// certain is what a limit stands at, at most.
func certain(l *event.Limit) rss.Bytes {
	if l.Accounting == event.AccountingPSS {
		return l.UsedMax
	}
	return l.Used
}

// vague says that what a limit stands at is not known well enough to measure
// by: a worker that ended has left its shared pages to the others, and only
// new readings of PSS tell.
func (w *watcher) vague(before *event.Limit) bool {
	l := w.view.Limit(before.ID())
	return l != nil && l.Accounting == event.AccountingPSS && l.UsedMax-l.Used >= event.MinGain(0)
}

// finish measures the outcome of an action and says so.
func (w *watcher) finish(r action.Result) {
	f, o := w.conclude(r)
	if f.manual {
		w.stepDone(f, &o)
		return
	}
	w.tell.Say(w.now(), f.decision.Rule+"@"+string(f.decision.Limit), phrase.Memory(&f.before)+": "+phrase.Outcome(&f.decision, &o))
}

// conclude ends the action in flight without a line on stderr.
func (w *watcher) conclude(r action.Result) (*inFlight, event.Outcome) {
	f := w.flight
	w.flight, w.said, w.came = nil, nil, arrivals{}
	now := w.now()
	o := event.Outcome{
		Decision: f.decision.ID, OK: r.OK, Reason: r.Reason, Detail: r.Detail, PID: r.PID,
		Before: f.before.Used, After: f.before.Used,
		Duration: (now - f.began).Seconds(), Paused: r.Paused.Seconds(), Stopped: r.Stopped.Seconds(),
	}
	if l := w.view.Limit(f.before.ID()); l != nil {
		o.After = certain(l)
	}
	if r.OK && f.target != "" {
		o.Detail = f.target
	}
	if r.OK && f.decision.Action != event.ActionRequeue {
		// Others grow meanwhile, so the limit's own fall understates what the
		// processes acted on gave back; both are measured.
		o.Freed = o.Before.Sub(o.After)
		given := w.observe.Workers.GivenBack(&f.acted, &f.before)
		if f.before.Accounting == event.AccountingPSS {
			w.observe.PSS.Acted()
			given, _ = w.observe.Workers.OwnBack(&f.acted)
		}
		o.Freed = max(o.Freed, given)
	}
	told := o
	if f.target != "" {
		// What was not meant goes on, and so does what judges it.
		told.OK = false
	}
	w.ladder.Pass(now) // what it repeats it repeats from now on
	w.ladder.Done(told)
	if r.OK && f.decision.Action == event.ActionRecycle {
		w.observe.Workers.RecycleTook(now - f.began)
		if f.acted.Pool == nil {
			w.tell.Sum.Done.Forked++
			w.tell.Status.CountRecycled(w.owner(f.acted.Procs[0].Parent).Holder)
		}
	}
	w.tell.Outcome(&f.decision, &o)
	return f, o
}
