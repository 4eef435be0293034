package workers

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// A forked worker of a loader has nothing of its own at first and reaches what it needs
// within a few batches: 20 MiB in PyTorch's, for the tensors and the allocator's caches. A
// replacement needs that too, so it is nothing that a recycle gives back. A leak goes on by
// as much with each batch, and that is how they are told apart: of what a worker had after
// some batches, as much is a leak as came with as many more.

const (
	// ages is how many reports of one worker are told apart: after 8 batches, 16, …
	ages = 16
	// forkedShare is the share of its trainer's anonymous memory that a worker has
	// which was just forked. One that was spawned has next to none, and shares none.
	forkedShare = 0.9
	// learnFor is the age from which on a worker that reported nothing will not.
	learnFor = time.Minute
)

// loaderKey names the workers of one loader: those of another need more or less. A loader
// of 0 is all of that trainer's.
type loaderKey struct {
	trainer rss.ProcID
	loader  int
}

// baseline is the least that any worker of a loader was found to need of its own, by the
// number of batches.
type baseline struct {
	least [ages]rss.Bytes
	known [ages]bool
}

func (b *baseline) add(age int, own rss.Bytes) {
	if !b.known[age] || own < b.least[age] {
		b.least[age], b.known[age] = own, true
	}
}

// own is what a worker of that loader needs. The greatest counts: what fills a cache for a
// hundred batches looks like a leak after eight.
func (b *baseline) own() (most rss.Bytes, known bool) {
	if b == nil {
		return 0, false
	}
	for i := range ages {
		if b.known[i] {
			most, known = max(most, b.least[i]), true
		}
	}
	return most, known
}

type baselines map[loaderKey]*baseline

// need is what a worker of a loader needs of its own: as those of its loader do, or, while
// none of them is old enough, those of the trainer's other loaders; 0 where it is not known.
func (all baselines) need(of loaderKey) (own rss.Bytes, known bool) {
	if own, known = all[of].own(); known {
		return own, true
	}
	return all[loaderKey{of.trainer, 0}].own()
}

// forget drops what is known of loaders that are gone: each epoch may make another.
func (all baselines) forget(trainers Trainers) {
	maps.DeleteFunc(all, func(key loaderKey, _ *baseline) bool {
		i := slices.IndexFunc(trainers, func(t event.Trainer) bool { return t.ID == key.trainer })
		return i < 0 || key.loader != 0 && !slices.ContainsFunc(trainers[i].Loaders, func(l event.DataLoader) bool { return l.N == key.loader })
	})
}

// sharedSinceFork is what a worker shares with its trainer that was just forked.
func sharedSinceFork(first, trainer *rss.Proc) rss.Bytes {
	if trainer != nil && trainer.Anon > 0 && first.Anon.Of(trainer.Anon) >= forkedShare {
		return min(trainer.Anon, first.Anon)
	}
	return 0
}

// Grown learns from what a worker reported of itself: the anonymous memory that came since
// its first batch, by half of its batches and by all of them.
func (w *Workers) Grown(trainer rss.ProcID, pid, batches int, half, own rss.Bytes) {
	of, ok := w.loaderOf(trainer, pid)
	if !ok || batches < 1 {
		return
	}
	leaked := own.Sub(half) // by half of its batches, as by the others
	need := min(own, half.Sub(leaked))
	for _, key := range []loaderKey{of, {of.trainer, 0}} {
		b := w.baselines[key]
		if b == nil {
			b = &baseline{}
			w.baselines[key] = b
		}
		b.add(min(bits.Len(uint(batches)), ages)-1, need)
	}
}

// loaderOf is the loader of a worker that may not have been seen yet.
func (w *Workers) loaderOf(trainer rss.ProcID, pid int) (loaderKey, bool) {
	if e := w.staff[pid]; e != nil && e.of.trainer == trainer {
		return e.of, true
	}
	for _, t := range w.trainers {
		for _, l := range t.Loaders {
			if t.ID == trainer && slices.Contains(l.Workers, pid) {
				return loaderKey{trainer, l.N}, true
			}
		}
	}
	return loaderKey{}, false
}

// learning says that it is not known yet what a worker in the place of e reaches, though
// it may be learned.
func (w *Workers) learning(e *worker) bool {
	if _, known := w.baselines.need(e.of); known {
		return false
	}
	return e.shared > 0 && w.last.Mono-e.since < learnFor
}

// NeedKnown says that what a worker will need of its own was learned from reports.
func (w *Workers) NeedKnown(pid int) (known bool) {
	if e := w.staff[pid]; e != nil {
		_, known = w.baselines.need(e.of)
	}
	return known
}

// PSSFloor is the least that the PSS of a trainer and its workers adds up to: what forked
// workers have got since their fork no other process shares, and what they share with their
// trainer counts once in all. Readings of PSS that are seconds old may be below it. Of several
// trainers it is that of the one with the most: they may share what they were forked with.
func (w *Workers) PSSFloor() (most rss.Bytes) {
	sums := map[int]rss.Bytes{}
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		if e := w.staff[p.ID.PID]; e != nil && e.id == p.ID && e.shared > 0 {
			sums[e.trainer] += p.Anon.Sub(e.shared)
		}
	}
	for pid, own := range sums {
		if t := w.last.Find(pid); t != nil {
			most = max(most, t.Anon+own)
		}
	}
	return most
}
