package supervisor

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file knows more of PSS than readings do that are seconds old: what forked workers
// have got since their fork is nobody else's, and what they share with their trainer
// counts once in all.

// raisePSS raises what is certain of sums of PSS to that of one trainer and its workers.
func (w *watcher) raisePSS() {
	for i := range w.readings {
		l := &w.readings[i]
		l.Used = max(l.Used, min(w.leastOf(l), l.UsedMax))
	}
}

// leastOf is the least that the anonymous memory of a trainer and its workers counts for
// l, 0 where nobody knows.
func (w *watcher) leastOf(l *event.Limit) rss.Bytes {
	switch {
	case w.pss == nil || w.loader == nil || w.Attached != nil:
		return 0 // a process that is watched from outside may share with others outside
	case l.Accounting != event.AccountingPSS || w.stepOf(l) != "" && w.ofJob():
		return 0
	}
	return w.workers.leastPSS(&w.last)
}

// leastPSS is the least that a trainer and its workers add up to. Of several trainers it
// is that of the one with the most: they may share what they were forked with.
func (f *workforce) leastPSS(s *rss.Sample) (most rss.Bytes) {
	sums := map[int]rss.Bytes{}
	for i := range s.Procs {
		p := &s.Procs[i]
		if e := f.staff[p.ID.PID]; e != nil && e.id == p.ID && e.warm.heap > 0 {
			sums[e.trainer] += p.Anon.Sub(e.warm.heap)
		}
	}
	for pid, own := range sums {
		if t := s.Find(pid); t != nil {
			most = max(most, t.Anon+own)
		}
	}
	return most
}
