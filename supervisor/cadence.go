package supervisor

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// sameWake is by how much something may come early in a wake that is there anyway.
const sameWake = counts.Tolerance

// next is the use from which on a limit that stood at used is judged again: its
// next rung, or, where rungs were crossed, a little more: a worker that had
// nothing to give back may have by then. It is always above used.
func (w *watcher) next(l *event.Limit, used rss.Bytes) rss.Bytes {
	first := w.ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit}).Sub(w.growthUntilTraced(l))
	next := max(first, used+max(event.MinGain(0), l.Limit/100))
	if rung := w.ladder.NextRung(&event.Limit{Name: l.Name, Limit: l.Limit, Used: used}); rung > used {
		next = min(next, rung)
	}
	return next
}

// paced is what the pace is decided by.
func (w *watcher) paced(now time.Duration) *cadence.Input {
	in := &cadence.Input{
		Now: now, Limits: w.pace.Room[:0], Watched: w.watched, Flight: -1, Stopped: w.stopped,
		Unheard: w.loader != nil && !w.hears, Took: w.last.Took, Wake: cadence.Never,
	}
	if w.flight != nil {
		in.Flight = now - w.flight.began
	}
	for i := range w.readings {
		l := &w.readings[i]
		used := growing(l)
		one := cadence.Limit{Name: l.Name, Accounting: l.Accounting, Limit: l.Limit, PerSecond: w.rate(l).PerSecond(now)}
		if i == w.watched {
			next := w.next(l, w.fullUsed)
			one.Left, one.Headroom = next-w.fullUsed, next.Sub(used)
			in.Traced = w.tracesFor(l)
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
	in := w.paced(now)
	if count, ok := w.counts.Next(now); ok {
		in.Wake = count
	}
	if pss, ok := w.pss.Next(now); ok {
		in.Wake = min(in.Wake, pss)
	}
	return max(w.peers.stop.within(now, w.pace.Next(in)), cadence.MinPause)
}

// straddles says that only a reading of PSS can tell on which side of a rung
// use stands.
func (w *watcher) straddles() bool {
	for i := range w.readings {
		if w.ladder.Straddles(&w.readings[i]) {
			return true
		}
	}
	return false
}

// allStopped says that no process can grow before SIGCONT: job control,
// scontrol suspend, a debugger.
func allStopped(procs ...[]rss.Proc) bool {
	stopped := false
	for _, list := range procs {
		for i := range list {
			switch list[i].State {
			case 'T', 't':
				stopped = true
			case 'Z', 'X':
			default:
				return false
			}
		}
	}
	return stopped
}

// growing is the reading whose growth counts between two full looks. One
// counter bounds PSS and what is not shared only from above, while the upper
// bound of a cgroup's use is its whole charge, page cache included.
func growing(l *event.Limit) rss.Bytes {
	switch l.Accounting {
	case event.AccountingPSS, event.AccountingNoShared:
		return l.UsedMax
	}
	return l.Used
}

// forgetRates drops the rates of limits that are gone: a job may have thousands
// of steps, each with its own.
func (w *watcher) forgetRates() {
	maps.DeleteFunc(w.rates, func(id event.LimitID, _ *rss.Rate) bool {
		return !slices.ContainsFunc(w.readings, func(l event.Limit) bool { return l.ID() == id })
	})
}

func (w *watcher) rate(l *event.Limit) *rss.Rate {
	id := l.ID()
	r := w.rates[id]
	if r == nil {
		r = &rss.Rate{}
		w.rates[id] = r
	}
	return r
}
