package supervisor

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// workforce is what is known of the loader workers of the job.
type workforce struct {
	trainers []loader.Trainer
	staff    map[int]*worker // living workers by PID
	siblings map[int]int     // … how many, by PID of their trainer
	took     map[int]int     // PID of the replacement by that of the worker it replaced
	pools    map[rss.ProcID]*vacancy
	roles    roles

	// left is what the last trim of a process left it of mapped files and shared
	// memory, by PID: what cannot be trimmed.
	left map[int]rss.Bytes

	// from is when this watcher started, in clock ticks since boot. A worker of
	// a pool that is older was not seen fresh; young is the smallest that was,
	// and stands for what those have had.
	from  uint64
	young *rss.Proc

	// leastFile is the least file-mapped memory any worker had when it was
	// seen first: what a fresh one has in libraries alone.
	leastFile rss.Bytes
	needs     map[crew]*needs
	malformed int // files of loaders that could not be understood
}

type worker struct {
	id      rss.ProcID
	trainer int           // PID of its trainer, 0 for a pool's worker
	first   rss.Proc      // as first seen
	since   time.Duration // when that was
	crew    crew          // whose it is, nobody's for a pool's worker
	warm    warmth        // what was learned from it
	fresh   bool          // it took the place of one that was recycled
	able    bool          // it can be recycled

	// stood is what the limit stood at for whose sake it took that place.
	stood   rss.Bytes
	stoodAt event.LimitID

	// hurried is how many were recycled in its place at once, one after the other,
	// though nobody knows what they need and use had not grown since.
	hurried int
}

// newWorkforce reads environments under proc.
func newWorkforce(proc string) workforce {
	return workforce{staff: map[int]*worker{}, siblings: map[int]int{}, took: map[int]int{}, pools: map[rss.ProcID]*vacancy{}, needs: map[crew]*needs{}, left: map[int]rss.Bytes{}, roles: roles{places: newRanker(proc)}}
}

// mark gives every process of the sample its role and notes who is new.
func (f *workforce) mark(s *rss.Sample, c *loader.Control, pool *matcher) {
	var roles map[int]rss.Role
	if c != nil {
		roles = c.Roles()
		f.trainers = c.Trainers()
	}
	alive := make(map[int]*worker, len(f.staff))
	join := func(pid, trainer int, able bool, of crew) {
		p := s.Find(pid)
		if p == nil || p.State == 'Z' {
			return
		}
		e := f.staff[pid]
		if e == nil || e.id != p.ID {
			e = &worker{id: p.ID, trainer: trainer, first: *p, since: s.Mono, crew: of}
			if p.ID.Start >= f.from { // of an older one nobody knows
				e.warm.inherit(p, s.Find(trainer))
			}
			if (trainer != 0 || able) && (f.leastFile == 0 || p.File < f.leastFile) {
				f.leastFile = p.File
			}
		}
		e.able = able
		alive[pid] = e
	}
	for i := range s.Procs {
		if role, ok := roles[s.Procs[i].ID.PID]; ok {
			s.Procs[i].Role = role
		}
	}
	for _, t := range f.trainers {
		for _, l := range t.Loaders {
			for _, pid := range l.Workers {
				join(pid, t.ID.PID, t.CanRecycle && !t.Off && l.CanRecycle, crew{t.ID, l.N})
			}
		}
	}
	f.vacancies(s, pool)
	sure, doubt := pool.workers(s)
	for _, id := range sure {
		p := s.Find(id.PID)
		if _, ok := roles[id.PID]; ok || f.roles.begins(s, p) {
			continue // PyTorch's, or a rank: a signal to it would end the training
		}
		p.Role = rss.RoleWorker
		_, read := f.roles.places.of(p)
		join(id.PID, 0, read && f.pools[pool.ownerOf(s, p)].filled(), crew{})
		if e := alive[id.PID]; p.ID.Start >= f.from && (f.young == nil || e.first.RSS < f.young.RSS) {
			f.young = &e.first
		}
	}
	for _, id := range doubt {
		if _, ok := roles[id.PID]; !ok {
			join(id.PID, 0, false, crew{}) // for what it was first seen with
		}
	}
	f.roles.assign(s, f.hello)
	for old, replacement := range f.took {
		if e := alive[replacement]; e != nil {
			e.fresh = true
		} else {
			delete(f.took, old) // it has ended too; its PID may be given out again
		}
		if alive[old] != nil && !slices.Contains(f.leaving(), old) {
			delete(f.took, old) // its PID was given out again
		}
	}
	f.staff = alive
	clear(f.siblings)
	for _, e := range alive {
		f.siblings[e.trainer]++
	}
	f.forget()
	maps.DeleteFunc(f.left, func(pid int, _ rss.Bytes) bool { return s.Find(pid) == nil })
}

// hello tells whether the hook is in a process.
func (f *workforce) hello(id rss.ProcID) bool {
	return slices.ContainsFunc(f.trainers, func(t loader.Trainer) bool { return t.ID == id })
}

// leaving lists the workers that were replaced and still live.
func (f *workforce) leaving() []int {
	var pids []int
	for _, t := range f.trainers {
		for _, l := range t.Loaders {
			pids = append(pids, l.Leaving...)
		}
	}
	return pids
}

// counted is what a limit with this accounting counts of a process. A cgroup
// is charged for shared pages once, so of a worker only its anonymous memory
// tells.
func counted(p *rss.Proc, a event.Accounting) rss.Bytes {
	switch a {
	case event.AccountingPSS:
		low, _ := p.PSSRange()
		return low
	case event.AccountingNoShared:
		return p.NoShared()
	case event.AccountingRSS:
		return p.RSS
	case event.AccountingVirtual:
		return p.Virtual
	}
	return p.Anon
}

// fresh is what a limit would count of a worker that has only just started in
// the place of e: for a loader's, forked from its trainer, the trainer's
// anonymous memory, which a cgroup is not charged for again, and what it will need
// of its own within a few batches. For a cgroup it is what e itself shares: that is
// not given back with it, and the rest is, however large the trainer has become.
func (f *workforce) fresh(e *worker, s *rss.Sample, a event.Accounting) rss.Bytes {
	if e.trainer == 0 {
		switch {
		case e.id.Start >= f.from:
			return counted(&e.first, a)
		case f.young != nil:
			return counted(f.young, a)
		}
		return 0 // not known: the first that is replaced will tell
	}
	t := s.Find(e.trainer)
	if t == nil {
		return counted(&e.first, a)
	}
	switch a {
	case event.AccountingRSS:
		return t.Anon + f.own(e) + f.leastFile
	case event.AccountingPSS:
		// Pages shared after fork count a part in each; so they do in the trainer.
		return min(t.Anon, counted(t, a)) + f.own(e)
	case event.AccountingVirtual:
		return t.Virtual
	case event.AccountingCgroup:
		if e.warm.heap > 0 {
			return min(e.warm.heap, t.Anon) + f.own(e)
		}
	}
	return t.Anon + f.own(e)
}

// candidates returns the workers that could be recycled, with what each counts
// above a fresh one, and their PIDs in the same order.
func (f *workforce) candidates(s *rss.Sample, a event.Accounting) ([]workers.Usage, []int) {
	var list []workers.Usage
	var pids []int
	for i := range s.Procs {
		p := &s.Procs[i]
		e := f.staff[p.ID.PID]
		if e == nil || !e.able || e.id != p.ID {
			continue
		}
		w := workers.Usage{ID: p.ID, Mapped: p.File, Counted: counted(p, a).Sub(f.fresh(e, s, a))}
		if heap := e.warm.heap; a == event.AccountingPSS && heap > 0 {
			// At least that: it came after the fork, and nobody shares it. The trainer's
			// PSS, which stands for a fresh worker's, has its libraries in it.
			w.Counted = max(w.Counted, p.Anon.Sub(heap+f.own(e)))
		}
		if e.fresh {
			w.RecycledAgo = max(s.Mono-e.since, 1)
			if f.learning(e, s.Mono) {
				// A steady job would have each place recycled as soon as it may be.
				w.RecycledAgo = min(w.RecycledAgo, workers.RecycleEvery-1)
			}
		}
		list = append(list, w)
		pids = append(pids, p.ID.PID)
	}
	return list, pids
}

// trimmed notes what a trim could not take. Shared memory is no part of what
// is mapped from files.
func (f *workforce) trimmed(s *loader.Said, last *rss.Sample) {
	if p := last.Find(s.Worker); p != nil && !s.Old {
		f.left[s.Worker] = max(s.After.Sub(p.Shmem), 1)
	}
}

// trimmable is what a trim of m may give back of what a limit counts: not its
// libraries, nor what the last trim could not take, such as private mappings
// without --trim-private.
func (f *workforce) trimmable(m workers.Usage) rss.Bytes {
	m = f.keeps(m)
	return min(m.CountedMapped.Sub(m.CountedKept), m.Mapped.Sub(m.Kept))
}

// keeps says of m what a trim leaves it. Before the first one that is its libraries:
// what a worker has that was just forked. Where pages count a part in each process that
// has them, all workers of a trainer and that itself have those.
func (f *workforce) keeps(m workers.Usage) workers.Usage {
	m.Kept = f.left[m.ID.PID]
	if m.Kept == 0 {
		m.Kept = trimFloor
		if f.leastFile > 0 {
			m.Kept = min(f.leastFile, trimFloor)
		}
	}
	m.CountedKept = m.Kept.Scale(m.CountedMapped.Of(m.Mapped))
	if e := f.staff[m.ID.PID]; e != nil && e.trainer != 0 && m.CountedMapped < m.Mapped {
		libs := min(f.leastFile, m.Kept)
		m.CountedKept = libs/rss.Bytes(1+f.siblings[e.trainer]) + (m.Kept - libs).Scale(m.CountedMapped.Of(m.Mapped))
	}
	return m
}

// spread takes what m has mapped since its PSS was read to be as widely shared as its data
// were then, or as libraries are, while it had none: what is found otherwise by the next
// reading has not filled the limit by then. Workers that read the same file would else keep
// to budgets until one tells that.
func (f *workforce) spread(m workers.Usage, p *rss.Proc) workers.Usage {
	if p.PSS == nil {
		if e := f.staff[m.ID.PID]; e != nil && e.trainer != 0 {
			n := rss.Bytes(1 + f.siblings[e.trainer])
			m.CountedMapped, m.CountedKept = m.Mapped/n, m.Kept/n
		}
		return m
	}
	if !p.PSS.Split {
		return m
	}
	part := m.CountedKept.Of(m.Kept)
	if data := p.PSS.Mapped.Sub(m.Kept + p.Shmem); data >= trimFloor {
		part = min(1, p.PSS.File.Sub(m.CountedKept).Of(data))
	}
	m.CountedMapped = min(m.CountedMapped, p.PSS.File+(p.File+p.Shmem).Sub(p.PSS.Mapped).Scale(part))
	return m
}

// mappers returns the processes that fetch data through the hook, and how much
// each has mapped from files. Workers that are not in the sample yet count
// nothing.
func (f *workforce) mappers(s *rss.Sample, a event.Accounting) []workers.Usage {
	var list []workers.Usage
	add := func(pid int) {
		m := workers.Usage{ID: rss.ProcID{PID: pid}}
		if p := s.Find(pid); p != nil {
			if m = f.keeps(mapper(p, a)); a == event.AccountingPSS {
				m = f.spread(m, p)
			}
		}
		list = append(list, m)
	}
	for _, t := range f.trainers {
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

// mapper is a process as what it has mapped from files counts.
func mapper(p *rss.Proc, a event.Accounting) workers.Usage {
	m := workers.Usage{ID: p.ID, Mapped: p.File, Counted: counted(p, a), CountedMapped: p.File, CountedSure: p.File}
	if a == event.AccountingPSS {
		m.CountedSure, m.CountedMapped = p.PSSFile()
	}
	return m
}
