package workers

import "github.com/rsswarden/rsswarden/rss"

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
