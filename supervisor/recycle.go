package supervisor

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

func (w *watcher) canRecycle(l *event.Limit) event.Feasibility {
	if !l.Name.Memory() {
		return event.Feasibility{Reason: event.ReasonNoHelp, Detail: "a worker's memory is not what counts here"}
	}
	u, reason := w.pick(l)
	if reason != event.ReasonNone {
		return event.Feasibility{Reason: reason}
	}
	if t := w.view.Sample.Find(u.Trainer); t != nil {
		if took := w.observe.Workers.Trainers().ResendPause(u.ID.PID); took > 0 {
			if took > workers.LongPause && !pressed(l) {
				return event.Feasibility{Reason: event.ReasonResend, Detail: "the last time took " + text.Span(took)}
			}
		} else if pause := workers.ForkPause(t.Anon); pause > workers.LongPause && w.view.TimeLeft(l) == 0 {
			return event.Feasibility{Reason: event.ReasonPause, Detail: "the trainer would stand still for about " + text.Span(pause)}
		}
	}
	p := w.node
	job, _ := w.observe.Limits.Job()
	if p.Stagger.Waits(node.Turn{
		Now: w.now(), Left: w.view.TimeLeft(l), Nodes: job.Nodes, From: p.From, Heir: p.Heir, Within: action.RecycleDeadline,
		Pending: p.Heir && w.observe.Workers.Trainers().Recycling() || w.observe.Loader != nil && w.observe.Loader.Inherited(),
	}) {
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
func (w *watcher) pick(l *event.Limit) (u workers.Usage, reason event.Reason) {
	list := w.recyclable(l)
	worth := event.MinGain(0)
	if left := w.view.TimeLeft(l); left > 0 && left < workers.HurryETA && l.Name != event.LimitUser {
		worth = event.MinRecycle(l) // the enforcer of no other asks whether it was worth it
	}
	i, _, reason := workers.Pick(list, worth)
	if i < 0 {
		return u, reason
	}
	return list[i], reason
}

// recyclable are the workers that could be recycled for l.
func (w *watcher) recyclable(l *event.Limit) []workers.Usage {
	step := w.observe.Limits.Step(l)
	list := slices.DeleteFunc(w.observe.Workers.RecyclableFor(l, w.view.TimeLeft(l)), func(u workers.Usage) bool { return !w.observe.Pop.InScope(u.ID, step) })
	for i := range list {
		list[i].RankServed = w.node.Stagger.LastRecycled(w.owner(list[i].ID.PID).Holder)
	}
	return list
}

// The rung of a recycle leaves a tenth of the limit for the time that a worker takes
// to drain. Several ranks that grow together may fill that sooner, and the kernel
// kills at once: then the recycle begins as much earlier.

// growthUntilRecycled is by how much the growth until a recycle has taken effect is
// more than the rung leaves, twice the last one's time allowed for.
func (w *watcher) growthUntilRecycled(l *event.Limit) rss.Bytes {
	rung, ok := w.ladder.Rung(event.ActionRecycle, l)
	if !ok || l.Name != event.LimitCgroup && l.Name != event.LimitSlurm {
		return 0 // --limit kills nothing
	}
	if at, ok := w.ladder.Rung(event.ActionWarn, l); ok && at < rung && l.Used >= at {
		// Where it is known what workers need, what they have above that is a leak. There is
		// nothing to wait for, and what the trainer may need all at once finds room.
		if u, reason := w.pick(l); reason == event.ReasonNone && u.Counted >= event.MinGain(0) && w.observe.Workers.NeedKnown(u.ID.PID) {
			return min(rung-at, l.Limit.Scale(mostLead))
		}
	}
	if l.Name == event.LimitSlurm {
		return 0 // slurmstepd looks each half minute
	}
	growth := rss.Bytes(w.view.Latest(l) * w.observe.Workers.RecycleTime().Seconds())
	return min(growth.Sub(l.Limit.Sub(rung)), l.Limit.Scale(mostLead))
}

// beginReplace signals a worker of a pool. That is said at once: where it was the
// last thing that the command lived to see, nothing else would tell.
func (w *watcher) beginReplace(f *inFlight, l *event.Limit, p *rss.Proc) {
	owner := w.observe.Workers.Pools.Owner(p)
	size := len(w.observe.Workers.Pools.Members(owner))
	kill := func(id rss.ProcID, sig syscall.Signal) error {
		err := w.kill(id, sig)
		if err == nil {
			w.tell.Sum.Done.Signalled++
			w.observe.Workers.Pools.Signalled(owner, id, size, action.ReplaceDeadline)
			w.tell.Say(w.now(), "pool", fmt.Sprintf("%s: %s sent to process %d (%s), one of %s of process %d, which is to start another in its place",
				phrase.Memory(l), event.SignalName(sig), id.PID, p.Comm, text.Count(size, "worker"), owner.PID))
		}
		return err
	}
	f.acted.Pool = w.observe.Workers.Pools.Workers()
	f.running = action.Replace(kill, p.ID, syscall.Signal(w.Settings.WorkerSignal), func(*rss.Sample) []rss.ProcID { return w.observe.Workers.Pools.Members(owner) }, size, f.began)
}
