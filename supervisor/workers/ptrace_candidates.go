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
	case p.Role == rss.RoleWorker:
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
