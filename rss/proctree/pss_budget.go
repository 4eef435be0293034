package proctree

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// PSSBudget decides which process's PSS is read next, so that the readings
// take at most a share of one core: after a reading that took c, none is due
// until c/share later. It reads nothing itself and belongs to one goroutine:
//
//	budget.Update(sample.Procs)
//	for ask, ok := budget.Due(now); ok; ask, ok = budget.Due(now) {
//		pss, err := ask.Read(reader)
//		budget.Done(ask, pss, err, now)
//	}
//	budget.Attach(procs)
//
// The largest mover comes first: the process whose PSS may have changed most,
// one never read before all others of its size. A process that does not change comes round by its age.
//
// Where smaps_rollup would hold mmap_lock for more than 50 ms, as far as size
// tells, a process is read in pieces. Where they have more than 50 GiB together
// each is read once a minute at most. One of which a single mapping has twice
// taken more than those 50 ms is left alone: see [PSSBudget.Told].
type PSSBudget struct {
	// Share is the part of a core that the readings may take; 0 means 0.01.
	Share float64

	procs []rss.Proc
	total rss.Bytes // RSS of them all
	last  map[rss.ProcID]*pssEntry
	begun bool
	free  time.Duration // when the cost of the readings so far is paid
	rate  time.Duration // for 1 GiB, as the node's readings were; 0 before the first
	told  []error
}

// PSSAsk is one reading that is due.
type PSSAsk struct {
	ID rss.ProcID
	// Pieces says that it is for [Reader.PSSInPieces], not for [Reader.PSS].
	Pieces bool
}

// Read reads in the way that is asked for.
func (a PSSAsk) Read(r *Reader) (rss.PSS, error) {
	if a.Pieces {
		return r.PSSInPieces(a.ID)
	}
	return r.PSS(a.ID)
}

type pssEntry struct {
	pss    *rss.PSS
	now    rss.Proc  // as last seen
	moves  moves     // of others, since the last reading
	asked  moves     // … since the reading that is under way was asked for
	own    moves     // its own, in the last Update
	anon   rss.Bytes // when it was first seen, or first after the reading
	known  bool      // … and that was
	busy   bool
	failed time.Duration // when the last reading failed
	bad    bool
	seen   bool

	walked    time.Duration // by the last reading
	longest   stretch
	longs     int // readings in pieces in a row that held it too long: one may be the node's doing
	forbidden bool
	told      bool
}

const (
	// burst is how far readings may run ahead of what they may take, so that
	// many small processes are read in one go. One that costs more than little
	// is paid for in full before the next.
	burst  = time.Second
	little = 5 * time.Millisecond
	// crowd is the sum of RSS above which each process is read but seldom,
	// however much share there is left.
	crowd  = 50 * rss.GiB
	seldom = time.Minute
	// largest is the RSS above which a process is not read that never was in pieces: about a
	// second under its mmap_lock if all of it is one mapping.
	largest = 64 * rss.GiB
	// stale is the age at which a process that has not moved counts as if all
	// of it had; older ones count more, so that each comes round.
	stale = 2 * time.Minute
	// retry is how long a process that could not be read is left alone.
	retry = time.Minute
)

// moves is what others have given up and mapped again, which changes the PSS of
// a process that does nothing.
type moves struct {
	loose  rss.Bytes
	joined rss.Bytes // by processes that were there
	born   rss.Bytes // by new ones, which may share all that they have
}

func (m *moves) add(all, own moves) {
	m.loose += all.loose - own.loose
	m.joined += all.joined - own.joined
	m.born += all.born - own.born
}

// moved is what the process itself has given up and mapped since it was seen last. Its own
// anonymous memory is new to every process, except for what a fork shares.
func (e *pssEntry) moved(p *rss.Proc) moves {
	was := &e.now
	if was.ID != p.ID {
		return moves{born: p.RSS}
	}
	return moves{
		loose:  was.RSS.Sub(p.RSS),
		joined: (p.File + p.Shmem).Sub(was.File + was.Shmem),
	}
}

// Update says which processes there are now. The slice is kept, not changed.
func (b *PSSBudget) Update(procs []rss.Proc) {
	if b.last == nil {
		b.last = map[rss.ProcID]*pssEntry{}
	}
	b.procs, b.total = procs, 0
	var all moves
	var mapped rss.Bytes // by all, now
	for _, e := range b.last {
		e.seen, e.own = false, moves{}
	}
	for i := range procs {
		e := b.last[procs[i].ID]
		if e == nil {
			e = new(pssEntry)
			b.last[procs[i].ID] = e
		}
		e.seen = true
		e.own = e.moved(&procs[i])
		e.now = procs[i]
		b.total += procs[i].RSS
		b.forbid(e)
		if !e.known {
			e.anon, e.known = procs[i].Anon, true
		}
		all.add(e.own, moves{})
		mapped += procs[i].File + procs[i].Shmem
	}
	for id, e := range b.last {
		if e.seen {
			continue
		}
		all.loose += e.now.RSS
		e.now = rss.Proc{}
		if !e.busy {
			delete(b.last, id)
		}
	}
	if all == (moves{}) {
		return
	}
	for _, e := range b.last {
		others := mapped.Sub(e.now.File + e.now.Shmem)
		for _, m := range []*moves{&e.moves, &e.asked} {
			m.add(all, e.own)
			// Pages that were mapped and given up again are no longer shared.
			m.joined = min(m.joined, others)
		}
	}
}

// Due returns the process to read now and how, false where none is due. It is
// not returned again before Done was called for it.
func (b *PSSBudget) Due(now time.Duration) (PSSAsk, bool) {
	if b.begun && now < b.free {
		return PSSAsk{}, false
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
		return PSSAsk{}, false
	}
	e := b.last[best.ID]
	e.busy, e.asked = true, moves{}
	return PSSAsk{ID: best.ID, Pieces: b.hold(e, best.RSS) > longestHold}, true
}

// Next returns how long after now a reading will be due, false where none is wanted.
func (b *PSSBudget) Next(now time.Duration) (pause time.Duration, ok bool) {
	at := now
	if b.begun {
		at = max(now, b.free)
	}
	for i := range b.procs {
		if b.score(&b.procs[i], at) > 0 {
			return at - now, true
		}
	}
	return 0, false
}

// score is how many bytes a reading of p may correct, 0 where p must not or
// need not be read.
func (b *PSSBudget) score(p *rss.Proc, now time.Duration) rss.Bytes {
	e := b.last[p.ID]
	switch {
	case e == nil || e.busy || p.RSS == 0 || e.forbidden:
		return 0
	case e.bad && now < e.failed+retry:
		return 0
	case e.pss == nil:
		return 2 * p.RSS
	case now < e.pss.At+seldom && (b.total > crowd || e.longs > 0):
		return 0
	}
	moved := p.RSS.Sub(e.pss.RSS) + e.pss.RSS.Sub(p.RSS) +
		min(e.moves.loose, p.RSS.Sub(e.pss.PSS)) + min(e.moves.joined+e.moves.born, e.pss.PSS)/2
	age := float64(now-e.pss.At) / float64(stale)
	if moved == 0 && age < 0.1 {
		return 0
	}
	return moved + p.RSS.Scale(age)
}

// Done takes in the result of the reading that was due and starts the pause that
// pays for it. now becomes the reading's At.
func (b *PSSBudget) Done(ask PSSAsk, pss rss.PSS, err error, now time.Duration) {
	share := b.Share
	if share <= 0 {
		share = 0.01
	}
	if !b.begun {
		b.begun, b.free = true, now-burst
	}
	ahead := burst
	if pss.Cost > little {
		ahead = 0
	}
	b.free = max(b.free, now-ahead) + time.Duration(float64(pss.Cost)/share)
	e := b.last[ask.ID]
	if e == nil {
		return
	}
	e.busy, e.bad = false, err != nil
	if err != nil {
		e.failed = now
		return
	}
	pss.At = now
	e.pss, e.moves, e.known = &pss, e.asked, false
	e.walked = walked(&pss, ask.Pieces)
	b.learn(pss.RSS, e.walked)
	if ask.Pieces {
		e.longest = stretch{pss.Held, pss.RSS}
		if pss.Held > longestHold {
			e.longs++
		} else if e.longs < 2 {
			e.longs = 0
		}
		b.forbid(e)
	}
}

// Attach hangs the last reading of each process on it, whatever its age, with
// what it and others did since.
func (b *PSSBudget) Attach(procs []rss.Proc) {
	for i := range procs {
		e := b.last[procs[i].ID]
		if e == nil {
			continue
		}
		if e.known {
			procs[i].Private = procs[i].Anon.Sub(e.anon)
		}
		if e.pss != nil {
			pss := *e.pss
			pss.Loose, pss.Joined, pss.Born = e.moves.loose, e.moves.joined, e.moves.born
			procs[i].PSS = &pss
		}
	}
}

const (
	// longestHold is how long mmap_lock may be held at a stretch: who faults,
	// maps or unmaps in the process waits meanwhile. Since Linux 5.10
	// smaps_rollup lets a waiting writer in between two mappings, before (RHEL 8)
	// it does not.
	longestHold = 50 * time.Millisecond
	// slowWalk and fastWalk are the most and the least that was measured for
	// 1 GiB in pages of 4 KiB. Huge pages take next to nothing, which tells
	// nothing about what will be mapped next.
	slowWalk = 21 * time.Millisecond
	fastWalk = 7 * time.Millisecond
	// safety is how much longer than the last a reading of the same may take.
	safety = 1.5
	// telling is the size from which on the walk makes up the cost of a reading.
	telling = 256 * rss.MiB
)

// Lengthy says that smaps_rollup may hold mmap_lock for more than 50 ms in a
// process with that RSS, of which nothing else is known: [Reader.PSSInPieces]
// is for it.
func Lengthy(size rss.Bytes) bool { return walk(size, slowWalk) > longestHold }

// walk is what it takes to walk size at a rate for 1 GiB.
func walk(size rss.Bytes, rate time.Duration) time.Duration {
	return time.Duration(float64(rate) * size.Of(rss.GiB))
}

// walked is what smaps_rollup would have taken where smaps was read in pieces:
// of many small mappings most of the cost is calls and text.
func walked(pss *rss.PSS, pieces bool) time.Duration {
	if !pieces {
		return pss.Cost
	}
	return max(pss.Held, min(pss.Cost, walk(pss.RSS, slowWalk)))
}

// learn takes a walk into the rate of the node: up at once, down by half of the
// difference, since the next process may be mapped otherwise.
func (b *PSSBudget) learn(size rss.Bytes, took time.Duration) {
	if size < telling {
		return
	}
	rate := time.Duration(float64(took) / size.Of(rss.GiB))
	b.rate = max(rate, (b.walkRate()+rate)/2, fastWalk)
}

func (b *PSSBudget) walkRate() time.Duration {
	if b.rate == 0 {
		return slowWalk
	}
	return b.rate
}

// hold predicts how long smaps_rollup would hold mmap_lock: what was there at
// the last reading costs what it did, all else what the node's processes do.
func (b *PSSBudget) hold(e *pssEntry, size rss.Bytes) time.Duration {
	rate := b.walkRate()
	if b.rate != 0 {
		rate = time.Duration(float64(rate) * safety)
	}
	if e.pss == nil || e.pss.RSS < telling {
		return walk(size, rate)
	}
	same := min(size, e.pss.RSS).Of(e.pss.RSS)
	return time.Duration(float64(e.walked)*safety*same) + walk(size.Sub(e.pss.RSS), rate)
}

// stretch is the longest hold of the last reading in pieces.
type stretch struct {
	held time.Duration
	size rss.Bytes // RSS then
}

// at predicts the longest hold with another RSS, 0 where nothing was read.
func (s stretch) at(size rss.Bytes) time.Duration {
	if s.size == 0 {
		return 0
	}
	return time.Duration(float64(s.held) * size.Of(s.size))
}

// most is the RSS up to which that hold is short enough.
func (s stretch) most() rss.Bytes {
	return s.size.Scale(longestHold.Seconds() / s.held.Seconds())
}

// forbid settles whether the process may be read at all, and keeps the reason where it
// may not.
func (b *PSSBudget) forbid(e *pssEntry) {
	size := e.now.RSS
	long, unread := e.longest.at(size), e.longest.size == 0
	e.forbidden = long > longestHold && e.longs > 1 || unread && size > largest
	if !e.forbidden || e.told {
		return
	}
	e.told = true
	if unread {
		b.told = append(b.told, fmt.Errorf("cannot read PSS of process %d: its %v could be one mapping, and its mmap_lock held for a second",
			e.now.ID.PID, size))
		return
	}
	b.told = append(b.told, fmt.Errorf("cannot read PSS of process %d any more: the walk of one mapping holds its mmap_lock for about %v, and %v are allowed; what was read last stands, as an interval, until its RSS is below %v",
		e.now.ID.PID, long.Round(time.Millisecond), longestHold, e.longest.most()))
}

// Told returns what a user should know and was not told before: an error for
// each process that is not read because that would hold its mmap_lock for more
// than 50 ms.
func (b *PSSBudget) Told() []error {
	told := b.told
	b.told = nil
	return told
}
