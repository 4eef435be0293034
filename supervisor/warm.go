package supervisor

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

// This file learns what a loader's worker needs of its own. A forked one has nothing
// at first and reaches what it needs within a few batches: 20 MiB in PyTorch's, for
// the tensors and the allocator's caches. A replacement needs that too, so it is
// nothing that a recycle gives back. A leak goes on by as much with each batch, and
// that is how they are told apart: of what a worker had after some batches, as much is
// a leak as came with as many more.

const (
	// ages is how many reports of one worker are told apart: after 8 batches, 16, …
	ages = 16
	// forkedShare is the share of its trainer's anonymous memory that a worker has
	// which was just forked. One that was spawned has next to none, and shares none.
	forkedShare = 0.9
	// learnFor is the age from which on a worker that reported nothing will not.
	learnFor = time.Minute
)

// warmth is what is known of one worker.
type warmth struct {
	heap rss.Bytes // what it shares with its trainer since its fork, 0 where nobody knows
}

// crew names the workers of one loader: those of another need more or less. A loader
// of 0 is all of that trainer's.
type crew struct {
	trainer rss.ProcID
	loader  int
}

// needs is the least that any of a crew was found to need, by the number of batches.
type needs struct {
	least [ages]rss.Bytes
	known [ages]bool
}

func (n *needs) add(age int, own rss.Bytes) {
	if !n.known[age] || own < n.least[age] {
		n.least[age], n.known[age] = own, true
	}
}

// own is what one of the crew needs. The greatest counts: what fills a cache for a
// hundred batches looks like a leak after eight.
func (n *needs) own() (most rss.Bytes, known bool) {
	if n == nil {
		return 0, false
	}
	for i := range ages {
		if n.known[i] {
			most, known = max(most, n.least[i]), true
		}
	}
	return most, known
}

// inherit notes what a worker that was just forked shares with its trainer.
func (h *warmth) inherit(first, trainer *rss.Proc) {
	if trainer != nil && trainer.Anon > 0 && first.Anon.Of(trainer.Anon) >= forkedShare {
		h.heap = min(trainer.Anon, first.Anon)
	}
}

// grown takes in what a worker said of itself.
func (f *workforce) grown(s *loader.Said) {
	of, ok := f.crewOf(s.Trainer, s.Worker)
	if !ok || s.Batches < 1 {
		return
	}
	leaked := s.Own.Sub(s.Half) // by half of its batches, as by the others
	need := min(s.Own, s.Half.Sub(leaked))
	for _, c := range []crew{of, {of.trainer, 0}} {
		n := f.needs[c]
		if n == nil {
			n = &needs{}
			f.needs[c] = n
		}
		n.add(min(bits.Len(uint(s.Batches)), ages)-1, need)
	}
}

// crewOf is whose a worker is that may not have been seen yet.
func (f *workforce) crewOf(trainer rss.ProcID, pid int) (crew, bool) {
	if e := f.staff[pid]; e != nil && e.crew.trainer == trainer {
		return e.crew, true
	}
	for _, t := range f.trainers {
		for _, l := range t.Loaders {
			if t.ID == trainer && slices.Contains(l.Workers, pid) {
				return crew{trainer, l.N}, true
			}
		}
	}
	return crew{}, false
}

// learning says that nobody knows yet what a worker in the place of e reaches, though
// it may be learned.
func (f *workforce) learning(e *worker, now time.Duration) bool {
	if _, known := f.need(e); known {
		return false
	}
	return e.warm.heap > 0 && now-e.since < learnFor
}

// need is what a worker in the place of e will need of its own: as those of its loader
// do, or, while none of them is old enough, those of the trainer's other loaders.
func (f *workforce) need(e *worker) (own rss.Bytes, known bool) {
	if own, known = f.needs[e.crew].own(); known {
		return own, true
	}
	return f.needs[crew{e.crew.trainer, 0}].own()
}

// own is that, or 0 where it is not known.
func (f *workforce) own(e *worker) rss.Bytes {
	own, _ := f.need(e)
	return own
}

// forget drops what is known of loaders that are gone: each epoch may make another.
func (f *workforce) forget() {
	maps.DeleteFunc(f.needs, func(c crew, _ *needs) bool {
		i := slices.IndexFunc(f.trainers, func(t loader.Trainer) bool { return t.ID == c.trainer })
		return i < 0 || c.loader != 0 && !slices.ContainsFunc(f.trainers[i].Loaders, func(l loader.Loader) bool { return l.N == c.loader })
	})
}
