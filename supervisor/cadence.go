package supervisor

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/observe"
)

const (
	// busyPause is the least pause between two full ticks while an action is in
	// flight: its end is to be seen, and measured, when it comes. The longer it
	// takes, the longer the pause: an eighth of that, at most busiest.
	busyPause = 20 * time.Millisecond
	busiest   = 250 * time.Millisecond
	// sidePause is the least pause between two full ticks for the sake of limits
	// that the fast tick does not look at.
	sidePause = 100 * time.Millisecond
	// loaderPause is the pause at most, where loaders may appear and inotify
	// does not tell.
	loaderPause = 100 * time.Millisecond
	// stoppedPause is the pause at least while all that is summed is stopped,
	// and its sum with it. It bounds how late growth after SIGCONT is seen.
	stoppedPause = 250 * time.Millisecond
	// tracedPause is the pause between two full ticks at most where processes are
	// trimmed by ptrace, and tracedShare times what such a tick takes: fast ticks
	// do not see workers that have just been started, which may touch 3 GiB a
	// second, and nothing in them says that they are there.
	tracedPause = 100 * time.Millisecond
	tracedShare = 50
	// unstickEvery is how often the holder is looked after, with whatever look
	// falls within sameWake of that: each wake of an idle process costs more than
	// what it then does.
	unstickEvery = time.Second
	sameWake     = counts.Tolerance
	// quietShare is the part of a core that fast ticks may take where nothing
	// was seen that fills what is left within an interval, risingShare where
	// something was.
	quietShare  = 0.01
	risingShare = 0.1
	// hintShare is the part of a core that full looks may take for no other reason
	// than that the kernel says memory is short. It does so a hundred times a second
	// where page cache stands at a limit, which is a training's usual day.
	hintShare = 0.02
)

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

// fullPause is how long after the last full look the next one is due, whatever
// a fast one says.
func (w *watcher) fullPause(now time.Duration) time.Duration {
	pause := w.Settings.Interval
	if w.flight != nil {
		pause = min(pause, max(busyPause, min((now-w.flight.began)/8, busiest)))
	}
	if w.loader != nil && !w.hears {
		pause = min(pause, loaderPause)
	}
	if w.unseen {
		pause = min(pause, w.fullCost.Pause(observe.HurriedShare))
	}
	if w.watched >= 0 && w.tracesFor(&w.readings[w.watched]) {
		pause = min(pause, max(tracedPause, tracedShare*w.last.Took))
	}
	for i := range w.readings {
		l := &w.readings[i]
		if i == w.watched || !l.Name.Memory() || w.covered(l) {
			continue
		}
		used := growing(l)
		fill := cadence.Pause(w.next(l, used)-used, w.rate(l).PerSecond(now), w.Settings.Interval)
		pause = min(pause, max(fill, sidePause))
	}
	return pause
}

// covered says that a limit asks for no looks of its own: it has no size or
// ends nothing, or it counts as the watched one does and has no less left.
func (w *watcher) covered(l *event.Limit) bool {
	if l.Limit == 0 || l.Name == event.LimitThrottle {
		return true
	}
	if w.watched < 0 {
		return false
	}
	b := &w.readings[w.watched]
	return l.Accounting == b.Accounting && w.next(l, growing(l))-growing(l) >= w.next(b, w.fullUsed)-w.fullUsed
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

// lookPause is how long to wait before memory is looked at.
func (w *watcher) lookPause(now time.Duration) time.Duration {
	pause := w.fullAt + w.fullPause(now) - now
	if w.watched >= 0 {
		b := &w.readings[w.watched]
		headroom := w.next(b, w.fullUsed).Sub(growing(b))
		rate := w.rate(b).PerSecond(now)
		fill := cadence.Pause(headroom, rate, w.Settings.Interval)
		pause = min(pause, max(fill, w.fastFloor(b, headroom, rate)))
	}
	return pause
}

// pause is how long to wait before the next look, of whatever kind.
func (w *watcher) pause(now time.Duration) time.Duration {
	if w.lookDue <= now {
		w.lookDue = now + w.lookPause(now) // else nothing was looked at since
	}
	pause := w.lookDue - now
	if count, ok := w.counts.Next(now); ok {
		pause = min(pause, count)
	}
	if pss, ok := w.pss.Next(now); ok {
		pause = min(pause, pss)
	}
	if unstick := w.unstuckAt + unstickEvery - now; pause > unstick+sameWake {
		pause = unstick
	}
	return max(w.peers.stop.within(now, pause), cadence.MinPause)
}

// fastFloor is the least pause before a fast tick, by what such a tick costs
// here: 4,000 processes are expensive to sum.
func (w *watcher) fastFloor(b *event.Limit, headroom rss.Bytes, perSecond float64) time.Duration {
	if w.stopped && b.Accounting != event.AccountingCgroup && b.Name != event.LimitNode {
		return stoppedPause
	}
	share := quietShare
	if perSecond*w.Settings.Interval.Seconds() >= float64(headroom) {
		share = risingShare
	}
	return w.fastCost.Pause(share)
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
