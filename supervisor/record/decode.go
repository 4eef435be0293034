package record

import (
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

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
