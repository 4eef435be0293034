package supervisor

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// This file says which processes of a job that is watched as a whole are meant:
// each step has limits of its own, and what one has crossed is no other's fault.

// followsJob says that we attached to a job, whose processes others find for us.
func (w *watcher) followsJob() bool { return w.Attached != nil && w.Attached.Population != nil }

// ofJob says that a job is watched, not one process: one that we attached to, or
// one that has several ranks on this node of which we lead.
func (w *watcher) ofJob() bool { return w.followsJob() || len(w.job.Roots) > 1 }

// jobName is the job that is watched.
func (w *watcher) jobName() string {
	if w.Attached != nil {
		return w.Attached.Job
	}
	job, _ := w.limits.Job()
	return job.ID
}

// place finds the step of every process of the tree: a process that the
// follower knows is in the one that was read, any other in that of who started
// it, also when that has ended. What nobody was seen to start is asked for its
// cgroup.
func (w *watcher) place(procs []rss.Proc) {
	if !w.ofJob() {
		return
	}
	was := w.steps
	w.steps = make(map[rss.ProcID]string, len(procs))
	byPID := make(map[int]*rss.Proc, len(procs))
	for i := range procs {
		byPID[procs[i].ID.PID] = &procs[i]
	}
	for i := range procs {
		p, step := &procs[i], ""
		for range 64 { // a tree is not that deep
			known := false
			if step, known = w.job.StepOf[p.ID]; !known {
				step, known = was[p.ID]
			}
			if p = byPID[p.Parent]; known || p == nil {
				break
			}
		}
		if step == "" {
			b, _ := procfile.Read(filepath.Join(w.Proc, strconv.Itoa(procs[i].ID.PID), "cgroup"), procfile.Small)
			_, step, _ = slurm.StepOfCgroup(b)
		}
		w.steps[procs[i].ID] = step
	}
}

// stepOf returns the step that a limit is of, which is then all that is meant
// where it was crossed; empty where more is. l may be nil.
func (w *watcher) stepOf(l *event.Limit) string {
	if l == nil {
		return ""
	}
	_, step, _ := strings.Cut(w.limits.Step(l), ".")
	return step
}

// spared says that a process is never signalled.
func (w *watcher) spared(id rss.ProcID) bool { return slices.Contains(w.sparedSteps(), w.steps[id]) }

// sparedSteps are the steps of which nobody is signalled.
func (w *watcher) sparedSteps() []string {
	if w.job.Spared {
		return append([]string{extern}, w.job.Kept...)
	}
	return w.job.Kept
}

// isMeant says that a process may be acted on for the sake of a step, or of all
// where that is empty.
func (w *watcher) isMeant(id rss.ProcID, step string) bool {
	return !w.spared(id) && (step == "" || w.steps[id] == step)
}

// tops are the command, or of a job its tasks.
func (w *watcher) tops() []rss.ProcID {
	if w.ofJob() {
		return w.tasks
	}
	return []rss.ProcID{w.command}
}

// commands are the processes that a signal goes to where no trainer said hello:
// the command, or of a job every task that is meant.
func (w *watcher) commands(step string) []*rss.Proc {
	var list []*rss.Proc
	for _, id := range w.tops() {
		if p := w.last.Find(id.PID); p != nil && p.ID == id && p.State != 'Z' && w.isMeant(id, step) {
			list = append(list, p)
		}
	}
	return list
}

// beginStop stops the command, and the other ranks that are meant, unless nobody
// can be stopped or all have ended: the holder must not be told to pass over the
// status of a command that ended by itself.
func (w *watcher) beginStop(f *inFlight, l *event.Limit) {
	step := w.stepOf(l)
	first, err := w.toStop(step)
	if asked := w.stopOthers(step); len(first)+asked == 0 && !w.stopsAlready(step) {
		r := action.Result{Reason: event.ReasonError, Detail: err.Error()}
		if errors.Is(err, syscall.ESRCH) {
			r = action.Result{Reason: event.ReasonVanished}
			if w.ofJob() {
				r.Detail = "no task of " + w.target(step)
			}
		}
		w.finish(r)
		return
	}
	if w.endsBy(first, step) {
		w.sum.Stopped = true
		if err := w.Link.Override(w.Settings.StopStatus); err != nil {
			w.fault("stop", err)
		}
	}
	if w.ofJob() {
		f.target = w.target(step)
	}
	w.tell.Say(w.now(), "stop", phrase.Memory(l)+": stopping "+w.target(step)+" with TERM, KILL follows after "+text.Span(w.Settings.Grace))
	meant := func(s *rss.Sample) []rss.ProcID { return w.toKill(s, step) }
	f.running = action.Stop(w.kill, first, meant, w.Settings.Grace, f.began)
}

// endsBy says that what we are to tell the end of ends by a stop whose TERM goes to
// first: our own command, whoever goes on beside it; what we attached to as a whole.
func (w *watcher) endsBy(first []rss.ProcID, step string) bool {
	if w.Attached != nil {
		return w.isAll(step)
	}
	return slices.Contains(first, w.command)
}

// toStop returns who gets the TERM of a stop from us: the command, or of a job
// every task that is meant and has no rsswarden of its own, whether it has a
// handler or not. One that was told already may be writing a checkpoint. The error
// says why there is nobody, ESRCH that all have ended.
func (w *watcher) toStop(step string) ([]rss.ProcID, error) {
	var failed error = syscall.ESRCH
	var list []rss.ProcID
	for _, id := range w.tops() {
		p := w.last.Find(id.PID)
		if p != nil && p.ID == id && p.State == 'Z' && p.Threads <= 1 || !w.isMeant(id, step) || w.rankOf(id.PID) != nil ||
			id == w.command && w.peers.stop.inForce() {
			continue
		}
		if err := w.kill(id, 0); err == nil {
			list = append(list, id)
		} else if errors.Is(failed, syscall.ESRCH) {
			failed = err
		}
	}
	return list, failed
}

// toKill returns who gets the KILL of a stop: all that is meant and lives.
func (w *watcher) toKill(s *rss.Sample, step string) []rss.ProcID {
	var list []rss.ProcID
	for i := range s.Procs {
		if id := s.Procs[i].ID; w.isMeant(id, step) {
			list = append(list, id)
		}
	}
	return list
}

// target names what is meant, for people.
func (w *watcher) target(step string) string {
	switch {
	case !w.ofJob():
		return "the command"
	case step != "":
		job, _, _ := strings.Cut(w.jobName(), ".")
		return "step " + partName(job, step)
	}
	name := "job " + w.jobName()
	if !w.followsJob() {
		name += " on this node"
	}
	spared := slices.DeleteFunc(slices.Clone(w.sparedSteps()), func(step string) bool { return !slices.Contains(w.job.Steps, step) })
	if len(spared) > 0 {
		name += " but for step " + strings.Join(spared, " and ")
	}
	return name
}

// isAll says that nothing is meant to go on where the step is stopped but what
// is spared.
func (w *watcher) isAll(step string) bool {
	return step == "" || !slices.ContainsFunc(w.last.Procs, func(p rss.Proc) bool {
		return !w.spared(p.ID) && w.steps[p.ID] != step
	})
}
