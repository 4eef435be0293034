package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Attached says that what is watched was started by somebody else.
type Attached struct {
	// Job is the Slurm job that is watched as a whole, "46" or "46.0"; empty
	// where it is one process.
	Job string
	// Cannot is what cannot be done from outside and why, a sentence each.
	Cannot []string
	// NoHook is why no loader can be asked for anything: one of Cannot, in short.
	NoHook string
	// Population returns the job's processes and limits, which belong to the
	// watcher then ([JobFollower.Take]); nil for one process.
	Population func() Population
}

// findLimits finds what limits the process pid. self are those of our own
// processes that count with it.
func findLimits(s *Settings, proc, sys string, pid int, self []int, lookup func(string) (string, bool)) (*limit.Set, []limit.Warning) {
	return limit.Find(context.Background(), limit.Config{
		Proc: proc, Sys: sys, PID: pid, Self: self,
		User: s.Limit, UserShare: s.LimitShare, UserSource: s.limitSource(), Accounting: s.Accounting,
		Lookup: lookup,
		Slurm:  slurm.Search{Lookup: lookup, ReadFile: observe.ReadWithin},
	})
}

// find finds the limits of what is watched.
func (w *watcher) find(begin hold.Begin) (*limit.Union, []limit.Warning) {
	pid, self := begin.Holder, []int{begin.Holder, w.Self}
	if w.Attached != nil {
		if w.Attached.Population != nil {
			w.job = w.Attached.Population()
			return limit.Join(w.job.parts...), w.job.warns
		}
		// Where we count with it we are found like everybody else.
		pid, self = begin.PID, nil
	}
	set, warnings := findLimits(&w.Settings, w.Proc, w.Sys, pid, self, w.Lookup)
	w.own = set
	return limit.Join(limit.Part{Set: set}), warnings
}

// noHook says why no loader can be asked for anything.
func (w *watcher) noHook() string {
	if w.Attached != nil {
		return w.Attached.NoHook
	}
	return "no loader hook"
}

// roots are the processes whose trees are watched.
func (w *watcher) roots() []rss.ProcID {
	if !w.followsJob() {
		return w.rankRoots()
	}
	w.job = w.Attached.Population()
	w.limits.Replace(w.job.parts)
	for _, warning := range w.job.warns {
		if w.seq == 0 {
			break // the start event comes first, and then these
		}
		w.fault(warning.Part, &said{warning.Text})
	}
	w.command, w.tasks = w.job.Roots[0], w.job.Tasks
	return w.job.Roots
}

// adopters are the holders that adopt orphans of what is watched. A watcher of
// another rank may have been started again since that told who it is.
func (w *watcher) adopters() []proctree.Adopter {
	if w.holder == 0 {
		return nil
	}
	list := []proctree.Adopter{{PID: w.holder, Root: w.command, Own: w.Self}}
	for _, m := range w.peers.others {
		list = append(list, proctree.Adopter{PID: m.Holder.PID, Root: m.Command, Own: m.Watcher.PID, Names: hold.WatcherNames})
	}
	return list
}

// withoutOurs leaves us out of the tree, and what descends from us: an attach may
// run in what it watches. Slurm counts it, and so does what package limit adds.
func (w *watcher) withoutOurs(procs []rss.Proc) []rss.Proc {
	w.withRSS = 0
	if w.Attached == nil {
		return procs
	}
	byPID := make(map[int]*rss.Proc, len(procs))
	for i := range procs {
		byPID[procs[i].ID.PID] = &procs[i]
	}
	ours := map[rss.ProcID]bool{}
	for i := range procs {
		p := &procs[i]
		for range 64 { // a tree is not that deep
			// Who was ours stays so when its parent has ended.
			if p.ID.PID == w.Self || w.within[p.ID] {
				ours[procs[i].ID] = true
				w.withRSS += procs[i].RSS
				break
			}
			if p = byPID[p.Parent]; p == nil {
				break
			}
		}
	}
	w.within = ours
	return slices.DeleteFunc(procs, func(p rss.Proc) bool { return ours[p.ID] })
}

// sumRSS is the sum over the tree without ours, which have hardly grown since
// the last full look.
func (w *watcher) sumRSS() (rss.Bytes, error) {
	sum, err := w.tree.SumRSS()
	return sum.Sub(w.withRSS), err
}

// sayAttached says what is watched and what cannot be done.
func (w *watcher) sayAttached() {
	a := w.Attached
	if w.followsJob() {
		w.tell.Info(fmt.Sprintf("watching job %s on this node (%s; processes now: %d): %s", a.Job, w.job.String(), len(w.last.Procs), phrase.Room(w.readings)))
	} else {
		w.tell.Info(phrase.Watching(w.Settings.Command, w.command.PID, w.readings))
	}
	for _, text := range a.Cannot {
		w.tell.Info("from outside: " + text)
	}
}

// lastWords is the front of the last line.
func (w *watcher) lastWords(ended bool) string {
	what := fmt.Sprintf("process %d", w.command.PID)
	if w.Attached.Job != "" {
		what = "job " + w.Attached.Job
	}
	line := " has ended, its parent knows how"
	switch {
	case !ended:
		line = " runs on, unwatched"
	case w.sum.Stopped:
		line = " was stopped by rsswarden"
	case w.Attached.Job != "":
		line = " has no process left on this node"
	}
	return what + line + "; watched for " + text.Span(time.Since(w.started))
}
