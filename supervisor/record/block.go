package record

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// A block is a run of samples, each but the first as the difference from the one before.
// It is the value of one key, and can be read alone. All numbers are varints; sizes are in
// KiB:
//
//	block  = tier (a byte: how far it was thinned) sample ...
//	sample = at(ms, the first since the start) flags limits procs
//	limits = count, of each its index if the list has changed, then
//	         mask and what the mask names
//	procs  = gone, came, then of each that changed: how many are passed over,
//	         mask and what the mask names; ended by passing over the rest
//
// A job that does not change costs some ten bytes a sample, whatever its size.

const (
	// blockSize is how large a block may grow: with LMDB's 16 bytes of header a
	// value of that size takes one page of 4 KiB.
	blockSize = 4096 - 16 - crcSize - 1
	// leastSamples is how many a block holds at least: in a tree of thousands
	// one sample is larger than a page.
	leastSamples = 16
	// mostBlock bounds a block where even leastSamples are too large for it.
	mostBlock = 256 << 10
)

const (
	flagDecision = 1 << iota
	flagSameLimits
	flagSameProcs
)

// What has changed of a limit.
const (
	hasUsed = 1 << iota
	hasUsedMax
	hasCharged
	hasWorkingSet
	hasSize
	hasETA
	isBinding
	mayFlatten
)

// What has changed of a process.
const (
	hasAnon = 1 << iota
	hasFile
	hasShmem
	hasPSS
	hasMaps
	hasFDs
)

// Encoder makes one block. The zero value is empty.
type Encoder struct {
	buf    []byte
	mask   uint64 // what has changed of the limit or process that is being put
	diff   []byte // … and by how much
	n      int
	last   Sample
	before int // len(buf) before the last sample
}

func (e *Encoder) Empty() bool { return e.n == 0 }

// Full says that the next sample belongs into another block.
func (e *Encoder) Full() bool {
	size := len(e.buf)
	if e.n == 0 {
		return false
	}
	more := size - e.before // what the next may take, by the last
	return size+more > mostBlock || e.n >= leastSamples && size+more > blockSize
}

// Block returns the block and empties the Encoder.
func (e *Encoder) Block(tier int) []byte {
	b := e.Snapshot(tier)
	e.buf, e.n, e.before = e.buf[:0], 0, 0
	return b
}

// Snapshot returns the block as it is by now.
func (e *Encoder) Snapshot(tier int) []byte {
	return append([]byte{byte(tier)}, e.buf...)
}

func (e *Encoder) uint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }

// change notes the difference of two numbers, if there is one, by a bit of the mask.
func (e *Encoder) change(bit uint64, now, before int64) {
	if now != before {
		e.mask |= bit
		e.diff = binary.AppendVarint(e.diff, now-before)
	}
}

func (e *Encoder) kib(bit uint64, now, before rss.Bytes) {
	e.change(bit, int64(now/rss.KiB), int64(before/rss.KiB))
}

// set notes a number whole.
func (e *Encoder) set(bit, now, before uint64) {
	if now != before {
		e.mask |= bit
		e.diff = binary.AppendUvarint(e.diff, now)
	}
}

func (e *Encoder) changes() {
	e.uint(e.mask)
	e.buf = append(e.buf, e.diff...)
	e.mask, e.diff = 0, e.diff[:0]
}

func (e *Encoder) Add(s *Sample) {
	e.before = len(e.buf)
	l := &e.last
	if e.n == 0 {
		*l = Sample{Limits: l.Limits[:0], Procs: l.Procs[:0]}
	}
	e.uint(uint64(max(s.At-l.At, 0) / time.Millisecond))
	flags := uint64(0)
	if s.AtDecision {
		flags |= flagDecision
	}
	sameLimits := slices.EqualFunc(s.Limits, l.Limits, func(a, b Reading) bool { return a.Limit == b.Limit })
	sameProcs := slices.EqualFunc(s.Procs, l.Procs, func(a, b Usage) bool { return a.Proc == b.Proc })
	if sameLimits {
		flags |= flagSameLimits
	}
	if sameProcs {
		flags |= flagSameProcs
	}
	e.uint(flags)
	if !sameLimits {
		e.uint(uint64(len(s.Limits)))
		next := make([]Reading, len(s.Limits))
		for i := range s.Limits {
			e.uint(uint64(s.Limits[i].Limit))
			next[i] = Reading{Limit: s.Limits[i].Limit, ETA: -1}
			if j := slices.IndexFunc(l.Limits, func(r Reading) bool { return r.Limit == s.Limits[i].Limit }); j >= 0 {
				next[i] = l.Limits[j]
			}
		}
		l.Limits = next
	}
	for i := range s.Limits {
		e.limit(&s.Limits[i], &l.Limits[i])
	}
	if !sameProcs {
		e.procs(s.Procs, l)
	}
	e.usage(s.Procs, l.Procs)
	l.At += max(s.At-l.At, 0) / time.Millisecond * time.Millisecond
	copy(l.Limits, s.Limits)
	copy(l.Procs, s.Procs)
	e.n++
}

func (e *Encoder) limit(r, was *Reading) {
	e.kib(hasUsed, r.Used, was.Used)
	e.kib(hasUsedMax, r.UsedMax.Sub(r.Used), was.UsedMax.Sub(was.Used))
	e.kib(hasCharged, r.Charged, was.Charged)
	e.kib(hasWorkingSet, r.WorkingSet, was.WorkingSet)
	e.set(hasSize, uint64(r.Size), uint64(was.Size))
	e.set(hasETA, eta(r), eta(was))
	if r.Binding {
		e.mask |= isBinding
	}
	if r.MayFlatten {
		e.mask |= mayFlatten
	}
	e.changes()
}

// eta is a forecast in seconds and 1 more, 0 for none.
func eta(r *Reading) uint64 {
	const most = 1 << 40
	if r.ETA < 0 || r.ETA != r.ETA {
		return 0
	}
	return uint64(min(r.ETA, most)) + 1
}

// procs writes the processes that went and came, in the order of now.
func (e *Encoder) procs(now []Usage, l *Sample) {
	place := make(map[int]bool, len(now))
	for i := range now {
		place[now[i].Proc] = true
	}
	was := make(map[int]Usage, len(l.Procs))
	for _, u := range l.Procs {
		was[u.Proc] = u
	}
	gone := 0
	for _, u := range l.Procs {
		if !place[u.Proc] {
			gone++
		}
	}
	// Processes are told by PID, so who stays keeps its order nearly always;
	// where not, the whole list is written again.
	stay := slices.DeleteFunc(slices.Clone(l.Procs), func(u Usage) bool { return !place[u.Proc] })
	ordered := true
	i := 0
	for _, u := range now {
		if _, ok := was[u.Proc]; ok {
			if stay[i].Proc != u.Proc {
				ordered = false
				break
			}
			i++
		}
	}
	if !ordered {
		gone, stay, was = len(l.Procs), nil, nil
	}
	e.uint(uint64(gone))
	for i, u := range l.Procs {
		if !place[u.Proc] || !ordered {
			e.uint(uint64(i))
		}
	}
	e.uint(uint64(len(now) - len(stay)))
	next := make([]Usage, len(now))
	for i, u := range now {
		if old, ok := was[u.Proc]; ok {
			next[i] = old
			continue
		}
		e.uint(uint64(i))
		e.uint(uint64(u.Proc))
		next[i] = Usage{Proc: u.Proc}
	}
	l.Procs = next
}

func (e *Encoder) usage(now, was []Usage) {
	passed := uint64(0)
	for i := range now {
		u, o := &now[i], &was[i]
		e.kib(hasAnon, u.Anon, o.Anon)
		e.kib(hasFile, u.File, o.File)
		e.kib(hasShmem, u.Shmem, o.Shmem)
		e.kib(hasPSS, u.PSS, o.PSS)
		e.change(hasMaps, int64(u.Maps), int64(o.Maps))
		e.change(hasFDs, int64(u.FDs), int64(o.FDs))
		if e.mask == 0 {
			passed++
			continue
		}
		e.uint(passed)
		passed = 0
		e.changes()
	}
	if passed > 0 {
		e.uint(passed)
	}
}
