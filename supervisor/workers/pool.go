package workers

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// pendingRespawn is a worker of a pool that was signalled, until another has its place.
type pendingRespawn struct {
	worker rss.ProcID
	size   int           // how many the pool had then
	within time.Duration // by when another is expected, once it has ended
	gone   time.Duration // since when the worker has ended, 0 while it lives
	lasts  bool          // no other took its place in time: the pool does not respawn
}

// PoolWorkers returns the workers of all pools of which that is certain.
func (w *Workers) PoolWorkers() []rss.ProcID {
	sure, _ := w.pool.workers(w.last)
	return sure
}

// PoolOf returns the process that replaces the workers of a pool.
func (w *Workers) PoolOf(p *rss.Proc) (owner rss.ProcID) { return w.pool.ownerOf(w.last, p) }

// Pool returns the workers of one pool.
func (w *Workers) Pool(owner rss.ProcID) []rss.ProcID { return w.pool.members(w.last, owner) }

// Signalled notes that a worker of a pool was signalled and is to be replaced within a time.
func (w *Workers) Signalled(owner, worker rss.ProcID, size int, within time.Duration) {
	w.pending[owner] = &pendingRespawn{worker: worker, size: size, within: within}
}

// respawns looks whether workers that were signalled have been replaced, and returns the
// owners that did not do it in time. Such a pool does not respawn, whatever its user said of
// it: the next signal would empty it further.
func (w *Workers) respawns(s *rss.Sample) (failed []rss.ProcID) {
	for owner, v := range w.pending {
		if p := s.Find(owner.PID); p == nil || p.ID != owner {
			delete(w.pending, owner)
			continue
		}
		p := s.Find(v.worker.PID)
		switch {
		case v.lasts || p != nil && p.ID == v.worker && living(p):
		case len(w.pool.members(s, owner)) >= v.size:
			delete(w.pending, owner)
		case v.gone == 0:
			v.gone = max(s.Mono, 1)
		case s.Mono-v.gone >= v.within:
			v.lasts = true
			failed = append(failed, owner)
		}
	}
	return failed
}

// filled says that a pool has as many workers as it had before one was signalled.
func (v *pendingRespawn) filled() bool { return v == nil || !v.lasts && v.gone == 0 }
