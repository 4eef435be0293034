package workers

import (
	"regexp"
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

// Pools are the pools of workers that are no loader's.
type Pools struct {
	matcher *poolMatcher // nil where no pools are looked for
	pending map[rss.ProcID]*pendingRespawn
	last    *rss.Sample
}

// Match takes processes whose command lines match the pattern for workers of pools. It reads
// them under proc.
func (l *Pools) Match(pattern, proc string) error {
	if pattern == "" {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	l.matcher = newPoolMatcher(re, proc)
	return nil
}

// Workers returns the workers of all pools of which that is certain.
func (l *Pools) Workers() []rss.ProcID {
	sure, _ := l.matcher.workers(l.last)
	return sure
}

// Owner returns the process that replaces a worker.
func (l *Pools) Owner(p *rss.Proc) rss.ProcID { return l.matcher.ownerOf(l.last, p) }

// Members returns the workers of one pool, also those in doubt.
func (l *Pools) Members(owner rss.ProcID) []rss.ProcID { return l.matcher.members(l.last, owner) }

// Signalled notes that a worker of a pool was signalled and is to be replaced within a time.
func (l *Pools) Signalled(owner, worker rss.ProcID, size int, within time.Duration) {
	if l.pending == nil {
		l.pending = map[rss.ProcID]*pendingRespawn{}
	}
	l.pending[owner] = &pendingRespawn{worker: worker, size: size, within: within}
}

// filled says that the pool of a worker has as many as it had before one was signalled.
func (l *Pools) filled(p *rss.Proc) bool {
	v := l.pending[l.Owner(p)]
	return v == nil || !v.lasts && v.gone == 0
}

// respawns looks whether workers that were signalled have been replaced, and returns the
// owners that did not do it in time: the next signal would empty such a pool further.
func (l *Pools) respawns() (failed []rss.ProcID) {
	s := l.last
	for owner, v := range l.pending {
		if p := s.Find(owner.PID); p == nil || p.ID != owner {
			delete(l.pending, owner)
			continue
		}
		p := s.Find(v.worker.PID)
		switch {
		case v.lasts || p != nil && p.ID == v.worker && living(p):
		case len(l.Members(owner)) >= v.size:
			delete(l.pending, owner)
		case v.gone == 0:
			v.gone = max(s.Mono, 1)
		case s.Mono-v.gone >= v.within:
			v.lasts = true
			failed = append(failed, owner)
		}
	}
	return failed
}
