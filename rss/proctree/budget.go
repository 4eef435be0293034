package proctree

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// PSSBudget decides which process's PSS is read next, so that the readings
// take at most a share of one core: after a reading that took c, none is due
// until c/share later. It reads nothing itself and belongs to one goroutine:
//
//	budget.Update(sample.Procs)
//	for id, ok := budget.Due(now); ok; id, ok = budget.Due(now) {
//		pss, err := reader.PSS(id)
//		budget.Done(id, pss, err, now)
//	}
//	budget.Attach(procs)
//
// The largest mover comes first: the process whose PSS may have changed most,
// one never read before all others of its size. What stands still comes round by its age.
type PSSBudget struct {
	// Share is the part of a core that the readings may take; 0 means 0.01.
	Share float64
	// Largest is the RSS above which a process is never read, for its own
	// sake; 0 means 64 GiB, about a second under its mmap_lock.
	Largest rss.Bytes

	procs []rss.Proc
	last  map[rss.ProcID]*pssEntry
	begun bool
	free  time.Duration // when the cost of the readings so far is paid
}

type pssEntry struct {
	pss    *rss.PSS
	busy   bool
	failed time.Duration // when the last reading failed
	bad    bool
	seen   bool
}

const (
	// burst is how far readings may run ahead of what they may take, so that
	// many small processes are read in one go.
	burst = time.Second
	// stale is the age at which a process that has not moved counts as if all
	// of it had; older ones count more, so that each comes round.
	stale = 2 * time.Minute
	// retry is how long a process that could not be read is left alone.
	retry = time.Minute
)

// Update says which processes there are now. The slice is kept, not changed.
func (b *PSSBudget) Update(procs []rss.Proc) {
	if b.last == nil {
		b.last = map[rss.ProcID]*pssEntry{}
	}
	b.procs = procs
	for _, e := range b.last {
		e.seen = false
	}
	for i := range procs {
		e := b.last[procs[i].ID]
		if e == nil {
			e = new(pssEntry)
			b.last[procs[i].ID] = e
		}
		e.seen = true
	}
	for id, e := range b.last {
		if !e.seen && !e.busy {
			delete(b.last, id)
		}
	}
}

// Due returns the process to read now, false where none is due. It is not
// returned again before Done was called for it.
func (b *PSSBudget) Due(now time.Duration) (rss.ProcID, bool) {
	if b.begun && now < b.free {
		return rss.ProcID{}, false
	}
	var best *rss.Proc
	var most rss.Bytes
	for i := range b.procs {
		p := &b.procs[i]
		if score := b.score(p, now); score > most {
			best, most = p, score
		}
	}
	if best == nil {
		return rss.ProcID{}, false
	}
	b.last[best.ID].busy = true
	return best.ID, true
}

// score is how many bytes a reading of p may correct, 0 where p must not or
// need not be read.
func (b *PSSBudget) score(p *rss.Proc, now time.Duration) rss.Bytes {
	e := b.last[p.ID]
	largest := b.Largest
	if largest == 0 {
		largest = 64 * rss.GiB
	}
	switch {
	case e == nil || e.busy || p.RSS == 0 || p.RSS > largest:
		return 0
	case e.bad && now < e.failed+retry:
		return 0
	case e.pss == nil:
		return 2 * p.RSS
	}
	moved := p.RSS.Sub(e.pss.RSS) + e.pss.RSS.Sub(p.RSS)
	age := float64(now-e.pss.At) / float64(stale)
	if moved == 0 && age < 0.1 {
		return 0
	}
	return moved + p.RSS.Scale(age)
}

// Done says what the reading of a process brought and starts the pause that
// pays for it. now becomes the reading's At.
func (b *PSSBudget) Done(id rss.ProcID, pss rss.PSS, err error, now time.Duration) {
	share := b.Share
	if share <= 0 {
		share = 0.01
	}
	if !b.begun {
		b.begun, b.free = true, now-burst
	}
	b.free = max(b.free, now-burst) + time.Duration(float64(pss.Cost)/share)
	e := b.last[id]
	if e == nil {
		return
	}
	e.busy, e.bad = false, err != nil
	if err != nil {
		e.failed = now
		return
	}
	pss.At = now
	e.pss = &pss
}

// Attach hangs the last reading of each process on it, whatever its age.
func (b *PSSBudget) Attach(procs []rss.Proc) {
	for i := range procs {
		if e := b.last[procs[i].ID]; e != nil {
			procs[i].PSS = e.pss
		}
	}
}
