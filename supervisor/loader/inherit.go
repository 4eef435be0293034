package loader

import (
	"encoding/json"
	"path/filepath"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/nodedir"
)

// This file is about what a watcher before us has asked of a trainer. Trainers look
// between two batches, which may be long after. What none has accepted is withdrawn,
// or it would be carried out beside what we ask for; a recycle that was accepted
// stays asked for: one that has begun goes on in any case, and one that waits for
// the loader's next epoch would else be forgotten.

// inherited is a recycle that an earlier watcher asked for.
type inherited struct {
	ctlRecycle
	n        int // the loader that accepted it, 0 before that
	deferred bool
	answered bool
}

// inherit reads what stands in the control file of a trainer that was just met. It
// says whether there is anything that the trainer may not have heard of yet.
func (t *trainer) inherit() bool {
	data, _, err := readSmall(filepath.Join(t.dir, nodedir.FileOf("ctl", t.ID)))
	var f ctl
	if err != nil || json.Unmarshal(data, &f) != nil {
		return false
	}
	t.ctl = data
	if len(f.Trim)+len(f.GC)+len(f.Recycle) == 0 {
		return false
	}
	t.before = make(map[uint64]*inherited, len(f.Recycle))
	for _, r := range f.Recycle {
		t.before[r.ID] = &inherited{ctlRecycle: r}
	}
	return true
}

// heard takes in what a trainer says to what an earlier watcher asked for.
func (t *trainer) heard(l *line, last bool) {
	if l.What == event.LoaderEnded {
		for _, r := range t.before {
			r.answered = r.answered || r.n != 0 && r.n == l.N
		}
		return
	}
	if r := t.before[l.ID]; r != nil && l.ID != 0 {
		r.answered = r.answered || last
		if l.What == event.LoaderAccepted {
			r.n, r.deferred = l.N, l.Why == string(event.ReasonDeferred)
		}
	}
}

// takeOver makes what is asked of a trainer ours, once all that it has said is read.
func (c *Control) takeOver(t *trainer) {
	t.met = true
	for id, r := range t.before {
		switch {
		case r.answered:
		case r.n == 0:
			c.withdrawn++
		case c.pending[id] == nil:
			c.pending[id] = &request{what: event.ActionRecycle, mode: r.Mode, pids: map[rss.ProcID][]int{t.ID: {r.Worker}}}
		}
	}
	// Where this fails the next write says so, a budget or a request.
	_ = c.write(t)
}

// Withdrawn counts recycles that an earlier watcher had asked for, that nobody had
// accepted, and that are asked for no more. A trainer that read of one in the moment
// before says within a moment that it has accepted it.
func (c *Control) Withdrawn() int { return c.withdrawn }

// Inherited says that a recycle goes on, or may yet be begun, which an earlier
// watcher has asked for, but for those that wait for their loader's next epoch.
func (c *Control) Inherited() bool {
	for _, t := range c.trainers {
		if !t.met {
			return true
		}
		for _, r := range t.before {
			if r.n != 0 && !r.deferred && !r.answered {
				return true
			}
		}
	}
	return false
}
