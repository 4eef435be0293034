package action

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// recycling has a loader worker replaced through the hook, or signals one of a pool that
// starts another in its place.
type recycling struct{ *Env }

func (a recycling) Can(_ event.Rule, l *event.Limit) event.Feasibility {
	u, reason := a.pick(l)
	if reason == event.ReasonNoWorker {
		if why := a.Workers.Trainers().Stays(); why != "" {
			return event.Feasibility{Reason: event.ReasonUnsupported, Detail: why}
		}
	}
	if reason != event.ReasonNone {
		return event.Feasibility{Reason: reason}
	}
	if t := a.View.Sample.Find(u.Trainer); t != nil {
		if took := a.Workers.Trainers().ResendPause(u.ID.PID); took > 0 {
			if took > workers.LongPause && !pressed(l) {
				return event.Feasibility{Reason: event.ReasonResend, Detail: "the last time took " + text.Span(took)}
			}
		} else if pause := workers.ForkPause(t.Anon); pause > workers.LongPause && a.View.TimeLeft(l) == 0 && !a.Workers.Trainers().Helped(u.ID.PID) {
			return event.Feasibility{Reason: event.ReasonPause, Detail: "the trainer would pause for about " + text.Span(pause)}
		}
	}
	job, _ := a.Limits.Job()
	if a.Ranks.Waits(a.View.TimeLeft(l), job.Nodes) {
		return event.Feasibility{Reason: event.ReasonOccupied, Later: true}
	}
	return event.Feasibility{OK: true, Gain: u.Counted}
}

// pressedAt is the part of a limit from which on it is near, see [pressed].
const pressedAt = 0.95

// pressed says that a limit is so near that the trainer may be held for seconds. The
// fastest rate seen does not count: workers that get their data grow as fast.
func pressed(l *event.Limit) bool {
	return l.Ratio() >= pressedAt || l.ETA != nil && *l.ETA < workers.HurryETA.Seconds()
}

// pick chooses the worker to recycle for l, or says why there is none.
func (a recycling) pick(l *event.Limit) (u workers.Usage, reason event.Reason) {
	list := a.recyclable(l)
	worth := event.MinGain(0)
	if left := a.View.TimeLeft(l); left > 0 && left < workers.HurryETA && l.Name != event.LimitUser {
		worth = event.MinRecycle(l) // the enforcer of no other asks whether it was worth it
	}
	i, _, reason := workers.Pick(list, worth)
	if i < 0 {
		return u, reason
	}
	return list[i], reason
}

// recyclable are the workers that could be recycled for l.
func (a recycling) recyclable(l *event.Limit) []workers.Usage {
	step := a.Limits.Step(l)
	list := slices.DeleteFunc(a.Workers.RecyclableFor(l, a.View.TimeLeft(l)), func(u workers.Usage) bool { return !a.Pop.InScope(u.ID, step) })
	for i := range list {
		list[i].RankServed = a.Ranks.LastRecycled(a.Ranks.Key(list[i].ID.PID))
	}
	return list
}

// The rung of a recycle leaves a tenth of the limit for the time that a worker takes
// to drain. Several ranks that grow together may fill that sooner, and the kernel
// kills at once: then the recycle begins as much earlier.

// Lead is by how much the growth until a recycle has taken effect is
// more than the rung leaves, twice the last one's time allowed for.
func (a recycling) Lead(l *event.Limit) rss.Bytes {
	rung, ok := a.Ladder.Rung(event.ActionRecycle, l)
	if !ok || l.Name != event.LimitCgroup && l.Name != event.LimitSlurm {
		return 0 // --limit kills nothing
	}
	if at, ok := a.Ladder.Rung(event.ActionWarn, l); ok && at < rung && l.Used >= at {
		// Where it is known what workers need, what they have above that is a leak. There is
		// nothing to wait for, and what the trainer may need all at once finds room.
		if u, reason := a.pick(l); reason == event.ReasonNone && u.Counted >= event.MinGain(0) && a.Workers.NeedKnown(u.ID.PID) {
			return min(rung-at, l.Limit.Scale(mostLead))
		}
	}
	if l.Name == event.LimitSlurm {
		return 0 // slurmstepd looks each half minute
	}
	growth := rss.Bytes(a.View.Latest(l) * a.Workers.RecycleTime().Seconds())
	return min(growth.Sub(l.Limit.Sub(rung)), l.Limit.Scale(mostLead))
}

func (a recycling) Begin(f *Flight, l *event.Limit) (Running, Result) {
	u, reason := a.pick(l)
	if reason != event.ReasonNone {
		return nil, Result{Reason: reason}
	}
	pid := u.ID.PID
	a.Ranks.Recycled(a.Ranks.Key(pid))
	f.Acted = a.Workers.ActOn(pid, l)
	if u.Trainer == 0 {
		return a.replace(f, &f.Acted.Procs[0]), Result{}
	}
	fresh, _ := a.Workers.Fresh(pid, l.Accounting)
	return Recycle(a.Loader, pid, workers.RecycleMode(l.Headroom(), fresh), f.Began), Result{}
}

func (a recycling) beginFor(f *Flight, pids []int) (Running, Result) {
	fresh, ok := a.Workers.Fresh(pids[0], f.Before.Accounting)
	if !ok {
		return nil, Result{Reason: event.ReasonVanished}
	}
	return Recycle(a.Loader, pids[0], workers.RecycleMode(f.Before.Headroom(), fresh), f.Began), Result{}
}

func (a recycling) instead() string {
	return "only workers of DataLoaders and pools that the hook can reach are replaced: rsswarden doctor -- PYTHON tells whether it can; %s needs no hook"
}

// targets are the workers that can be recycled, one of each rank in turn.
func (a recycling) targets(cmd *control.Command) []target {
	type turn struct {
		nth int // of its rank's
		target
	}
	var turns []turn
	had := map[int]int{}
	for _, u := range a.Workers.Recyclable(event.AccountingCgroup) {
		pid := u.ID.PID
		if u.Trainer == 0 {
			continue // a pool's worker gets a signal, which only its own options ask for
		}
		task, ok := a.wanted(cmd, pid)
		if !ok {
			continue
		}
		turns = append(turns, turn{had[task], target{task, []int{pid}}})
		had[task]++
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(a.nth-b.nth, a.task-b.task) })
	var todo []target
	for _, t := range turns {
		todo = append(todo, t.target)
	}
	return todo
}

// Recycle replaces one loader worker through the hook. It ends when the hook
// says that the old worker has ended, or that it will not be replaced.
func Recycle(h Hook, worker int, mode event.Mode, now time.Duration) Running {
	request, err := h.Recycle(worker, mode)
	return &recycle{request: request, err: err, worker: worker, mode: mode, deadline: now + RecycleDeadline}
}

type recycle struct {
	request  uint64
	err      error
	worker   int
	mode     event.Mode
	deadline time.Duration
}

// overtaken are the hook's words for a worker that ended, mostly with its epoch, before it
// was replaced: its memory is gone too.
var overtaken = []string{"loader ended", "no such worker", string(event.ReasonVanished)}

func (a *recycle) Step(w World) (Result, bool) {
	r := Result{PID: a.worker}
	if a.err != nil {
		r.Reason, r.Detail = event.ReasonError, a.err.Error()
		return r, true
	}
	for _, s := range w.Said {
		if s.Request != a.request {
			continue
		}
		switch s.What {
		case event.LoaderRecycled:
			r.OK, r.Reason = true, event.ReasonDone
			r.Paused = time.Duration(s.Paused * float64(time.Second))
			r.Detail = string(a.mode)
			return r, true
		case event.LoaderAccepted:
			if why := event.Reason(s.Reason); why.PutOff() {
				// It stays asked for, and loaders say when it was done.
				r.Reason = why
				return r, true
			}
		case event.LoaderRefused, event.LoaderOff:
			r.Reason, r.Detail = event.ReasonUnsupported, s.Reason
			switch {
			case strings.HasPrefix(s.Reason, string(event.ReasonForkRefused)):
				r.Reason = event.ReasonForkRefused
			case slices.Contains(overtaken, s.Reason):
				r.Reason = event.ReasonVanished
			}
			return r, true
		}
	}
	switch {
	case w.Now >= a.deadline:
		r.Reason = event.ReasonTimeout
	case w.Sample != nil && len(w.Sample.Procs) == 0:
		r.Reason = event.ReasonVanished
	default:
		return Result{}, false
	}
	return r, true
}

func (a recycling) replace(f *Flight, p *rss.Proc) Running {
	owner := a.Workers.Pools.Owner(p)
	size := len(a.Workers.Pools.Members(owner))
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		err := a.Kill(id, sig)
		if err == nil {
			a.Workers.Pools.Signalled(owner, id, size, ReplaceDeadline)
		}
		return err
	}
	f.Acted.Pool = a.Workers.Pools.Workers()
	return Replace(kill, p.ID, syscall.Signal(a.Settings.WorkerSignal), func() int { return len(a.Workers.Pools.Members(owner)) }, size, f.Began)
}

// Replace signals one worker of a pool that respawns (--worker-signal) and
// ends when the worker is gone and as many processes match as before, so that
// the next is not taken while its replacement is missing.
func Replace(kill Killer, worker rss.ProcID, sig syscall.Signal, matching func() int, before int, now time.Duration) Running {
	return &replace{
		worker: worker, matching: matching, before: before,
		err: kill(worker, sig), deadline: now + ReplaceDeadline,
	}
}

type replace struct {
	worker   rss.ProcID
	matching func() int // how many processes match now
	before   int
	err      error
	deadline time.Duration
}

func (a *replace) Step(w World) (Result, bool) {
	r := Result{PID: a.worker.PID, Reason: event.ReasonDone}
	if a.err != nil && !errors.Is(a.err, unix.ESRCH) {
		r.Reason, r.Detail = event.ReasonError, a.err.Error()
		return r, true
	}
	if w.Sample == nil {
		return Result{}, false
	}
	p := w.Sample.Find(a.worker.PID)
	gone := p == nil || p.ID != a.worker || p.State == 'Z' || p.State == 'X'
	if gone && a.matching() >= a.before {
		r.OK = true
		return r, true
	}
	if w.Now < a.deadline {
		return Result{}, false
	}
	r.Reason = event.ReasonTimeout
	r.Detail = "the worker did not end"
	if gone {
		r.Detail = "no replacement appeared"
	}
	return r, true
}
