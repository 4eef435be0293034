package workers

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

const (
	// budgetFloor is the least budget: a worker that trims itself more often
	// than every 32 MiB does little else.
	budgetFloor = 32 * rss.MiB
	// budgetReserve is the part of the limit kept free below the rung for what
	// grows between two revisions: anonymous memory of trainer and workers.
	budgetReserve = 0.10
	// assumedWorkers is for how many workers the first budget leaves room, before any
	// loader has said how many it has: they may outgrow a limit within the second in
	// which they are first seen.
	assumedWorkers = 8
	// budgetStep is by how much a budget must change to be written again.
	budgetStep = 0.10
)

type Bound struct {
	Limit event.Limit
	Rung  rss.Bytes // the use to stay below, that of trim
	// Rest is the least that is used beside what workers have mapped, 0 where that is not
	// known: what is certain of a sum of PSS may have less of both in it.
	Rest rss.Bytes
}

// Budget returns how many bytes of mapped file pages each worker may hold under all of the
// bounds, 0 for none, with the rung that asks for it and the number of workers known; last
// is the budget that they have.
func (w *Workers) Budget(bounds []Bound, last rss.Bytes) (each, rung rss.Bytes, known int) {
	for _, b := range bounds {
		workers := w.Mappers(b.Limit.Accounting)
		n := len(workers)
		if n == 0 {
			workers = make([]Usage, assumedWorkers)
		}
		if one := budget(b, workers, last); one != 0 && (each == 0 || one < each) {
			each, rung, known = one, b.Rung, n
		}
	}
	return each, rung, known
}

// budget returns how many bytes of mapped file pages (RssFile) each worker may hold before it
// trims itself: last where little differs from that, 0 where the limit does not count mapped
// file pages or there is no worker. Under pss what stands is left until the workers' PSS was
// read.
//
//	rest   = used − what trims would take of the workers' mapped pages, as the limit counts it
//	margin = 10 % of the limit
//	budget = what trims leave, and (rung − rest − margin) / workers, times RssFile per byte counted
//
// The margin lies below the rung. What may go wrong at once is that every worker overshoots
// (covered by it) while anonymous memory grows (covered by the 15 % between the default rung
// and the limit). Under pss a page shared by four workers counts a quarter in each, so
// RssFile per byte counted is up to the number of workers. Libraries, which all share, tell
// nothing about data. Rounded down to its four leading bits, so that it is not written at
// every tick.
func budget(in Bound, workers []Usage, last rss.Bytes) rss.Bytes {
	n := rss.Bytes(len(workers))
	if n == 0 || in.Limit.Limit == 0 || !event.ActionTrim.Fits(&in.Limit).OK {
		return 0
	}
	var kept, data, most, sure, read rss.Bytes
	for _, w := range workers {
		own := w.Mapped.Sub(w.Kept)
		kept, data = kept+min(w.Kept, w.Mapped), data+own
		most += min(w.CountedMapped.Sub(w.CountedKept), own)
		sure += min(w.CountedSure.Sub(w.CountedKept), own)
		read += w.CountedSure
	}
	shared := 1.0 // RssFile per byte counted
	switch {
	case in.Limit.Accounting != event.AccountingPSS:
		sure = most
	case read == 0:
		return last // how much of it counts is not known yet
	default:
		shared = min(max(1, data.Of(most)), float64(n))
	}
	rest := max(in.Limit.Used.Sub(sure), in.Rest)
	share := kept/n + (in.Rung.Sub(rest).Sub(in.Limit.Limit.Scale(budgetReserve)) / n).Scale(shared)
	each := max(neatDown(share), budgetFloor)
	if change := max(each, last) - min(each, last); last != 0 && change.Of(last) < budgetStep {
		return last
	}
	return each
}

// neatDown rounds down to the four leading bits.
func neatDown(b rss.Bytes) rss.Bytes {
	step := rss.Bytes(1)
	for b/step >= 16 {
		step *= 2
	}
	return b / step * step
}

// Tracing says which processes a trim by ptrace may stop.
type Tracing struct {
	All   bool                  // every process; else loader workers without the hook
	Least rss.Bytes             // mapped memory that is worth a stop
	Tops  []rss.ProcID          // the command and, of a job, its tasks
	Never func(rss.ProcID) bool // may not be stopped
}

// Traceable is what a trim by ptrace could stop.
type Traceable struct {
	List    []Usage // first the process that gives most back of what the limit counts
	Trainer bool    // one that is no worker could give something back
	Small   bool    // a worker has too little to give
	Unread  bool    // one looks like a worker, and whether it is a rank its environment will tell
}

// Traceable returns the processes that a trim by ptrace is worth a stop for.
func (w *Workers) Traceable(a event.Accounting, t Tracing) (found Traceable) {
	look := w.classify(t)
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		u := mapped(p, a)
		whole := u
		whole.CountedMapped = u.Mapped
		if look.hooked[p.ID.PID] || !living(p) || t.Never(p.ID) {
			continue
		}
		switch {
		case w.Trimmable(whole) < t.Least:
			found.Small = found.Small || look.isWorker(p)
		case !look.isWorker(p):
			found.Trainer = found.Trainer || w.Trimmable(u) > 0
		default:
			found.List = append(found.List, u)
		}
	}
	slices.SortStableFunc(found.List, func(x, y Usage) int { return cmp.Compare(w.Trimmable(y), w.Trimmable(x)) })
	found.Unread = look.unread
	return found
}

// classifier tells loader workers from what else is in a sample.
type classifier struct {
	*Workers
	Tracing
	byPID  map[int]*rss.Proc
	hooked map[int]bool // trimmed by the hook, if at all
	unread bool
}

func (w *Workers) classify(t Tracing) classifier {
	c := classifier{Workers: w, Tracing: t, byPID: map[int]*rss.Proc{}, hooked: map[int]bool{}}
	if t.All {
		return c
	}
	for i := range w.last.Procs {
		c.byPID[w.last.Procs[i].ID.PID] = &w.last.Procs[i]
	}
	gone := func(id rss.ProcID) bool { return c.byPID[id.PID] == nil || c.byPID[id.PID].ID != id }
	maps.DeleteFunc(w.kin, func(id rss.ProcID, _ map[rss.ProcID]bool) bool { return gone(id) })
	maps.DeleteFunc(w.images, func(id rss.ProcID, _ image) bool { return gone(id) })
	for _, u := range w.Mappers("") {
		c.hooked[u.ID.PID] = true
	}
	for _, t := range w.trainers {
		c.hooked[t.ID.PID] = true
	}
	for _, p := range c.byPID {
		if up := c.byPID[p.Parent]; living(p) && c.likeParent(p) {
			kin := w.kin[up.ID]
			if kin == nil {
				kin = map[rss.ProcID]bool{}
				w.kin[up.ID] = kin
			}
			if len(kin) < manyKin {
				kin[p.ID] = true
			}
		}
	}
	return c
}

// isWorker says whether a process without the hook is to be trimmed: where not all are, those
// that are loader workers as far as can be seen from outside. --worker-match says so; or a
// process is like the one that forked it, has never forked such a process itself, as a
// trainer has that a script of the same language started, and is not the only one ever forked
// there.
func (c *classifier) isWorker(p *rss.Proc) bool {
	switch {
	case c.All:
		return true
	case slices.Contains(c.Tops, p.ID), c.roles.begins(c.last, p):
		return false
	case p.Role.IsWorker():
		return true
	}
	if !plain(p) || !c.likeParent(p) || len(c.kin[p.ID]) > 0 {
		return false
	}
	up := c.byPID[p.Parent]
	if len(c.kin[up.ID]) < manyKin && !hasWorkerName(p) {
		return false // the only one, as a trainer that a script started
	}
	_, read := c.roles.places.of(p)
	_, above := c.roles.places.of(up)
	c.unread = c.unread || !read || !above
	return read && above
}

// hasWorkerName says that a process has one of the names that PyTorch (since 2.6) gives its
// workers, as the kernel cuts them; else they have their trainer's.
func hasWorkerName(p *rss.Proc) bool {
	return strings.HasPrefix(p.Comm, "pt_data_worker") || strings.HasPrefix(p.Comm, "pt_multiprocess")
}

// manyKin is how many forks like itself a process must have had for them to be
// workers.
const manyKin = 2

// likeParent says that a process is a fork of its parent: it runs the same
// program under the same name. What an agent started is none, but a rank.
func (c *classifier) likeParent(p *rss.Proc) bool {
	up := c.byPID[p.Parent]
	if up == nil || up.Role == rss.RoleAgent {
		return false
	}
	if p.Comm != up.Comm && !hasWorkerName(p) {
		return false
	}
	file := c.image(p)
	return file != "" && file == c.image(up)
}

// image is which file a process of that name runs.
type image struct{ comm, file string }

// image is the path of what a process runs, empty where it cannot be read. It
// takes no lock that can be held for long, and is read once: execve(2) nearly
// always changes the name.
func (w *Workers) image(p *rss.Proc) string {
	if e, ok := w.images[p.ID]; ok && e.comm == p.Comm {
		return e.file
	}
	file, err := os.Readlink(filepath.Join(w.Proc, strconv.Itoa(p.ID.PID), "exe"))
	if err != nil {
		file = ""
	}
	w.images[p.ID] = image{p.Comm, file}
	return file
}
