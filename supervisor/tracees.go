package supervisor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// This file says which processes may be trimmed by ptrace.

// tracees returns the processes that a trim by ptrace is worth a stop for, first
// the one that gives most back of what the limit counts. Where there is none,
// Help says why.
func (w *watcher) tracees(a event.Accounting) (list []workers.Usage, why policy.Help) {
	t := &w.tracer
	switch {
	case t.off != event.ReasonNone:
		return nil, policy.Help{Reason: t.off, Detail: "nothing is trimmed by ptrace any more"}
	case t.Busy() || t.asked != 0:
		return nil, policy.Help{Reason: event.ReasonTimeout, Detail: fmt.Sprintf("process %d is not done with yet", t.was.ID.PID)}
	}
	t.forget(&w.last)
	look := w.lookout()
	var refused, trainer rss.Bytes // the most that one of them could give back
	small := false
	now, ours := w.now(), w.ourPIDs()
	for i := range w.last.Procs {
		p := &w.last.Procs[i]
		m := mapper(p, a)
		whole := m
		whole.CountedMapped = m.Mapped
		if look.hooked[p.ID.PID] || !living(p) || slices.Contains(ours, p.ID.PID) || w.spared(p.ID) {
			continue
		}
		mapped, gain := w.workers.trimmable(whole), w.workers.trimmable(m)
		switch r := t.refused[p.ID]; {
		case mapped < trim.Least:
			small = small || look.meant(p)
		case !look.meant(p):
			trainer = max(trainer, gain)
		case r != nil && (r.until == 0 || now < r.until):
			if refused == 0 || gain > refused {
				refused = max(gain, 1)
				why = policy.Help{Reason: r.reason, Detail: fmt.Sprintf("process %d", p.ID.PID)}
			}
		default:
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(x, y workers.Usage) int {
		return cmp.Compare(w.workers.trimmable(y), w.workers.trimmable(x))
	})
	switch {
	case len(list) > 0:
		return list, policy.Help{}
	case refused > 0:
		return nil, why
	case trainer > 0:
		return nil, policy.Help{Reason: event.ReasonIsTrainer, Later: look.unread}
	case small:
		return nil, policy.Help{Reason: event.ReasonNothing}
	}
	return nil, policy.Help{Reason: event.ReasonNoWorker, Detail: "no process looks like a loader worker", Later: look.unread}
}

// lookout tells loader workers from what else is in a sample.
type lookout struct {
	w      *watcher
	byPID  map[int]*rss.Proc
	hooked map[int]bool // trimmed by the hook, if at all
	unread bool         // one would be meant, if it is no rank: its environment will tell
}

func (w *watcher) lookout() lookout {
	l := lookout{w: w, byPID: map[int]*rss.Proc{}, hooked: map[int]bool{}}
	if !w.Settings.Trim.Hook() {
		return l // all are meant
	}
	for _, m := range w.workers.mappers(&w.last, "") {
		l.hooked[m.ID.PID] = true
	}
	for _, t := range w.workers.trainers {
		l.hooked[t.ID.PID] = true
	}
	for i := range w.last.Procs {
		l.byPID[w.last.Procs[i].ID.PID] = &w.last.Procs[i]
	}
	for _, p := range l.byPID {
		if up := l.byPID[p.Parent]; living(p) && l.likeParent(p) {
			kin := w.tracer.kin[up.ID]
			if kin == nil {
				kin = map[rss.ProcID]bool{}
				w.tracer.kin[up.ID] = kin
			}
			if len(kin) < manyKin {
				kin[p.ID] = true
			}
		}
	}
	return l
}

// meant says whether a process without the hook is to be trimmed: all are under
// --trim ptrace, else those that are loader workers as far as can be seen from
// outside. --worker-match says so; or a process is like the one that forked it,
// and has never forked such a process itself, as a trainer has that a script of
// the same language started, and is not the only one ever forked there.
func (l *lookout) meant(p *rss.Proc) bool {
	w := l.w
	switch {
	case w.Settings.Trim == TrimPtrace:
		return true
	case slices.Contains(w.tops(), p.ID), w.workers.roles.begins(&w.last, p):
		return false
	case p.Role == rss.RoleWorker:
		return true
	}
	if !plain(p) || !l.likeParent(p) || len(w.tracer.kin[p.ID]) > 0 {
		return false
	}
	if up := l.byPID[p.Parent]; len(w.tracer.kin[up.ID]) < manyKin && !bearsWorkerName(p) {
		return false // the only one, as a trainer that a script started
	}
	_, read := w.workers.roles.places.of(p)
	_, above := w.workers.roles.places.of(l.byPID[p.Parent])
	l.unread = l.unread || !read || !above
	return read && above
}

// workerNames are the names that PyTorch (since 2.6) gives its workers, as the
// kernel cuts them; else they bear their trainer's.
var workerNames = []string{"pt_data_worker", "pt_multiprocess"}

func bearsWorkerName(p *rss.Proc) bool {
	return slices.ContainsFunc(workerNames, func(n string) bool { return strings.HasPrefix(p.Comm, n) })
}

// manyKin is how many forks like itself a process must have had for them to be
// workers.
const manyKin = 2

// likeParent says that a process is a fork of its parent: it runs the same
// program under the same name. What an agent started is none, but a rank.
func (l *lookout) likeParent(p *rss.Proc) bool {
	up := l.byPID[p.Parent]
	if up == nil || up.Role == rss.RoleAgent {
		return false
	}
	if p.Comm != up.Comm && !bearsWorkerName(p) {
		return false
	}
	program := l.w.program(p)
	return program != "" && program == l.w.program(up)
}

// image is which program a process of that name runs.
type image struct{ comm, program string }

// program is the path of what a process runs, empty where it cannot be read. It
// takes no lock that can be held for long, and is read once: execve(2) nearly
// always changes the name.
func (w *watcher) program(p *rss.Proc) string {
	if e, ok := w.tracer.images[p.ID]; ok && e.comm == p.Comm {
		return e.program
	}
	path, err := os.Readlink(filepath.Join(w.Proc, strconv.Itoa(p.ID.PID), "exe"))
	if err != nil {
		path = ""
	}
	w.tracer.images[p.ID] = image{p.Comm, path}
	return path
}
