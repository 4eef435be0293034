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
	l := reading(w.readings, before.ID())
	return l != nil && l.Accounting == event.AccountingPSS && l.UsedMax-l.Used >= event.MinGain(0)
}

// finish measures what an action brought and says so.
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
	if l := reading(w.readings, f.before.ID()); l != nil {
		o.After = certain(l)
	}
	if r.OK && f.target != "" {
		o.Detail = f.target
	}
	if r.OK && f.decision.Action != event.ActionRequeue {
		// Others grow meanwhile, so the limit's own fall understates what the
		// processes acted on gave back; both are measured.
		o.Freed = o.Before.Sub(o.After)
		given := w.givenBack(f)
		w.replaced(f)
		if f.before.Accounting != event.AccountingPSS {
			o.Freed = max(o.Freed, given)
		}
		if f.before.Accounting == event.AccountingPSS {
			w.pss.acted()
			own, _ := w.ownBack(f)
			o.Freed = max(o.Freed, own)
		}
	}
	told := o
	if f.target != "" {
		// What was not meant goes on, and so does what judges it.
		told.OK = false
	}
	w.ladder.Pass(now) // what it repeats it repeats from now on
	w.ladder.Done(told)
	if r.OK && f.decision.Action == event.ActionRecycle && f.pool == nil {
		w.sum.Done.Forked++
		w.serving.manual.count(w.rankKey(f.actedOn[0].Parent))
	}
	w.publish(&f.decision, &o)
	return f, o
}

// givenBack is what the processes acted on counted before, less what they and
// those in their places count now. One that has ended and was not replaced gave
// nothing back by what we did.
func (w *watcher) givenBack(f *inFlight) rss.Bytes {
	a := f.before.Accounting
	var before, after rss.Bytes
	known := map[rss.ProcID]bool{}
	for i := range f.actedOn {
		p := &f.actedOn[i]
		known[p.ID] = true
		q := w.last.Find(p.ID.PID)
		if next, ok := w.workers.took[p.ID.PID]; ok {
			q = w.last.Find(next)
		} else if q != nil && q.ID != p.ID {
			q = nil
		}
		if q != nil {
			after += counted(q, a)
		}
		if q != nil || f.pool != nil {
			before += counted(p, a)
		}
	}
	if a == event.AccountingCgroup && f.heap > 0 && after > 0 {
		// What each shares with the trainer is charged to that, and what the trainer
		// has dropped since to the workers.
		heap := w.heapOf(w.workers.took[f.actedOn[0].ID.PID])
		if t := w.last.Find(f.actedOn[0].Parent); t != nil && heap > 0 {
			before, after = before.Sub(min(f.heap, t.Anon)), after.Sub(min(heap, t.Anon))
		}
	}
	for _, id := range f.pool {
		known[id] = true
	}
	if f.pool != nil {
		sure, _ := w.pool.workers(&w.last)
		for _, id := range sure {
			if e := w.workers.staff[id.PID]; e != nil && !known[id] {
				e.fresh = true
				f.replaces(e)
				after += counted(w.last.Find(id.PID), a)
			}
		}
	}
	return before.Sub(after)
}

// ownBack is what a loader's worker had of its own that was recycled, less what the one
// in its place has; ok is false where nobody knows. It came after their forks, so nobody
// shares it, and it counts in full whatever PSS was read when.
func (w *watcher) ownBack(f *inFlight) (own rss.Bytes, ok bool) {
	if f.heap == 0 || len(f.actedOn) != 1 {
		return 0, false
	}
	was := &f.actedOn[0]
	next := w.workers.took[was.ID.PID]
	q, heap := w.last.Find(next), w.heapOf(next)
	if q == nil || heap == 0 {
		return 0, false
	}
	return was.Anon.Sub(f.heap).Sub(q.Anon.Sub(heap)), true
}

// heapOf is what a worker shares with its trainer, 0 where nobody knows.
func (w *watcher) heapOf(pid int) rss.Bytes {
	if e := w.workers.staff[pid]; e != nil {
		return e.warm.heap
	}
	return 0
}

// replaced notes for whose sake a worker took another's place, and what that stood at.
func (w *watcher) replaced(f *inFlight) {
	for i := range f.actedOn {
		if e := w.workers.staff[w.workers.took[f.actedOn[i].ID.PID]]; e != nil {
			f.replaces(e)
		}
	}
}

// replaces notes that e took the place of the one acted on.
func (f *inFlight) replaces(e *worker) {
	e.stood, e.stoodAt, e.hurried = f.before.Used, f.before.ID(), f.hurried
}
