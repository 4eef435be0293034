package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// traces follows each process over its life. How long that is shows only at
// its end, so a trace begins fine and is made coarser as it grows.
type traces struct {
	of   []Trace
	step time.Duration
}

func newTraces(r *record.Run, end time.Duration) *traces {
	// Short-lived workers begin at a step that a run of many of them can hold.
	t := &traces{of: make([]Trace, len(r.Procs)), step: max(time.Second, stepAtLeast(end/(16*tracePoints)))}
	for i := range t.of {
		t.of[i].Proc = r.Procs[i]
	}
	return t
}

func (t *traces) add(s *record.Sample) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= len(t.of) {
			continue
		}
		tr := &t.of[u.Proc]
		if tr.RSS == nil {
			tr.From, tr.Step = s.At.Truncate(t.step), t.step
		}
		sum := u.RSS()
		if sum > tr.Peak {
			tr.Peak, tr.PeakAt = sum, s.At
			tr.Anon, tr.File, tr.Shmem = u.Anon, u.File, u.Shmem
		}
		tr.Last = s.At
		tr.RSS, tr.Step = raiseCell(tr.RSS, tr.Step, s.At-tr.From, tracePoints, int64(sum/rss.KiB))
	}
}

// top returns the n processes with the highest peaks, highest first, and how
// many there are besides.
func (t *traces) top(r *record.Run, offset time.Duration, n int) (list []Trace, left int) {
	for i := range t.of {
		if tr := &t.of[i]; len(tr.RSS) > 0 {
			tr.fill(r)
			tr.From += offset
			tr.PeakAt += offset
			tr.Last += offset
			list = append(list, *tr)
		}
	}
	slices.SortStableFunc(list, func(a, b Trace) int { return cmp.Compare(b.Peak, a.Peak) })
	if len(list) > n {
		list, left = list[:n], len(list)-n
	}
	return list, left
}

// fill closes holes of a few points: where samples were thinned, one stands for
// up to a minute.
func (t *Trace) fill(r *record.Run) {
	most := int(10*time.Second/t.Step) + 1
	if r.Thinned {
		most = int(150*time.Second/t.Step) + 1
	}
	last := 0
	for i, v := range t.RSS {
		if v < 0 {
			continue
		}
		if i-last <= most {
			for k := last + 1; k < i; k++ {
				t.RSS[k] = t.RSS[last]
			}
		}
		last = i
	}
}
