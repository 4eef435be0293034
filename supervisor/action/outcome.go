package action

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
)

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

func (a *Set) finish(r Result) {
	f, o := a.conclude(r)
	if f.manual {
		a.Requests.stepDone(f, &o)
		return
	}
	share := ""
	if f.Decision.Lead > 0 {
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
