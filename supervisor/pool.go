package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file recycles workers of pools that are no loader's.

// beginReplace signals a worker of a pool. That is said at once: where it was the
// last thing that the command lived to see, nothing else would tell.
func (w *watcher) beginReplace(f *inFlight, l *event.Limit, p *rss.Proc) {
	owner := w.pool.ownerOf(&w.last, p)
	crew := func(s *rss.Sample) []rss.ProcID { return w.pool.crew(s, owner) }
	size := len(crew(&w.last))
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		err := w.kill(id, sig)
		if err == nil {
			w.sum.Done.Signalled++
			w.workers.pools[owner] = &vacancy{worker: id, crew: size, tell: func() {
				w.fault("worker-match", &said{fmt.Sprintf("process %d starts no new worker where one has ended: no more of its workers are signalled", owner.PID)})
			}}
			w.tell.Say(w.now(), "pool", fmt.Sprintf("%s: %s sent to process %d (%s), one of %s of process %d, which is to start another in its place",
				phrase.Memory(l), event.SignalName(sig), id.PID, p.Comm, text.Count(size, "worker"), owner.PID))
		}
		return err
	}
	f.pool, _ = w.pool.workers(&w.last)
	f.running = action.Replace(kill, p.ID, syscall.Signal(w.Settings.WorkerSignal), crew, size, f.began)
}

// vacancy is a worker of a pool that was signalled, by the pool's owner, until
// another has its place.
type vacancy struct {
	worker rss.ProcID
	crew   int           // how many the pool had then
	gone   time.Duration // since when the worker has ended, 0 while it lives
	lasts  bool          // nobody took its place in time: the pool does not respawn
	tell   func()        // says so
}

// vacancies looks whether workers that were signalled have been replaced. One
// that is not shows that the pool does not respawn, whatever its user said of it:
// the next signal would empty it further.
func (f *workforce) vacancies(s *rss.Sample, pool *matcher) {
	for owner, v := range f.pools {
		if p := s.Find(owner.PID); p == nil || p.ID != owner {
			delete(f.pools, owner)
			continue
		}
		p := s.Find(v.worker.PID)
		switch {
		case v.lasts || p != nil && p.ID == v.worker && living(p):
		case len(pool.crew(s, owner)) >= v.crew:
			delete(f.pools, owner)
		case v.gone == 0:
			v.gone = max(s.Mono, 1)
		case s.Mono-v.gone >= action.ReplaceDeadline:
			v.lasts = true
			v.tell()
		}
	}
}

// filled says that a pool has as many workers as it had before one was signalled.
func (v *vacancy) filled() bool { return v == nil || !v.lasts && v.gone == 0 }
