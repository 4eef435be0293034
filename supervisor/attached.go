package supervisor

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/limit"
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
	// Population returns the job's processes and limits; nil for one process.
	Population func() Population
}

// findLimits finds what limits the process pid. self are those of our own
// processes that count with it.
func findLimits(s *Settings, proc, sys string, pid int, self []int, lookup func(string) (string, bool)) (*limit.Set, []limit.Warning) {
	return limit.Find(context.Background(), limit.Config{
		Proc: proc, Sys: sys, PID: pid, Self: self,
		User: s.Limit, UserShare: s.LimitShare, UserSource: s.limitSource(), Accounting: s.Accounting,
		Lookup: lookup,
		Slurm:  slurm.Search{Lookup: lookup, ReadFile: readWithin},
	})
}

// find finds the limits of what is watched.
func (w *watcher) find(begin hold.Begin) (*limit.Union, []limit.Warning) {
	pid, self := begin.Holder, []int{begin.Holder, w.Self}
	if w.Attached != nil {
		if w.Attached.Population != nil {
			p := w.Attached.Population()
			return limit.Join(p.parts...), p.warns
		}
		// Where we count with it we are found like everybody else.
		pid, self = begin.PID, nil
	}
	set, warnings := findLimits(&w.Settings, w.Proc, w.Sys, pid, self, w.Lookup)
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
	if w.Attached == nil || w.Attached.Population == nil {
		return []rss.ProcID{w.command}
	}
	p := w.Attached.Population()
	w.limits.Replace(p.parts)
	for _, warning := range p.warns {
		if w.seq == 0 {
			break // the start event comes first, and then these
		}
		w.fault(warning.Part, &said{warning.Text})
	}
	w.command, w.tasks = p.Roots[0], p.Tasks
	return p.Roots
}

// sayAttached says what is watched and what cannot be done.
func (w *watcher) sayAttached() {
	a := w.Attached
	if a.Population != nil {
		p := a.Population()
		w.Log.Info(fmt.Sprintf("watching job %s on this node (%s; processes now: %d): %s", a.Job, p.String(), len(w.last.Procs), room(w.readings)))
	} else {
		w.Log.Info(watching(&w.Settings, w.command.PID, w.readings))
	}
	for _, text := range a.Cannot {
		w.Log.Info("from outside: " + text)
	}
}

// killToStop is kill for a stop alone: the TERM that is meant for the command of
// a job is meant for every task of it, whether it has a handler or not.
func (w *watcher) killToStop(id rss.ProcID, sig syscall.Signal) error {
	if sig != unix.SIGTERM || id != w.command || len(w.tasks) == 0 {
		return w.kill(id, sig)
	}
	var failed error
	for _, task := range w.tasks {
		if err := w.kill(task, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// commands are the processes that a signal goes to where no trainer said hello:
// the command, or of a job every task.
func (w *watcher) commands(command *rss.Proc) []*rss.Proc {
	list := []*rss.Proc{command}
	for _, id := range w.tasks {
		if p := w.last.Find(id.PID); p != nil && p.ID == id && p != command && p.State != 'Z' && p.Role != rss.RoleAgent {
			list = append(list, p)
		}
	}
	return list
}

// lastEvent says in the exit event of what we did not start that nobody told us
// how it ended, and perhaps it has not.
func (w *watcher) lastEvent(out *event.Exit, ended bool) {
	out.Code, out.Signal = nil, nil
	if !ended {
		out.By = "detached"
	}
}

// lastWords is the front of the last line.
func (w *watcher) lastWords(ended bool) string {
	what := fmt.Sprintf("process %d", w.command.PID)
	if w.Attached.Job != "" {
		what = "job " + w.Attached.Job
	}
	text := " has ended, its parent knows how"
	switch {
	case !ended:
		text = " runs on, unwatched"
	case w.sum.stopped:
		text = " was stopped by rsswarden"
	case w.Attached.Job != "":
		text = " has no process left on this node"
	}
	return what + text + "; watched for " + short(w.now())
}
