package record

// numbering gives the index in a run of a number in its record. Each watcher of
// the run counts from a base of its own.
type numbering map[int][]int

const (
	// baseBits is how many numbers a watcher has.
	baseBits = 24
	baseMask = 1<<baseBits - 1
)

func newNumbering(index map[int]int) numbering {
	n := numbering{}
	for number, i := range index {
		list := n[number>>baseBits]
		low := number & baseMask
		if low > len(index)+mostProcs {
			continue // numbers are given one after the other: nonsense
		}
		for len(list) <= low {
			list = append(list, -1)
		}
		list[low] = i
		n[number>>baseBits] = list
	}
	return n
}

// index returns the index of a number among so many, -1 where it has none.
func (n numbering) index(number, count int) int {
	if n == nil {
		if number < count {
			return number
		}
		return -1
	}
	list := n[number>>baseBits]
	if low := number & baseMask; low < len(list) {
		return list[low]
	}
	return -1
}

// renumber makes a sample of one that was decoded. What it refers to and is not
// there, in a damaged record, is left out.
func (r *Run) renumber(s, out *Sample) {
	out.At, out.AtDecision = s.At, s.AtDecision
	out.Limits, out.Procs = out.Limits[:0], out.Procs[:0]
	for i := range s.Limits {
		if at := r.limitAt.index(s.Limits[i].Limit, len(r.Limits)); at >= 0 {
			out.Limits = append(out.Limits, read(s.Limits[i], r.Limits[at].Name))
			out.Limits[len(out.Limits)-1].Limit = at
		}
	}
	base, list := -1, []int(nil)
	for i := range s.Procs {
		number := s.Procs[i].Proc
		at := number
		if r.procAt != nil {
			// Nearly all are of one watcher.
			if number>>baseBits != base {
				base = number >> baseBits
				list = r.procAt[base]
			}
			if at = -1; number&baseMask < len(list) {
				at = list[number&baseMask]
			}
		}
		if at >= 0 && at < len(r.Procs) {
			out.Procs = append(out.Procs, s.Procs[i])
			out.Procs[len(out.Procs)-1].Proc = at
		}
	}
}

// number notes which index each number of the record has.
func (r *Run) number(limits, procs map[int]int) {
	r.limitAt, r.procAt = newNumbering(limits), newNumbering(procs)
}
