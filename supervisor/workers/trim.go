package workers

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TrimFloor is the mapped memory below which a worker is not worth asking: its libraries.
const TrimFloor = 32 * rss.MiB

// Trimmed notes what a trim left a process of mapped files. Of what the hook measured the
// process's shared memory is no part of that.
func (w *Workers) Trimmed(pid int, left rss.Bytes) { w.left[pid] = max(left, 1) }

// Trimmable is what a trim may give back of what a limit counts: not its libraries, nor
// what the last trim could not take, such as private mappings without --trim-private.
func (w *Workers) Trimmable(u Usage) rss.Bytes {
	u = w.keeps(u)
	return min(u.CountedMapped.Sub(u.CountedKept), u.Mapped.Sub(u.Kept))
}

// keeps says what a trim leaves. Before the first one that is the libraries: what a worker
// has that was just forked. Where pages count a part in each process that has them, all
// workers of a trainer and that itself have those.
func (w *Workers) keeps(u Usage) Usage {
	u.Kept = w.left[u.ID.PID]
	if u.Kept == 0 {
		u.Kept = TrimFloor
		if w.leastFile > 0 {
			u.Kept = min(w.leastFile, TrimFloor)
		}
	}
	u.CountedKept = u.Kept.Scale(u.CountedMapped.Of(u.Mapped))
	if e := w.staff[u.ID.PID]; e != nil && e.trainer != 0 && u.CountedMapped < u.Mapped {
		libs := min(w.leastFile, u.Kept)
		u.CountedKept = libs/rss.Bytes(1+w.siblings[e.trainer]) + (u.Kept - libs).Scale(u.CountedMapped.Of(u.Mapped))
	}
	return u
}

// spread takes what was mapped since PSS was read to be as widely shared as the data were
// then, or as libraries are, while there were none: what the next reading finds otherwise has
// not filled the limit by then. Workers that read the same file would else keep to budgets
// until then.
func (w *Workers) spread(u Usage, p *rss.Proc) Usage {
	if p.PSS == nil {
		if e := w.staff[u.ID.PID]; e != nil && e.trainer != 0 {
			n := rss.Bytes(1 + w.siblings[e.trainer])
			u.CountedMapped, u.CountedKept = u.Mapped/n, u.Kept/n
		}
		return u
	}
	if !p.PSS.Split {
		return u
	}
	part := u.CountedKept.Of(u.Kept)
	if data := p.PSS.Mapped.Sub(u.Kept + p.Shmem); data >= TrimFloor {
		part = min(1, p.PSS.File.Sub(u.CountedKept).Of(data))
	}
	u.CountedMapped = min(u.CountedMapped, p.PSS.File+(p.File+p.Shmem).Sub(p.PSS.Mapped).Scale(part))
	return u
}

// Mappers returns the processes that fetch data through the hook, and how much each has
// mapped from files. Workers that are not in the sample yet count nothing.
func (w *Workers) Mappers(a event.Accounting) (list []Usage) {
	add := func(pid int) {
		u := Usage{ID: rss.ProcID{PID: pid}}
		if p := w.last.Find(pid); p != nil {
			if u = w.keeps(mapped(p, a)); a == event.AccountingPSS {
				u = w.spread(u, p)
			}
		}
		list = append(list, u)
	}
	for _, t := range w.trainers {
		self := false
		for _, l := range t.Loaders {
			if l.NumWorkers == 0 {
				self = true
			}
			for _, pid := range l.Workers {
				add(pid)
			}
		}
		if self {
			add(t.ID.PID)
		}
	}
	return list
}

// mapped is a process as what it has mapped from files counts.
func mapped(p *rss.Proc, a event.Accounting) Usage {
	u := Usage{ID: p.ID, Mapped: p.File, Counted: Counted(p, a), CountedMapped: p.File, CountedSure: p.File}
	if a == event.AccountingPSS {
		u.CountedSure, u.CountedMapped = p.PSSFile()
	}
	return u
}
