package workers

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Usage is what one worker holds, as the budget and the choice among workers see it.
type Usage struct {
	ID      rss.ProcID
	Trainer int // PID of its trainer, 0 for a pool's worker
	// Mapped is RssFile of /proc/PID/status: what the worker itself compares
	// with its budget.
	Mapped rss.Bytes
	// Counted is what the limit counts of the worker in all, of a [Workers.Recyclable]
	// above a fresh one, and CountedMapped what it counts of Mapped at most: all of it
	// under rss, a share under pss, nothing under noshared and cgroup. CountedSure is
	// what of that was read: under pss alone it differs.
	Counted, CountedMapped, CountedSure rss.Bytes
	// Kept is what of Mapped no trim takes, libraries above all, and CountedKept
	// what the limit counts of that.
	Kept, CountedKept rss.Bytes
	// RecycledAgo is how long ago this worker's place was last recycled, 0 for
	// never.
	RecycledAgo time.Duration
	// RankServed is when a worker of the same rank was recycled last, by any clock
	// that all share, 0 for never.
	RankServed time.Duration
}

// Recyclable returns the workers that could be recycled, with what each counts above a
// fresh one.
func (w *Workers) Recyclable(a event.Accounting) (list []Usage) {
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		e := w.staff[p.ID.PID]
		if e == nil || !e.able || e.id != p.ID {
			continue
		}
		u := Usage{ID: p.ID, Trainer: e.trainer, Mapped: p.File, Counted: Counted(p, a).Sub(w.fresh(e, a))}
		if a == event.AccountingPSS && e.shared > 0 {
			// At least that: it came after the fork, and no other process shares it. The
			// trainer's PSS, which stands for a fresh worker's, has its libraries in it.
			own, _ := w.baselines.need(e.of)
			u.Counted = max(u.Counted, p.Anon.Sub(e.shared+own))
		}
		if e.fresh {
			u.RecycledAgo = max(w.last.Mono-e.since, 1)
			if w.learning(e) {
				// A steady job would have each place recycled as soon as it may be.
				u.RecycledAgo = min(u.RecycledAgo, RecycleEvery-1)
			}
		}
		list = append(list, u)
	}
	return list
}

// RecyclableFor is Recyclable for a limit that is reached in the time left, 0 where nothing
// grows: it does not matter how long ago a place was recycled whose worker outgrew it.
func (w *Workers) RecyclableFor(l *event.Limit, left time.Duration) []Usage {
	list := w.Recyclable(l.Accounting)
	for i := range list {
		if w.outgrew(w.staff[list[i].ID.PID], l, left) {
			list[i].RecycledAgo = 0
		}
	}
	return list
}

// Fresh is what a limit would count of a worker that has only just started in the place of
// another, false where that is no worker.
func (w *Workers) Fresh(pid int, a event.Accounting) (rss.Bytes, bool) {
	e := w.staff[pid]
	if e == nil {
		return 0, false
	}
	return w.fresh(e, a), true
}

// fresh is what a limit would count of a worker that has only just started in the place of e:
// for a loader's, forked from its trainer, the trainer's anonymous memory, which a cgroup is
// not charged for again, and what it will need of its own within a few batches. For a cgroup
// it is what e itself shares: that is not given back with it, however large the trainer has
// become.
func (w *Workers) fresh(e *worker, a event.Accounting) rss.Bytes {
	if e.trainer == 0 {
		switch {
		case e.id.Start >= w.From:
			return Counted(&e.first, a)
		case w.young != nil:
			return Counted(w.young, a)
		}
		return 0 // not known: the first that is replaced will tell
	}
	t := w.last.Find(e.trainer)
	if t == nil {
		return Counted(&e.first, a)
	}
	own, _ := w.baselines.need(e.of)
	switch a {
	case event.AccountingRSS:
		return t.Anon + own + w.leastFile
	case event.AccountingPSS:
		// Pages shared after fork count a part in each; so they do in the trainer.
		return min(t.Anon, Counted(t, a)) + own
	case event.AccountingVirtual:
		return t.Virtual
	case event.AccountingCgroup:
		if e.shared > 0 {
			return min(e.shared, t.Anon) + own
		}
	}
	return t.Anon + own
}

// SharedSinceFork is what a worker shares with its trainer, 0 where that is not known.
func (w *Workers) SharedSinceFork(pid int) rss.Bytes {
	if e := w.staff[pid]; e != nil {
		return e.shared
	}
	return 0
}

// HurryETA is the time to the limit below which a worker may be recycled again although it
// was only just. Where it cannot be learned what one needs, hurryShare is by how much of its
// limit use must have grown since, and hurryTimes how often that need not be.
const (
	HurryETA   = RecycleEvery
	hurryShare = 0.01
	hurryTimes = 5
)

// outgrew says that the limit is near and e, which took the place of another, grows: then it
// does not matter how long ago that was. That the limit is near follows from the fastest rate
// seen, which may be of minutes ago; where it is known what a worker needs, what e has above
// that is growth. In a place of which that cannot be learned, as in a pool's, use must have
// grown since ([Workers.regrew]); at first and once it has, hurryTimes in a row need not wait
// for that.
func (w *Workers) outgrew(e *worker, l *event.Limit, left time.Duration) bool {
	near := left > 0 && left < HurryETA
	if e.shared > 0 {
		return near && !w.learning(e)
	}
	return near && e.hurried < hurryTimes || w.regrew(e, l)
}

// regrew says that use has grown since e took its place: by hurryShare of the limit,
// and so fast that it is reached within HurryETA, or by as much as is left.
func (w *Workers) regrew(e *worker, l *event.Limit) bool {
	grown, age := l.Used.Sub(e.usedAtStart), max(w.last.Mono-e.since, 1)
	if e.limitAtStart != l.ID() || grown < l.Limit.Scale(hurryShare) {
		return false
	}
	return l.Headroom() <= grown.Scale(max(1, HurryETA.Seconds()/age.Seconds()))
}

// hurriedAfter is worker.hurried of the one that takes the place of e.
func (w *Workers) hurriedAfter(e *worker, l *event.Limit) int {
	switch {
	case w.regrew(e, l):
		return 0
	case e.fresh && w.last.Mono-e.since < RecycleEvery:
		return e.hurried + 1
	}
	return e.hurried
}

const (
	// firstRecycleTime is what a recycle is expected to take before one was seen, and
	// mostRecycleTime what is allowed for at most.
	firstRecycleTime = 500 * time.Millisecond
	mostRecycleTime  = 2 * time.Second
)

// RecycleTime is for how long growth goes on until a recycle has taken effect: twice the
// last one's time.
func (w *Workers) RecycleTime() time.Duration {
	return min(2*cmp.Or(w.RecycleTook, firstRecycleTime), mostRecycleTime)
}

// Acted are the processes that an action acts on, as they were before it.
type Acted struct {
	Procs   []rss.Proc
	Pool    []rss.ProcID // all workers of the pool before one was signalled, nil for no pool's
	shared  rss.Bytes    // what the worker that is recycled shared with its trainer, 0 where unknown
	hurried int          // of the worker that takes its place
}

// ActOn returns what is known of the worker that is to be recycled for a limit.
func (w *Workers) ActOn(pid int, l *event.Limit) Acted {
	e := w.staff[pid]
	return Acted{Procs: []rss.Proc{*w.last.Find(pid)}, shared: e.shared, hurried: w.hurriedAfter(e, l)}
}

func (w *Workers) Replaced(worker, replacement int) {
	if replacement != 0 {
		w.took[worker] = replacement
	}
}

// GivenBack is what the processes acted on counted before, less what they and those in their
// places count now, and notes for which limit's sake those are there. A process that ended
// and was not replaced gave nothing back by the action. before is the limit as it was.
func (w *Workers) GivenBack(f *Acted, before *event.Limit) rss.Bytes {
	a := before.Accounting
	replaces := func(e *worker) {
		e.usedAtStart, e.limitAtStart, e.hurried = before.Used, before.ID(), f.hurried
	}
	var was, is rss.Bytes
	known := map[rss.ProcID]bool{}
	for i := range f.Procs {
		p := &f.Procs[i]
		known[p.ID] = true
		q := w.last.Find(p.ID.PID)
		if next, ok := w.took[p.ID.PID]; ok {
			q = w.last.Find(next)
			if e := w.staff[next]; e != nil {
				replaces(e)
			}
		} else if q != nil && q.ID != p.ID {
			q = nil
		}
		if q != nil {
			is += Counted(q, a)
		}
		if q != nil || f.Pool != nil {
			was += Counted(p, a)
		}
	}
	if a == event.AccountingCgroup && f.shared > 0 && is > 0 {
		// What each shares with the trainer is charged to that, and what the trainer
		// has dropped since to the workers.
		shared := w.SharedSinceFork(w.took[f.Procs[0].ID.PID])
		if t := w.last.Find(f.Procs[0].Parent); t != nil && shared > 0 {
			was, is = was.Sub(min(f.shared, t.Anon)), is.Sub(min(shared, t.Anon))
		}
	}
	for _, id := range f.Pool {
		known[id] = true
	}
	if f.Pool != nil {
		for _, id := range w.Pools.Workers() {
			if e := w.staff[id.PID]; e != nil && !known[id] {
				e.fresh = true
				replaces(e)
				is += Counted(w.last.Find(id.PID), a)
			}
		}
	}
	return was.Sub(is)
}

// OwnBack is what a recycled worker of a loader had of its own, less what the one in its
// place has; ok is false where that is not known. No other process shares it: it counts in
// full.
func (w *Workers) OwnBack(f *Acted) (own rss.Bytes, ok bool) {
	if f.shared == 0 || len(f.Procs) != 1 {
		return 0, false
	}
	was := &f.Procs[0]
	next := w.took[was.ID.PID]
	q, shared := w.last.Find(next), w.SharedSinceFork(next)
	if q == nil || shared == 0 {
		return 0, false
	}
	return was.Anon.Sub(f.shared).Sub(q.Anon.Sub(shared)), true
}

// A forked worker of a loader has nothing of its own at first and reaches what it needs
// within a few batches: 20 MiB in PyTorch's, for the tensors and the allocator's caches. A
// replacement needs that too, so it is nothing that a recycle gives back. A leak goes on by
// as much with each batch, and that is how they are told apart: of what a worker had after
// some batches, as much is a leak as came with as many more.

const (
	// ages is how many reports of one worker are told apart: after 6 batches, 12, …
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

const (
	// RecycleEvery is how often at most one worker's place is recycled.
	RecycleEvery = 30 * time.Second
	// LongPause is the pause of the trainer above which a recycle waits.
	LongPause = 200 * time.Millisecond
	// aboutAsMuch is the share of the most that another worker gives for the two to
	// count alike.
	aboutAsMuch = 0.75
)

// Pick returns the index of the worker to recycle next and how much that is expected to give
// back: the one that counts most, not recycled in the last [RecycleEvery], with at least
// worth. Of those that give about as much it is one of the rank recycled least recently: in a
// training in step all ranks wait for the one whose loader is busy. Without one: -1 and the
// reason.
func Pick(workers []Usage, worth rss.Bytes) (index int, gain rss.Bytes, reason event.Reason) {
	if len(workers) == 0 {
		return -1, 0, event.ReasonNoWorker
	}
	index, reason = -1, event.ReasonNothing
	able := func(u *Usage) bool {
		if u.Counted < worth {
			return false
		}
		if u.RecycledAgo > 0 && u.RecycledAgo < RecycleEvery {
			reason = event.ReasonRecent
			return false
		}
		return true
	}
	for i := range workers {
		if u := &workers[i]; able(u) && u.Counted > gain {
			index, gain = i, u.Counted
		}
	}
	if index < 0 {
		return -1, 0, reason
	}
	enough := gain.Scale(aboutAsMuch)
	for i := range workers {
		if u := &workers[i]; able(u) && u.Counted >= enough && u.RankServed < workers[index].RankServed {
			index, gain = i, u.Counted
		}
	}
	return index, gain, event.ReasonNone
}

// RecycleMode returns [event.Swap] where headroom, the bytes left before the limit,
// holds two fresh workers, else [event.Drain], as where it is not known what a fresh
// worker takes.
func RecycleMode(headroom, fresh rss.Bytes) event.Mode {
	if fresh > 0 && headroom/2 >= fresh {
		return event.Swap
	}
	return event.Drain
}

// ForkPause forecasts how long a trainer stands still while one worker is
// recycled: 15 ms, and 9 ms for each GiB of its anonymous memory, whose page
// tables fork copies.
func ForkPause(anon rss.Bytes) time.Duration {
	return 15*time.Millisecond + time.Duration(float64(9*time.Millisecond)*float64(anon)/float64(rss.GiB))
}
