package supervisor

import (
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// workforce is what is known of the loader workers of the job.
type workforce struct {
	trainers []loader.Trainer
	staff    map[int]*worker // living workers by PID
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
	// leastOwn is the same of anonymous memory of its own; see [worker.heap].
	leastOwn  rss.Bytes
	ownSeen   bool
	overshoot rss.Bytes // the most that a worker was seen above its budget
	malformed int       // files of loaders that could not be understood
}

type worker struct {
	id      rss.ProcID
	trainer int           // PID of its trainer, 0 for a pool's worker
	first   rss.Proc      // as first seen
	since   time.Duration // when that was
	heap    rss.Bytes     // what it shares with its trainer since its fork, 0 where nobody knows
	fresh   bool          // it took the place of one that was recycled
	able    bool          // it can be recycled
}

// newWorkforce reads environments under proc.
func newWorkforce(proc string) workforce {
	return workforce{staff: map[int]*worker{}, took: map[int]int{}, pools: map[rss.ProcID]*vacancy{}, left: map[int]rss.Bytes{}, roles: roles{places: newRanker(proc)}}
}

// mark gives every process of the sample its role and notes who is new.
func (f *workforce) mark(s *rss.Sample, c *loader.Control, pool *matcher) {
	var roles map[int]rss.Role
	if c != nil {
		roles = c.Roles()
		f.trainers = c.Trainers()
	}
	alive := make(map[int]*worker, len(f.staff))
	join := func(pid, trainer int, able bool) {
		p := s.Find(pid)
		if p == nil || p.State == 'Z' {
			return
		}
		e := f.staff[pid]
		if e == nil || e.id != p.ID {
			e = &worker{id: p.ID, trainer: trainer, first: *p, since: s.Mono}
			if (trainer != 0 || able) && (f.leastFile == 0 || p.File < f.leastFile) {
				f.leastFile = p.File
			}
			f.inherit(e, s.Find(trainer))
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
				join(pid, t.ID.PID, t.CanRecycle && !t.Off && l.CanRecycle)
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
		join(id.PID, 0, read && f.pools[pool.ownerOf(s, p)].filled())
		if e := alive[id.PID]; p.ID.Start >= f.from && (f.young == nil || e.first.RSS < f.young.RSS) {
			f.young = &e.first
		}
	}
	for _, id := range doubt {
		if _, ok := roles[id.PID]; !ok {
			join(id.PID, 0, false) // for what it was first seen with
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

// forkedShare is the share of its trainer's anonymous memory that a worker has which
// was just forked; one that was spawned has next to none. mostOwn is the most that it
// has of its own then: one with more was seen late.
const (
	forkedShare = 0.9
	mostOwn     = 64 * rss.MiB
)

// inherit notes what a new worker shares with its trainer. The trainer may grow
// after the fork, and then has more than the worker ever shared. Of one that is
// older than this watcher nobody knows.
func (f *workforce) inherit(e *worker, t *rss.Proc) {
	if t == nil || t.Anon == 0 || e.id.Start < f.from || e.first.Anon.Of(t.Anon) < forkedShare {
		return
	}
	e.heap = min(t.Anon, e.first.Anon)
	if own := e.first.Anon - e.heap; own <= mostOwn && (!f.ownSeen || own < f.leastOwn) {
		f.ownSeen, f.leastOwn = true, own
	}
}

// fresh is what a limit would count of a worker that has only just started in
// the place of e: for a loader's, forked from its trainer, the trainer's
// anonymous memory, which a cgroup is not charged for again, and what a worker has
// of its own from the start. For a cgroup it is what e itself shares: that is not
// given back with it, and the rest is, however large the trainer has become.
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
		return t.Anon + f.leastOwn + f.leastFile
	case event.AccountingPSS:
		// Pages shared after fork count a part in each; so they do in the trainer.
		return min(t.Anon, counted(t, a)) + f.leastOwn
	case event.AccountingVirtual:
		return t.Virtual
	case event.AccountingCgroup:
		if e.heap > 0 {
			return min(e.heap, t.Anon) + f.leastOwn
		}
	}
	return t.Anon + f.leastOwn
}

// candidates returns the workers that could be recycled, with what each counts
// above a fresh one, and their PIDs in the same order. hurry leaves out how
// long ago each was recycled: where the limit is that near, it does not matter.
func (f *workforce) candidates(s *rss.Sample, a event.Accounting, hurry bool) ([]policy.Worker, []int) {
	var list []policy.Worker
	var pids []int
	for i := range s.Procs {
		p := &s.Procs[i]
		e := f.staff[p.ID.PID]
		if e == nil || !e.able || e.id != p.ID {
			continue
		}
		w := policy.Worker{ID: p.ID, Mapped: p.File, Counted: counted(p, a).Sub(f.fresh(e, s, a))}
		if a == event.AccountingPSS && e.heap > 0 {
			// At least that: it came after the fork, and nobody shares it. The trainer's
			// PSS, which stands for a fresh worker's, has its libraries in it.
			w.Counted = max(w.Counted, p.Anon.Sub(e.heap+f.leastOwn))
		}
		if e.fresh && !hurry {
			w.RecycledAgo = max(s.Mono-e.since, 1)
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
func (f *workforce) trimmable(m policy.Worker) rss.Bytes {
	left := f.left[m.ID.PID]
	if left == 0 {
		left = trimFloor
	}
	return m.CountedMapped.Sub(left.Scale(m.CountedMapped.Of(m.Mapped)))
}

// mappers returns the processes that fetch data through the hook, and how much
// each has mapped from files. Workers that are not in the sample yet count
// nothing.
func (f *workforce) mappers(s *rss.Sample, a event.Accounting) []policy.Worker {
	var list []policy.Worker
	add := func(pid int) {
		m := policy.Worker{ID: rss.ProcID{PID: pid}}
		if p := s.Find(pid); p != nil {
			m = mapper(p, a)
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
func mapper(p *rss.Proc, a event.Accounting) policy.Worker {
	m := policy.Worker{ID: p.ID, Mapped: p.File, Counted: counted(p, a), CountedMapped: p.File}
	if a == event.AccountingPSS && p.RSS > 0 {
		m.CountedMapped = p.File.Scale(m.Counted.Of(p.RSS))
	}
	return m
}
