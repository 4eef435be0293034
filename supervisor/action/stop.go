package action

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"golang.org/x/sys/unix"
)

// stopping stops the command and the other ranks in scope, unless none can be stopped or
// all have ended: the holder must keep the status of a command that ended by itself.
type stopping struct{ *Env }

func (a stopping) Can(event.Rule, *event.Limit) event.Feasibility { return event.Feasibility{OK: true} }

func (a stopping) Begin(f *Flight, l *event.Limit) (Running, Result) {
	step := a.Limits.Step(l)
	first, err := a.toStop(step)
	if asked := a.Ranks.StopOthers(step); len(first)+asked == 0 && !a.Ranks.Stops(step) {
		r := Result{Reason: event.ReasonError, Detail: err.Error()}
		if errors.Is(err, syscall.ESRCH) {
			r = Result{Reason: event.ReasonVanished}
			if a.Pop.IsJob() {
				r.Detail = "no task of " + a.Pop.Target(step)
			}
		}
		return nil, r
	}
	// Our own command is what we watch, even if others go on; else what we attached to as a whole.
	if a.Pop.Attached() && a.Pop.IsAll(&a.View.Sample, step) || !a.Pop.Attached() && slices.Contains(first, a.Pop.Command) {
		a.Tell.Sum.Stopped = true
		if err := a.Holder.Override(a.Settings.StopStatus); err != nil {
			a.Tell.Fault(a.Now(), "stop", err)
		}
	}
	if a.Pop.IsJob() {
		f.target = a.Pop.Target(step)
	}
	what := "stopping"
	if f.target != "" {
		what += " " + f.target
	}
	a.Tell.About(a.Now(), &f.Decision, l, "", fmt.Sprintf("%s: SIGTERM now, SIGKILL in %s (%s)", what, text.Span(a.Settings.Grace), f.Decision.Rule))
	meant := func(s *rss.Sample) []rss.ProcID { return a.Pop.All(s, step) }
	return Stop(a.Kill, first, meant, a.Settings.Grace, f.Began), Result{}
}

// toStop returns the processes that get the TERM of a stop from us: the command, or of a job
// every task that is meant and has no rsswarden of its own, whether it has a
// handler or not. One that was told already may be writing a checkpoint. The error
// says why there is none, ESRCH that all have ended.
func (a stopping) toStop(step string) ([]rss.ProcID, error) {
	var failed error = syscall.ESRCH
	var list []rss.ProcID
	for _, id := range a.Pop.Tasks() {
		p := a.View.Sample.Find(id.PID)
		if p != nil && p.ID == id && p.State == 'Z' && p.Threads <= 1 || !a.Pop.InScope(id, step) || a.Ranks.Others(id.PID) ||
			id == a.Pop.Command && a.Ranks.Stopping() {
			continue
		}
		if err := a.Kill(id, 0); err == nil {
			list = append(list, id)
		} else if errors.Is(failed, syscall.ESRCH) {
			failed = err
		}
	}
	return list, failed
}

// endLeft has what outlives a command that a stop of ours has ended go too: a shell and
// some launchers die of TERM and do not pass it on, and a retry of the job would have the
// old training beside the new one. Each gets TERM, as scancel(1) would send it,
// but for loader workers, which end with their trainer: that may be saving a checkpoint. One
// whose trainer has ended gets KILL: it may wait until then to write to a pipe that nobody
// reads (PyTorch 1.13, where a batch is larger than the pipe).
// Where several ranks run, and in a job, Slurm ends what is left. It returns which got it.
func (a stopping) endLeft() (ended []rss.ProcID) {
	if a.Pop.IsJob() || a.Ranks.Several() {
		return nil
	}
	var left []*rss.Proc
	killed := 0
	for i := range a.View.Sample.Procs {
		p := &a.View.Sample.Procs[i]
		signal := syscall.SIGTERM
		if p.Role.IsWorker() {
			trainer := a.View.Sample.Find(p.Parent)
			if trainer != nil && trainer.ID != a.Pop.Command && a.Kill(trainer.ID, 0) == nil || p.Role != rss.RoleWorker {
				continue
			}
			signal = syscall.SIGKILL
		}
		if p.ID == a.Pop.Command || !living(p) || a.Kill(p.ID, signal) != nil {
			continue // most have ended with the command
		}
		if ended = append(ended, p.ID); signal == syscall.SIGKILL {
			killed++
		} else {
			left = append(left, p)
		}
	}
	if killed > 0 {
		a.Tell.Say(a.Now(), "stop", fmt.Sprintf("SIGKILL to %s left without a trainer", text.Count(killed, "worker")))
	}
	if len(left) == 0 {
		return ended
	}
	line := fmt.Sprintf("SIGTERM to %s left by the command: %d (%s)", text.Count(len(left), "process"), left[0].ID.PID, text.Cut(text.Plain(left[0].Comm), 16))
	if len(left) > 1 {
		line += ", …"
	}
	a.Tell.Say(a.Now(), "stop", line)
	return ended
}

// leftPatience is how long helpers that end with the command may take for it, as
// the resource tracker of Python's multiprocessing does, before they are named.
const leftPatience = 20 * time.Millisecond

// Left is what of the tree still runs when the command has ended, by role, without
// what a stop of ours has ended. Where other ranks run on, theirs cannot be told
// from ours.
func (a *Env) Left(ended []rss.ProcID) []event.Left {
	if a.Pop.IsJob() || a.Ranks.Several() {
		return nil
	}
	var all []event.Left
	for end := time.Now().Add(leftPatience); ; time.Sleep(leftPatience / 8) {
		procs, _, err := a.Pop.Read()
		if err != nil {
			return nil
		}
		all = all[:0]
		for i := range procs {
			p := &procs[i]
			if was := a.View.Sample.Find(p.ID.PID); was != nil && was.ID == p.ID {
				p.Role = was.Role
			}
			if p.ID == a.Pop.Command || !living(p) || slices.Contains(ended, p.ID) {
				continue
			}
			role := slices.IndexFunc(all, func(l event.Left) bool { return l.Role == p.Role })
			if role < 0 {
				role, all = len(all), append(all, event.Left{Role: p.Role})
			}
			l := &all[role]
			l.Procs++
			l.RSS += p.RSS
			if len(l.PIDs) < 8 {
				l.PIDs = append(l.PIDs, p.ID.PID)
			}
		}
		if len(all) == 0 || time.Now().After(end) {
			return all
		}
	}
}

func living(p *rss.Proc) bool { return p.State != 'Z' && p.State != 'X' }

// Stop ends processes: TERM to each of first at once, KILL to all that is meant
// of a sample where that has not ended after grace. The caller has told the
// holder the exit status.
func Stop(kill Killer, first []rss.ProcID, meant func(*rss.Sample) []rss.ProcID, grace, now time.Duration) Running {
	a := &stop{kill: kill, meant: meant, deadline: now + grace}
	for _, id := range first {
		if err := kill(id, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			a.pid, a.err = id.PID, errors.Join(a.err, err)
		}
	}
	return a
}

type stop struct {
	kill     Killer
	meant    func(*rss.Sample) []rss.ProcID
	deadline time.Duration
	pid      int
	err      error
}

func (a *stop) Step(w World) (Result, bool) {
	if a.err != nil {
		return Result{PID: a.pid, Reason: event.ReasonError, Detail: a.err.Error()}, true
	}
	if w.Sample == nil {
		return Result{}, false
	}
	meant := a.meant(w.Sample)
	if w.Now < a.deadline {
		// Where others go on, only this tells that these have ended.
		if len(meant) == 0 && len(w.Sample.Procs) > 0 {
			return done(event.ReasonDone)
		}
		return Result{}, false
	}
	// Each look kills what is there now: a tree may fork while it dies. What
	// cannot be killed is not waited for: it may never end.
	left := 0
	var refused Result
	for _, id := range meant {
		err := a.kill(id, unix.SIGKILL)
		if errors.Is(err, unix.EPERM) {
			refused = Result{PID: id.PID, Reason: event.ReasonError, Detail: err.Error()}
			continue
		}
		left++ // what is gone is out of the next sample
	}
	switch {
	case left > 0:
		return Result{}, false
	case refused.PID != 0:
		return refused, true
	}
	return done(event.ReasonDone)
}
