package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// sameWake is by how much something may come early in a wake that is there anyway.
const sameWake = counts.Tolerance

// next is the use from which on a limit that stood at used is judged again: its
// next rung, or, where rungs were crossed, a little more: a worker that had
// nothing to give back may have by then. It is always above used.
func (w *watcher) next(l *event.Limit, used rss.Bytes) rss.Bytes {
	first := w.acts.Ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit}).Sub(w.acts.UntilTraced(l))
	next := max(first, used+max(event.MinGain(0), l.Limit/100))
	if rung := w.acts.Ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit, Used: used}); rung > used {
		next = min(next, rung)
	}
	return next
}

// paced is what the pace is decided by.
func (w *watcher) paced(now time.Duration) *cadence.Input {
	in := &cadence.Input{
		Now: now, Limits: w.pace.Room[:0], Watched: w.view.Watched, Flight: -1, Stopped: w.view.Stopped,
		Unheard: w.observe.Loader != nil && !w.observe.Hears, Took: w.view.Sample.Took, Wake: cadence.Never,
	}
	if f := w.acts.InFlight(); f != nil {
		in.Flight = now - f.Began
	}
	for i := range w.view.Limits {
		l := &w.view.Limits[i]
		used := view.Growing(l)
		one := cadence.Limit{Name: l.Name, Accounting: l.Accounting, Limit: l.Limit, PerSecond: w.view.Rates[i].PerSecond(now)}
		if i == w.view.Watched {
			next := w.next(l, w.view.From)
			one.Left, one.Headroom = next-w.view.From, next.Sub(used)
			in.Traced = w.acts.TracesFor(l)
		} else {
			one.Left = w.next(l, used) - used
		}
		in.Limits = append(in.Limits, one)
	}
	w.pace.Room = in.Limits
	return in
}

// pause is how long to wait before the next look, of whatever kind.
func (w *watcher) pause(now time.Duration) time.Duration {
	if !w.node.Leads() {
		return max(w.node.Within(now, w.pace.HolderDue(now, followedHolderEvery)), cadence.MinPause)
	}
	in := w.paced(now)
	if count, ok := w.observe.Counts.Next(now); ok {
		in.Wake = count
	}
	if pss, ok := w.observe.PSS.Next(now); ok {
		in.Wake = min(in.Wake, pss)
	}
	return max(w.node.Within(now, w.pace.Next(in)), cadence.MinPause)
}
