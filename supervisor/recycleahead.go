package supervisor

import (
	"cmp"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// The rung of a recycle leaves a tenth of the limit for the time that a worker takes
// to drain. Several ranks that grow together may fill that sooner, and the kernel
// kills at once: then the recycle begins as much earlier.

const (
	// firstRecycleTime is what a recycle is expected to take before one was seen, and
	// mostRecycleTime what is allowed for at most.
	firstRecycleTime = 500 * time.Millisecond
	mostRecycleTime  = 2 * time.Second
	// muchMapped is the share of a limit that workers must have mapped to be trimmed ahead
	// of the rung.
	muchMapped = 0.02
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

// trimAhead is how far below its rung a trim by the hook begins: from the rung of the
// warning on, where that gives back much for certain. Above it workers keep to budgets
// that leave each the least, and what many have together then may be all that is left
// for what the trainer needs all at once. slurmstepd kills on it.
func (w *watcher) trimAhead(r event.Rule, l *event.Limit) rss.Bytes {
	rung, ok := w.ladder.Rung(event.ActionTrim, l)
	if !ok || r.Action != event.ActionTrim || l.Name != event.LimitSlurm {
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

// lead is how much a limit grows by until the action of a rule takes effect, or
// until it is counted again. The hook is given budgets ahead instead.
func (w *watcher) lead(r event.Rule, l *event.Limit) rss.Bytes {
	switch r.Action {
	case event.ActionWarn:
		return w.counts.ahead(l)
	case event.ActionRecycle:
		return w.growthUntilRecycled(l)
	case event.ActionTrim:
		if lead := w.trimAhead(r, l); lead > 0 {
			return lead
		}
		if lead := w.growthUntilTraced(l); lead > 0 && w.canTrace(l).OK {
			return lead
		}
	}
	return 0
}
