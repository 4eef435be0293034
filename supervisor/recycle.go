package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// hurryETA is the time to the limit below which a worker may be recycled again
// although it was only just; where it cannot be learned what one needs, hurryShare is by
// how much of its limit use must have grown since, and hurryTimes how often that need not
// be; see [watcher.outgrew].
const (
	hurryETA   = workers.RecycleEvery
	hurryShare = 0.01
	hurryTimes = 5
)

// standstill is the time to the limit, at a rate that was seen and has faded
// since, from which on nothing grows.
const standstill = 6 * time.Hour

func (w *watcher) canRecycle(l *event.Limit) policy.Help {
	if !l.Name.Memory() {
		return policy.Help{Reason: event.ReasonNoHelp, Detail: "a worker's memory is not what counts here"}
	}
	i, gain, reason, pids := w.pick(l)
	if i < 0 {
		return policy.Help{Reason: reason}
	}
	if t := w.last.Find(w.workers.staff[pids[i]].trainer); t != nil {
		if took := w.workers.resend(pids[i]); took > 0 {
			if took > workers.LongPause && !pressed(l) {
				return policy.Help{Reason: event.ReasonResend, Detail: "the last time took " + text.Span(took)}
			}
		} else if pause := workers.ForkPause(t.Anon); pause > workers.LongPause && w.timeLeft(l) == 0 {
			return policy.Help{Reason: event.ReasonPause, Detail: "the trainer would stand still for about " + text.Span(pause)}
		}
	}
	if w.putOff(w.timeLeft(l)) {
		return policy.Help{Reason: event.ReasonOccupied, Later: true}
	}
	return policy.Help{OK: true, Gain: gain}
}

// resend forecasts how long the trainer stands still to send the data set to a
// replacement of that worker, which is as long as it took the last time; 0 for a worker
// that is forked. The workers of an iterable data set are replaced between two epochs.
func (f *workforce) resend(pid int) time.Duration {
	for i := range f.trainers {
		for _, l := range f.trainers[i].Loaders {
			if l.Unforked != nil && l.Kind == "map" && slices.Contains(l.Workers, pid) {
				return max(l.Unforked.Took, 1)
			}
		}
	}
	return 0
}

// pressedAt is the part of a limit from which on it is near, see [pressed].
const pressedAt = 0.95

// pressed says that a limit is so near that the trainer may be held for seconds. The
// fastest rate seen does not count: workers that get their data grow as fast.
func pressed(l *event.Limit) bool {
	return l.Ratio() >= pressedAt || l.ETA != nil && *l.ETA < hurryETA.Seconds()
}

// pick chooses the worker to recycle for l.
func (w *watcher) pick(l *event.Limit) (index int, gain rss.Bytes, reason event.Reason, pids []int) {
	left := w.timeLeft(l)
	worth := event.MinGain(0)
	if left > 0 && left < hurryETA && l.Name != event.LimitUser {
		worth = event.MinRecycle(l) // the enforcer of no other asks whether it was worth it
	}
	list, pids := w.workers.candidates(&w.last, l.Accounting)
	for i := range list {
		if w.outgrew(w.workers.staff[pids[i]], l) {
			list[i].RecycledAgo = 0
		}
		list[i].RankServed = w.peers.served[w.rankKey(pids[i])]
	}
	step := w.stepOf(l)
	list = slices.DeleteFunc(list, func(c workers.Usage) bool { return !w.isMeant(c.ID, step) })
	pids = slices.DeleteFunc(pids, func(pid int) bool { return !w.isMeant(w.workers.staff[pid].id, step) })
	index, gain, reason = workers.Pick(list, worth)
	return index, gain, reason, pids
}

// outgrew says that the limit is near and e grows, which took the place of another:
// then it does not matter how long ago that was. That the limit is near follows from
// the fastest rate seen, and that may be of minutes ago. But where it is known what a
// worker needs, what e has above that is growth. In a place of which that cannot be
// learned, as in a pool's, use must have grown since, see [watcher.regrew], and at first
// and once it has, hurryTimes one after the other need not wait for that: they would come
// nearer to the limit with each.
func (w *watcher) outgrew(e *worker, l *event.Limit) bool {
	left := w.timeLeft(l)
	near := left > 0 && left < hurryETA
	if e.warm.heap > 0 {
		return near && !w.workers.learning(e, w.last.Mono)
	}
	return near && e.hurried < hurryTimes || w.regrew(e, l)
}

// hurriedAfter is what [worker.hurried] is of the one that takes the place of e.
func (w *watcher) hurriedAfter(e *worker, l *event.Limit) int {
	switch {
	case w.regrew(e, l):
		return 0
	case e.fresh && w.last.Mono-e.since < workers.RecycleEvery:
		return e.hurried + 1
	}
	return e.hurried
}

// regrew says that use has grown since e took its place: by hurryShare of the limit,
// and so fast that it is reached within hurryETA, or by as much as is left.
func (w *watcher) regrew(e *worker, l *event.Limit) bool {
	grown, age := l.Used.Sub(e.stood), max(w.last.Mono-e.since, 1)
	if e.stoodAt != l.ID() || grown < l.Limit.Scale(hurryShare) {
		return false
	}
	return l.Headroom() <= grown.Scale(max(1, hurryETA.Seconds()/age.Seconds()))
}

// timeLeft is the time to the limit: as forecast, else at the fastest rate seen.
// It is 0 where nothing grows, and only there.
func (w *watcher) timeLeft(l *event.Limit) time.Duration {
	seconds := 0.0
	if rate := w.rate(l).PerSecond(w.now()); rate > 0 {
		seconds = float64(l.Headroom()) / rate
	}
	if seconds > standstill.Seconds() {
		seconds = 0 // a rate fades and never ends
	}
	if l.ETA != nil {
		seconds = *l.ETA
	}
	// At the limit there is no time left, which is not the same as no growth.
	left := time.Duration(min(seconds, 1e9) * float64(time.Second))
	if l.Headroom() == 0 || seconds > 0 {
		left = max(left, 1)
	}
	return left
}

// The rung of a recycle leaves a tenth of the limit for the time that a worker takes
// to drain. Several ranks that grow together may fill that sooner, and the kernel
// kills at once: then the recycle begins as much earlier.

const (
	// firstRecycleTime is what a recycle is expected to take before one was seen, and
	// mostRecycleTime what is allowed for at most.
	firstRecycleTime = 500 * time.Millisecond
	mostRecycleTime  = 2 * time.Second
)

// growthUntilRecycled is by how much the growth until a recycle has taken effect is
// more than the rung leaves, twice the last one's time allowed for.
func (w *watcher) growthUntilRecycled(l *event.Limit) rss.Bytes {
	rung, ok := w.ladder.Rung(event.ActionRecycle, l)
	if !ok || l.Name != event.LimitCgroup && l.Name != event.LimitSlurm {
		return 0 // --limit kills nobody
	}
	if at, ok := w.ladder.Rung(event.ActionWarn, l); ok && at < rung && l.Used >= at && w.sure(l) {
		return min(rung-at, l.Limit.Scale(mostLead))
	}
	if l.Name == event.LimitSlurm {
		return 0 // slurmstepd looks each half minute
	}
	until := min(2*cmp.Or(w.recycleTook, firstRecycleTime), mostRecycleTime)
	growth := rss.Bytes(w.rate(l).Latest(w.now()) * until.Seconds())
	return min(growth.Sub(l.Limit.Sub(rung)), l.Limit.Scale(mostLead))
}

// sure says that a recycle would give back what workers have leaked: what they need
// was told from it. Then there is nothing to wait for, and what the trainer may need
// all at once finds room.
func (w *watcher) sure(l *event.Limit) bool {
	i, gain, _, pids := w.pick(l)
	if i < 0 || gain < event.MinGain(0) {
		return false
	}
	_, known := w.workers.need(w.workers.staff[pids[i]])
	return known
}

// tookRecycle learns from an outcome.
func (w *watcher) tookRecycle(d *event.Decision, o *event.Outcome) {
	if d.Action == event.ActionRecycle && o.OK && o.Duration > 0 {
		w.recycleTook = time.Duration(o.Duration * float64(time.Second))
	}
}
