// Package workers knows the roles of a job's processes: which train, which load
// data for which trainer or belong to a pool, what each holds, and which of them may be
// recycled, trimmed or asked. It is given samples and what the loader hook reports, and
// returns values: it acts on no process and writes no line.
package workers

import (
	"maps"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Workers is what is known of the loader workers of a job and of those of its pools.
type Workers struct {
	Options
	last     *rss.Sample // as of the last Update
	Pools    Pools
	trainers Trainers
	roles    roles
	hook     hookCheck
	images   map[rss.ProcID]image               // of those that were asked for
	kin      map[rss.ProcID]map[rss.ProcID]bool // forks like itself that a process has had

	staff     map[int]*worker // living workers by PID
	siblings  map[int]int     // … how many, by PID of their trainer
	took      map[int]int     // PID of the replacement by that of the worker it replaced
	baselines baselines

	// left is what the last trim of a process left it of mapped files and shared
	// memory, by PID: what cannot be trimmed.
	left map[int]rss.Bytes

	// A worker of a pool that is older than this watcher was not seen fresh; young is the
	// smallest that was, and stands for what those have had.
	young *rss.Proc

	// leastFile is the least file-mapped memory any worker had when it was
	// seen first: what a fresh one has in libraries alone.
	leastFile rss.Bytes

	RecycleTook time.Duration // by the last recycle that was done, 0 for none
}

type worker struct {
	id      rss.ProcID
	trainer int           // PID of its trainer, 0 for a pool's worker
	first   rss.Proc      // as first seen
	since   time.Duration // when that was
	of      loaderKey     // zero for a pool's worker
	shared  rss.Bytes     // what it shares with its trainer since its fork, 0 where unknown
	fresh   bool          // it took the place of one that was recycled
	able    bool          // it can be recycled

	// usedAtStart is what the limit limitAtStart was at when it replaced its predecessor,
	// which was recycled for that limit's sake.
	usedAtStart  rss.Bytes
	limitAtStart event.LimitID

	// hurried is how many were recycled in its place at once, one after the other,
	// though it was not known what they need and use had not grown since.
	hurried int
}

type Options struct {
	Proc   string // "/proc"
	From   uint64 // when this watcher started, in clock ticks since boot
	EnvDir string // the variable that names the run directory to the hook
	IsHook func(dir string) bool
}

func New(opt Options) *Workers {
	return &Workers{
		Options: opt, last: &rss.Sample{}, roles: roles{places: newEnvironReader(opt.Proc)}, hook: newHookCheck(opt), images: map[rss.ProcID]image{},
		staff: map[int]*worker{}, siblings: map[int]int{}, took: map[int]int{}, left: map[int]rss.Bytes{},
		baselines: baselines{}, kin: map[rss.ProcID]map[rss.ProcID]bool{},
	}
}

// Update gives every process of a new sample its role and notes which workers are new.
// said are the roles by what the hooks said, tops the command and, of a job, its tasks. It
// returns the owners of pools that have been found not to replace their workers. The sample
// is kept until the next one.
func (w *Workers) Update(s *rss.Sample, said map[int]rss.Role, tops ...rss.ProcID) (failed []rss.ProcID) {
	w.last = s
	w.Pools.update(s, tops)
	alive := make(map[int]*worker, len(w.staff))
	join := func(pid, trainer int, able bool, of loaderKey) {
		p := s.Find(pid)
		if p == nil || p.State == 'Z' {
			return
		}
		e := w.staff[pid]
		if e == nil || e.id != p.ID {
			e = &worker{id: p.ID, trainer: trainer, first: *p, since: s.Mono, of: of}
			if p.ID.Start >= w.From { // what an older one had at first is not known
				e.shared = sharedSinceFork(p, s.Find(trainer))
			}
			if (trainer != 0 || able) && (w.leastFile == 0 || p.File < w.leastFile) {
				w.leastFile = p.File
			}
		}
		e.able = able
		alive[pid] = e
	}
	for i := range s.Procs {
		if role, ok := said[s.Procs[i].ID.PID]; ok {
			s.Procs[i].Role = role
		}
	}
	for _, t := range w.trainers {
		for _, l := range t.Loaders {
			for _, pid := range l.Workers {
				join(pid, t.ID.PID, t.Replaces(&l, pid), loaderKey{t.ID, l.N})
			}
		}
	}
	failed = w.Pools.respawns()
	sure, doubt := w.Pools.split()
	for _, id := range sure {
		p := s.Find(id.PID)
		if _, ok := said[id.PID]; ok || w.roles.begins(s, p) {
			continue // PyTorch's, or a rank: a signal to it would end the training
		}
		p.Role = rss.RoleWorker
		_, read := w.roles.places.of(p)
		join(id.PID, 0, read && w.Pools.filled(p), loaderKey{})
		if e := alive[id.PID]; p.ID.Start >= w.From && (w.young == nil || e.first.RSS < w.young.RSS) {
			w.young = &e.first
		}
	}
	for _, id := range doubt {
		if _, ok := said[id.PID]; !ok {
			join(id.PID, 0, false, loaderKey{}) // for what it was first seen with
		}
	}
	w.roles.assign(s, w.trainers.Hello)
	for old, replacement := range w.took {
		if e := alive[replacement]; e != nil {
			e.fresh = true
		} else {
			delete(w.took, old) // it has ended too; its PID may be given out again
		}
		if alive[old] != nil && !w.trainers.leaves(old) {
			delete(w.took, old) // its PID was given out again
		}
	}
	w.staff = alive
	clear(w.siblings)
	for _, e := range alive {
		w.siblings[e.trainer]++
	}
	w.baselines.forget(w.trainers)
	maps.DeleteFunc(w.left, func(pid int, _ rss.Bytes) bool { return s.Find(pid) == nil })
	return failed
}

func living(p *rss.Proc) bool { return p.State != 'Z' && p.State != 'X' }

// Counted is what a limit with this accounting counts of a process. A cgroup is charged for
// shared pages once, so of a worker only its anonymous memory tells.
func Counted(p *rss.Proc, a event.Accounting) rss.Bytes {
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
