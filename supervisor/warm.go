package supervisor

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file learns what a loader's worker needs of its own. A forked one has nothing
// at first and reaches what it needs within a few batches: 20 MiB in PyTorch's, for
// the tensors and the allocator's caches. A replacement needs that too, so it is
// nothing that a recycle gives back. A leak goes on, and that is how they are told
// apart: of what a worker had at one age and at half as much again, what grew as fast
// before is taken off.

const (
	// warmAge is the age at which a worker is looked at first. Each time that it is
	// half as old again it is looked at again, ages times in all, until 64 s.
	warmAge = 2500 * time.Millisecond
	ages    = 9
	// forkedShare is the share of its trainer's anonymous memory that a worker has
	// which was just forked. One that was spawned has next to none, and shares none.
	forkedShare = 0.9
	// leastNeed is what a worker needs at the least that has made a batch, and
	// settledShare by how much of it, or 16 MiB, what two ages tell may differ.
	leastNeed    = rss.MiB
	settledShare = 0.25
	// leakAge and leakAges are the age, about 28 s, until which one must have grown, and
	// at how many ages in a row as fast as before, for all that to be a leak.
	leakAge, leakAges = 6, 3
)

// warmth is what is known of one worker.
type warmth struct {
	heap rss.Bytes     // what it shares with its trainer since its fork, 0 where nobody knows
	age  time.Duration // when it was looked at last …
	own  rss.Bytes     // … and what it had of its own
	n    int           // how often it was …
	grew int           // … the last of these one after the other as fast as before
}

// crew names the workers of one loader: those of another need more or less. A loader
// of 0 is all of that trainer's.
type crew struct {
	trainer rss.ProcID
	loader  int
}

// needs is the least that any of a crew was found to need at each age.
type needs struct {
	least [ages]rss.Bytes
	known [ages]bool
	leaks bool // one grew as fast for half a minute as ever
}

func (n *needs) add(age int, own rss.Bytes) {
	if !n.known[age] || own < n.least[age] {
		n.least[age], n.known[age] = own, true
	}
}

// own is what one of the crew needs. The first age tells no leak from a need, so it
// counts only until the next one is known. Of the others the greatest counts: where
// batches are slow, workers need little for long.
func (n *needs) own() (most rss.Bytes, known bool) {
	for i := 1; i < ages; i++ {
		if n.known[i] {
			most, known = max(most, n.least[i]), true
		}
	}
	if !known {
		return n.least[0], n.known[0]
	}
	return most, true
}

// settled says that they need no more the longer they live: one age told as much as
// those before it, or they were looked at to the end, or all that they have is a leak.
// Where batches are slow they need nothing for long, and that tells nothing.
func (n *needs) settled() (ok bool) {
	if n.leaks {
		return true
	}
	most := rss.Bytes(0)
	for i := 1; i < ages && n.known[i]; i++ {
		off := max(n.least[i], most) - min(n.least[i], most)
		ok = most >= leastNeed && off <= max(most.Scale(settledShare), policy.MinGain(0))
		most = max(most, n.least[i])
	}
	return ok || n.known[ages-1]
}

// inherit notes what a worker that was just forked shares with its trainer.
func (h *warmth) inherit(first, trainer *rss.Proc) {
	if trainer != nil && trainer.Anon > 0 && first.Anon.Of(trainer.Anon) >= forkedShare {
		h.heap = min(trainer.Anon, first.Anon)
	}
}

// look looks at a worker of that age. ok is false where that tells nothing yet.
func (h *warmth) look(age time.Duration, anon rss.Bytes) (own rss.Bytes, n int, ok bool) {
	if h.heap == 0 || h.n == ages || age < max(warmAge, h.age*3/2) {
		return 0, 0, false
	}
	was, own := *h, anon.Sub(h.heap)
	h.age, h.own, h.n = age, own, h.n+1
	if was.n == 0 {
		return own, 0, age < 2*warmAge // of one that was not looked at for long, a leak's
	}
	leaked := own.Sub(was.own).Scale(float64(was.age) / float64(age-was.age))
	need := min(own, was.own.Sub(leaked))
	if own < leastNeed || need > own.Scale(settledShare) {
		h.grew = 0
	} else {
		h.grew++
	}
	return need, was.n, true
}

// learn looks at a loader's worker.
func (f *workforce) learn(e *worker, anon rss.Bytes, now time.Duration) {
	own, age, ok := e.warm.look(now-e.since, anon)
	if !ok {
		return
	}
	for _, c := range []crew{e.crew, {e.crew.trainer, 0}} {
		n := f.needs[c]
		if n == nil {
			n = &needs{}
			f.needs[c] = n
		}
		n.add(age, own)
		n.leaks = n.leaks || e.warm.grew >= leakAges && e.warm.n > leakAge
	}
}

// learning says that nobody knows yet what a worker in the place of e reaches, though
// it may be learned.
func (f *workforce) learning(e *worker) bool {
	n := f.needs[e.crew]
	return e.warm.heap > 0 && e.warm.n < ages && (n == nil || !n.settled())
}

// own is what a worker in the place of e will need of its own: as those of its loader
// do, or, while none of them is old enough, those of the trainer's other loaders.
func (f *workforce) own(e *worker) rss.Bytes {
	for _, c := range []crew{e.crew, {e.crew.trainer, 0}} {
		if n := f.needs[c]; n != nil {
			if own, known := n.own(); known {
				return own
			}
		}
	}
	return 0
}

// forget drops what is known of loaders that are gone: each epoch may make another.
func (f *workforce) forget() {
	maps.DeleteFunc(f.needs, func(c crew, _ *needs) bool {
		i := slices.IndexFunc(f.trainers, func(t loader.Trainer) bool { return t.ID == c.trainer })
		return i < 0 || c.loader != 0 && !slices.ContainsFunc(f.trainers[i].Loaders, func(l loader.Loader) bool { return l.N == c.loader })
	})
}
