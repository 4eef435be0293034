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

// Pools are the pools of workers that are no loader's: which processes of the tree are their
// workers follows from --worker-match and the command lines, as of the last sample.
type Pools struct {
	*programReader[commandLine] // nil where no pools are looked for

	last     *rss.Sample
	programs map[rss.ProcID]bool // the command, a task, or what a starter of those started
	owners   map[rss.ProcID]bool // had a child that matches: fork keeps the command line
	doubts   map[rss.ProcID]bool // they or their parents may be owners: a moment will tell
	pending  map[rss.ProcID]*pendingRespawn
}

// Match takes processes whose command lines match the pattern for workers of pools. It reads
// them under proc.
func (l *Pools) Match(pattern, proc string) error {
	if pattern == "" {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err == nil {
		l.programReader = newCommandLines(re, proc)
	}
	return err
}

// Workers returns the workers of all pools of which that is certain.
func (l *Pools) Workers() []rss.ProcID {
	sure, _ := l.split()
	return sure
}

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
