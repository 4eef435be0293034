package record

import (
	"encoding/binary"
	"errors"
	"iter"
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

var errBlock = errors.New("malformed block of samples")

// decoder reads the blocks that [Encoder] makes. The zero value is ready.
type decoder struct {
	b   []byte
	bad bool
	s   Sample
	err error // of the last block
}

// mostListed bounds the processes and limits of a sample: a block of nonsense
// must not take all memory.
const mostListed = 1 << 28

func (d *decoder) uint() uint64 {
	// Nearly all take one byte or two.
	if b := d.b; len(b) > 1 {
		if b[0] < 0x80 {
			d.b = b[1:]
			return uint64(b[0])
		}
		if b[1] < 0x80 {
			d.b = b[2:]
			return uint64(b[0]&0x7f) | uint64(b[1])<<7
		}
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int reads what [binary.AppendVarint] wrote.
func (d *decoder) int() int64 {
	v := d.uint()
	return int64(v>>1) ^ -int64(v&1)
}

// kib takes in the difference of a size, where the mask says that there is one.
func (d *decoder) kib(has uint64, to *rss.Bytes) {
	if has == 0 {
		return
	}
	v := int64(*to/rss.KiB) + d.int()
	if v < 0 || v > 1<<52 {
		d.bad, v = true, 0
	}
	*to = rss.Bytes(v) * rss.KiB
}

func (d *decoder) count(has uint64, to *int) {
	if has == 0 {
		return
	}
	v := int64(*to) + d.int()
	if v < 0 || v > 1<<40 {
		d.bad, v = true, 0
	}
	*to = int(v)
}

// samples yields what a block holds, until its end or what is malformed. The
// sample is the decoder's own and is overwritten by the next.
func (d *decoder) samples(block []byte) iter.Seq[*Sample] {
	return func(yield func(*Sample) bool) {
		d.bad, d.err = false, nil
		if len(block) == 0 || int(block[0]) >= len(gaps) {
			d.err = errBlock
			return
		}
		d.b = block[1:]
		d.s = Sample{Limits: d.s.Limits[:0], Procs: d.s.Procs[:0]}
		for len(d.b) > 0 {
			if !d.next() {
				d.err = errBlock
				return
			}
			if !yield(&d.s) {
				return
			}
		}
	}
}

func (d *decoder) next() bool {
	ms := d.uint()
	if ms > 1<<42 {
		return false
	}
	d.s.At += time.Duration(ms) * time.Millisecond
	flags := d.uint()
	d.s.AtDecision = flags&flagDecision != 0
	if flags&flagSameLimits == 0 && !d.limitList() {
		return false
	}
	for i := range d.s.Limits {
		d.limit(&d.s.Limits[i])
	}
	if flags&flagSameProcs == 0 && !d.procList() {
		return false
	}
	return d.usage() && !d.bad
}

func (d *decoder) limitList() bool {
	n := d.uint()
	if d.bad || n > min(uint64(len(d.b)), mostLimits) {
		return false
	}
	was := make(map[int]Reading, len(d.s.Limits))
	for _, r := range d.s.Limits {
		was[r.Limit] = r
	}
	d.s.Limits = d.s.Limits[:0]
	for range n {
		index := d.uint()
		if index > mostListed {
			return false
		}
		next, ok := was[int(index)]
		if !ok {
			next = Reading{Limit: int(index), ETA: -1}
		}
		d.s.Limits = append(d.s.Limits, next)
	}
	return !d.bad
}

func (d *decoder) limit(r *Reading) {
	over := r.UsedMax.Sub(r.Used)
	mask := d.uint()
	d.kib(mask&hasUsed, &r.Used)
	d.kib(mask&hasUsedMax, &over)
	r.UsedMax = r.Used + over
	d.kib(mask&hasCharged, &r.Charged)
	d.kib(mask&hasWorkingSet, &r.WorkingSet)
	if mask&hasSize != 0 {
		r.Size = rss.Bytes(d.uint())
	}
	if mask&hasETA != 0 {
		r.ETA = float64(d.uint()) - 1
	}
	r.Binding, r.MayFlatten = mask&isBinding != 0, mask&mayFlatten != 0
}

func (d *decoder) procList() bool {
	gone := d.uint()
	if d.bad || gone > uint64(len(d.s.Procs)) {
		return false
	}
	next, from := make([]Usage, 0, len(d.s.Procs)), 0
	for range gone {
		i := d.uint()
		if i < uint64(from) || i >= uint64(len(d.s.Procs)) {
			return false
		}
		next = append(next, d.s.Procs[from:i]...)
		from = int(i) + 1
	}
	stay := append(next, d.s.Procs[from:]...)
	came := d.uint()
	if d.bad || came > uint64(len(d.b)) || came+uint64(len(stay)) > mostRecorded {
		return false
	}
	all := make([]Usage, 0, len(stay)+int(came))
	for range came {
		at, index := d.uint(), d.uint()
		if at < uint64(len(all)) || at-uint64(len(all)) > uint64(len(stay)) || index > mostListed {
			return false
		}
		n := int(at) - len(all)
		all = append(append(all, stay[:n]...), Usage{Proc: int(index)})
		stay = stay[n:]
	}
	d.s.Procs = append(all, stay...)
	return !d.bad
}

func (d *decoder) usage() bool {
	for i := 0; i < len(d.s.Procs); i++ {
		skip := d.uint()
		if d.bad || skip > uint64(len(d.s.Procs)-i) {
			return false
		}
		if i += int(skip); i == len(d.s.Procs) {
			break
		}
		u := &d.s.Procs[i]
		mask := d.uint()
		d.kib(mask&hasAnon, &u.Anon)
		d.kib(mask&hasFile, &u.File)
		d.kib(mask&hasShmem, &u.Shmem)
		d.kib(mask&hasPSS, &u.PSS)
		d.count(mask&hasMaps, &u.Maps)
		d.count(mask&hasFDs, &u.FDs)
	}
	return !d.bad
}

// gaps are the distances of samples in each tier; a block's first byte is its tier. Tier
// 0 is as the samples were taken. A record that fills up keeps of its older samples one
// in 10 s, of those one a minute, and so on: the fullest, so that peaks stay, and up to
// mostDecided on which rules fired.
var gaps = [...]time.Duration{0, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}

// Tiers is how many tiers there are. The oldest blocks of the last are deleted.
const Tiers = len(gaps)

func TierOf(sealed []byte) int {
	if len(sealed) <= crcSize || int(sealed[crcSize]) >= Tiers {
		return Tiers - 1 // damaged: nothing is ever thinned from there
	}
	return int(sealed[crcSize])
}

// mostDecided is how many samples at decisions are kept of one stretch. There may
// be a decision each second for days.
const mostDecided = 8

func Thin(blocks [][]byte, tier int) []Item {
	var out []Item
	var enc Encoder
	var first time.Duration
	flush := func() {
		if !enc.Empty() {
			out = append(out, BlockItem(first, enc.Block(tier)))
		}
	}
	put := func(s *Sample) {
		if enc.Full() {
			flush()
		}
		if enc.Empty() {
			first = s.At
		}
		enc.Add(s)
	}
	// What is kept of the stretch from since on: the first that decisions were
	// taken on, and the fullest. alone says that this is none of those.
	var keep []Sample
	fullest, decided, alone, since := -1, 0, false, time.Duration(-1)
	end := func() {
		for i := range keep {
			put(&keep[i])
		}
		keep, fullest, decided = keep[:0], -1, 0
	}
	var d decoder
	for _, b := range blocks {
		if len(b) == 0 {
			continue
		}
		for s := range d.samples(b) {
			if since < 0 || s.At-since >= gaps[tier] {
				end()
				since = s.At
			}
			better := fullest < 0 || fuller(s, &keep[fullest])
			first := s.AtDecision && decided < mostDecided
			if !better && !first {
				continue
			}
			if better {
				if fullest >= 0 && alone {
					keep = slices.Delete(keep, fullest, fullest+1)
				}
				fullest, alone = len(keep), !first
			}
			if first {
				decided++
			}
			keep = append(keep, s.clone())
		}
	}
	end()
	flush()
	return out
}

// clone copies what a decoder will overwrite.
func (s *Sample) clone() Sample {
	c := *s
	c.Limits, c.Procs, c.Roles = slices.Clone(s.Limits), slices.Clone(s.Procs), slices.Clone(s.Roles)
	return c
}

// fuller says that a was nearer to a limit than b, or larger where there is none.
func fuller(a, b *Sample) bool {
	x, y := a.fullness(), b.fullness()
	if x != y {
		return x > y
	}
	return a.sumRSS() > b.sumRSS()
}

func (s *Sample) fullness() float64 {
	most := 0.0
	for i := range s.Limits {
		most = max(most, s.Limits[i].Ratio())
	}
	return most
}

func (s *Sample) sumRSS() rss.Bytes {
	var sum rss.Bytes
	for i := range s.Procs {
		sum += s.Procs[i].RSS()
	}
	return sum
}
