package loader

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// TaskLimit is how long a worker of a pool is waited for that was asked to end after
	// its task.
	TaskLimit = 10 * time.Minute
	// noTask is why it is asked no more.
	noTask = "its task did not end within 10 minutes"

	// actionWaits is how long the action waits for that which asked it.
	actionWaits = 10 * time.Second

	// notRefilled is why no other worker of a pool is asked until one has come.
	notRefilled = "its pool has started no other in the place of the last worker yet"

	// refillTime is how long a pool has to start another worker in the place of one that
	// ended. One without work may start it with the next task.
	refillTime = 5 * time.Second
	// staffCheck is the time between two looks at which workers of pools live.
	staffCheck = 5 * time.Second
)

// poolWorker is a worker of a pool, which has said that it is there.
type poolWorker struct {
	id   rss.ProcID
	pool int // number of its pool

	// What it said when it was asked to end, request 0 before.
	request uint64
	mode    event.Mode
	before  rss.Bytes
	left    time.Time // when it said that
	gone    time.Time // when it was seen to have ended
}

// hired takes in what a worker of a pool said when it came. The first of a pool is
// reported as a new loader, and one that left, whose place it takes, as recycled.
func (c *Control) hired(t *trainer, l *line) (said []Said) {
	first, left := t.join(l)
	if first {
		s := l.said(t.ID)
		s.What, s.Pool, s.PID, s.Worker, s.Before, s.After = event.LoaderIter, l.Kind, t.ID.PID, 0, 0, 0
		s.Old = s.Time.Before(c.opened)
		said = append(said, s)
	}
	if left != nil {
		said = append(said, c.replaced(t, left, l.time(), l.Worker, rss.Bytes(l.After)))
	}
	return said
}

// join takes in that a worker of a pool is there. It returns whether it is the first of its
// pool, and the one in whose place it is, nil for none.
func (t *trainer) join(l *line) (first bool, left *poolWorker) {
	d := t.loaders[l.N]
	if d == nil {
		if len(t.loaders) >= maxLoaders {
			return false, nil
		}
		d = &Loader{N: l.N, Pool: true, Kind: l.Kind, Start: l.Start}
		t.loaders[l.N] = d
		first = true
	}
	if !d.Pool {
		return false, nil // no hook says that
	}
	d.CanRecycle, d.Why = l.CanRecycle, l.Why
	if len(t.staff) >= maxWorkers || l.Worker == 0 || l.Born == 0 || slices.Contains(d.Workers, l.Worker) {
		return first, nil
	}
	d.Workers = append(d.Workers, l.Worker)
	d.NumWorkers = max(d.NumWorkers, len(d.Workers))
	if t.staff == nil {
		t.staff = map[int]*poolWorker{}
	}
	t.staff[l.Worker] = &poolWorker{id: rss.ProcID{PID: l.Worker, Start: l.Born}, pool: l.N}
	for _, pid := range d.Leaving {
		if w := t.staff[pid]; w != nil {
			return first, w
		}
	}
	return first, nil
}

// leaves takes in that a worker of a pool ends now, as it was asked to.
func (t *trainer) leaves(d *Loader, l *line) {
	if w := t.staff[l.Worker]; w != nil && w.pool == d.N && w.request == 0 {
		w.request, w.mode, w.before, w.left = max(l.ID, 1), l.Mode, rss.Bytes(l.Before), l.time()
		d.Workers = slices.DeleteFunc(d.Workers, func(pid int) bool { return pid == l.Worker })
		d.Leaving = append(d.Leaving, l.Worker)
	}
}

// dismiss forgets a worker of a pool.
func (t *trainer) dismiss(w *poolWorker) {
	pid := w.id.PID
	delete(t.staff, pid)
	if d := t.loaders[w.pool]; d != nil {
		d.Workers = slices.DeleteFunc(d.Workers, func(p int) bool { return p == pid })
		d.Leaving = slices.DeleteFunc(d.Leaving, func(p int) bool { return p == pid })
	}
}

// replaced reports a worker that left a pool, with the PID of the one in its place
// and what that has in memory, 0 and 0 where the pool has started none.
func (c *Control) replaced(t *trainer, w *poolWorker, now time.Time, next int, after rss.Bytes) Said {
	s := Said{
		Trainer: t.ID, Request: w.request, Last: true, New: next, Mode: w.mode, Before: w.before, After: after,
		Old: w.left.Before(c.opened),
	}
	s.Time, s.Event, s.What, s.PID, s.Worker = now, event.NameLoader, event.LoaderRecycled, t.ID.PID, w.id.PID
	s.Freed = s.Before.Sub(s.After)
	if r := c.pending[w.request]; r != nil && r.late {
		s.Reason = string(event.ReasonTask)
	}
	t.dismiss(w)
	c.answered(w.request, w.id.PID)
	return s
}

// pools looks which workers of the pools of a trainer have ended: those that were asked to
// each time, the others where all is due.
func (c *Control) pools(t *trainer, now time.Time, all bool) (said []Said) {
	if t.staff == nil {
		return nil // it has had no pools
	}
	for _, pid := range slices.Sorted(maps.Keys(t.staff)) {
		w := t.staff[pid]
		switch {
		case w.request == 0 && !all || w.gone.IsZero() && proctree.Lives("/proc", w.id):
		case w.request == 0:
			t.dismiss(w)
		case w.gone.IsZero():
			w.gone = now
		case now.Sub(w.gone) >= refillTime:
			if d := t.loaders[w.pool]; d != nil {
				d.CanRecycle, d.Why = false, notRefilled // an initializer may fail the second time
			}
			said = append(said, c.replaced(t, w, now, 0, 0))
		}
	}
	if all {
		for _, d := range t.living() {
			if d.Pool && len(d.Workers)+len(d.Leaving) == 0 {
				delete(t.loaders, d.N)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.pending)) {
		r := c.pending[id]
		for _, pid := range slices.Clone(r.pids[t.ID]) {
			if slices.Contains(r.pool, pid) {
				said = append(said, c.waits(t, id, r, pid, now)...)
			}
		}
	}
	return said
}

// waits says what has become of a worker of a pool that has not answered yet.
func (c *Control) waits(t *trainer, id uint64, r *request, pid int, now time.Time) []Said {
	s := Said{Trainer: t.ID, Request: id}
	s.Time, s.Event, s.What, s.PID, s.Worker = now, event.NameLoader, event.LoaderRefused, t.ID.PID, pid
	w, since := t.staff[pid], now.Sub(r.asked)
	switch {
	case w == nil:
		s.Reason = string(event.ReasonVanished)
	case r.what != event.ActionRecycle || w.request != 0:
		return nil
	case since >= TaskLimit:
		s.Reason = noTask
	case since >= actionWaits && !r.late:
		r.late = true
		s.What, s.Reason = event.LoaderAccepted, string(event.ReasonTask)
		return []Said{s}
	default:
		return nil
	}
	s.Last = true
	c.answered(id, pid)
	return []Said{s}
}

// markAsked notes which workers of a trainer's pools have been asked to end.
func (c *Control) markAsked(t rss.ProcID, loaders []Loader) {
	for _, r := range c.pending {
		if r.what != event.ActionRecycle {
			continue
		}
		for _, pid := range r.pids[t] {
			for i := range loaders {
				if d := &loaders[i]; d.Pool && slices.Contains(d.Workers, pid) {
					d.Asked = append(d.Asked, pid)
				}
			}
		}
	}
}
