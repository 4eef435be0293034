package supervisor

import (
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
)

// This file says whose turn it is to have a worker recycled: one rank of a node
// after the other, never two at once, and not all nodes at the same moment.

const (
	// afterHeir is how long a new leader waits before it acts, and after it has
	// withdrawn a request: what was begun in that moment shows in what loaders say.
	afterHeir = time.Second
	// inHurry is the same where the limit leaves no more than hurryRoom: what trainers
	// were asked for by file is known at once, and what goes on is waited for in any
	// case.
	inHurry   = 100 * time.Millisecond
	hurryRoom = 10 * time.Second
	// turnSpread is within which time nodes that meet a rung at once take their
	// turns, where the limit leaves them more than turnRoom.
	turnSpread = 2 * time.Second
	turnRoom   = 15 * time.Second
	// turnHolds is how long a node that has waited goes on without another wait.
	turnHolds = 30 * time.Second
)

// rankKey is the rank that a process belongs to, by its holder.
func (w *watcher) rankKey(pid int) rss.ProcID {
	if m := w.rankOf(pid); m != nil {
		return m.Holder
	}
	return w.peers.me.Holder
}

// served notes that a worker is recycled now.
func (w *watcher) served(worker int) {
	p := &w.peers
	if p.served == nil {
		p.served = map[rss.ProcID]time.Duration{}
	}
	p.served[w.rankKey(worker)] = max(w.now(), 1)
}

// putOff says that a recycle has to wait although it could help: a leader before us
// has begun one, or other nodes take their turns. left is the time to the limit, 0
// where nothing grows.
func (w *watcher) putOff(left time.Duration) bool {
	p := &w.peers
	now := w.now()
	if w.recycledBefore(now, left) {
		return true
	}
	job, _ := w.limits.Job()
	if job.Nodes < 2 || left > 0 && left < turnRoom {
		return false
	}
	if now-p.turn > turnHolds || p.turn == 0 {
		p.turn = now + 1 + rand.N(turnSpread)
	}
	return now < p.turn
}

// recycledBefore says that a worker may be replaced now because a leader before us
// asked for it. What its trainer had not accepted is withdrawn when we meet it.
func (w *watcher) recycledBefore(now, left time.Duration) bool {
	p := &w.peers
	pause := afterHeir
	if left > 0 && left <= hurryRoom {
		pause = inHurry
	}
	switch {
	case p.heir && now-p.from < pause, p.withdrawn > 0 && now-p.withdrawnAt < pause:
		return true
	case now-max(p.from, p.withdrawnAt) >= action.RecycleDeadline:
		return false
	}
	return p.heir && w.workers.Trainers().Recycling() || w.loader != nil && w.loader.Inherited()
}

// withdrew notes that requests of a leader before us were withdrawn.
func (w *watcher) withdrew() {
	p := &w.peers
	if n := w.loader.Withdrawn(); n != p.withdrawn {
		p.withdrawn, p.withdrawnAt = n, w.now()
	}
}
