package supervisor

import (
	"errors"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// inFlight is the action that was begun and has not ended.
type inFlight struct {
	decision event.Decision
	running  action.Running
	began    time.Duration
	before   event.Limit  // the limit as it was
	actedOn  []rss.Proc   // the processes acted on, as they were
	pool     []rss.ProcID // all workers of the pool before one was signalled
}

// decide begins what the ladder decided.
func (w *watcher) decide(d event.Decision) {
	w.put(event.NameDecision, func(h event.Head) any {
		d := d
		d.Head = h
		return d
	})
	l := meant(w.readings, d.Limit, d.Used, d.LimitSize)
	if d.Action == event.ActionWarn {
		if d.Limit != event.LimitTime && l != nil {
			w.voice.say(w.now(), d.Rule+"@"+string(d.Limit), memory(l)+forecast(&d))
		} else if d.ETA != nil {
			w.voice.say(w.now(), d.Rule+"@"+string(d.Limit), "the job's time ends in "+about(*d.ETA))
		}
		return
	}
	if l == nil {
		// A decision is about a reading: this cannot happen. The ladder would wait.
		w.ladder.Done(event.Outcome{Decision: d.ID, Reason: event.ReasonError})
		return
	}
	if w.flight != nil {
		// Only a stop does not wait. The ladder is to hear of what it overtook,
		// or it would wait for that where the stop fails.
		w.finish(action.Result{Reason: event.ReasonError, Detail: "overtaken by " + d.Rule})
	}
	f := &inFlight{decision: d, began: w.now(), before: *l}
	w.flight, w.said = f, nil
	if w.Settings.DryRun {
		w.finish(action.Result{Reason: event.ReasonDryRun})
		return
	}
	switch d.Action {
	case event.ActionTrim:
		w.beginTrim(f, l)
	case event.ActionRecycle:
		w.beginRecycle(f, l)
	case event.ActionStop:
		w.beginStop(f, l)
	default:
		w.finish(action.Result{Reason: event.ReasonUnsupported})
	}
}

// beginStop stops the command, unless it cannot be stopped or has ended: the
// holder must not be told to pass over the status of a command that ended by
// itself.
func (w *watcher) beginStop(f *inFlight, l *event.Limit) {
	if p := w.last.Find(w.command.PID); p != nil && p.ID == w.command && p.State == 'Z' && p.Threads <= 1 {
		w.finish(action.Result{Reason: event.ReasonVanished})
		return
	}
	if err := w.kill(w.command, 0); err != nil {
		r := action.Result{Reason: event.ReasonError, Detail: err.Error()}
		if errors.Is(err, syscall.ESRCH) {
			r.Reason = event.ReasonVanished
		}
		w.finish(r)
		return
	}
	w.sum.stopped = true
	if err := w.Link.Override(w.Settings.StopStatus); err != nil {
		w.fault("stop", err)
	}
	w.voice.say(w.now(), "stop", memory(l)+": stopping the command with TERM, KILL follows after "+short(w.Settings.Grace))
	f.running = action.Stop(w.kill, w.command, w.Settings.Grace, f.began)
}

func (w *watcher) beginTrim(f *inFlight, l *event.Limit) {
	var pids []int
	for _, m := range w.workers.mappers(&w.last, l.Accounting) {
		if m.CountedMapped > trimFloor {
			pids = append(pids, m.ID.PID)
			f.actedOn = append(f.actedOn, *w.last.Find(m.ID.PID))
		}
	}
	f.running = action.Trim(w.loader, pids, f.began)
}

func (w *watcher) beginRecycle(f *inFlight, l *event.Limit) {
	i, _, reason, pids := w.pick(l)
	if i < 0 {
		w.finish(action.Result{Reason: reason})
		return
	}
	e := w.workers.staff[pids[i]]
	p := w.last.Find(pids[i])
	f.actedOn = []rss.Proc{*p}
	if e.trainer == 0 {
		f.pool = w.pool.workers(&w.last)
		f.running = action.Replace(w.kill, p.ID, syscall.Signal(w.Settings.WorkerSignal), w.pool.workers, len(f.pool), f.began)
		return
	}
	mode := policy.RecycleMode(l.Headroom(), w.workers.fresh(e, &w.last, l.Accounting))
	f.running = action.Recycle(w.loader, pids[i], mode, f.began)
}

// kill signals exactly one process.
func (w *watcher) kill(id rss.ProcID, sig syscall.Signal) error {
	return action.Kill(id, sig, func(pid int) (uint64, error) { return proctree.StartTime(w.Proc, pid) })
}

// stepAction looks whether the action in flight has ended.
func (w *watcher) stepAction() {
	if w.flight == nil || w.flight.running == nil {
		return
	}
	r, done := w.flight.running.Step(action.World{Now: w.last.Mono, Sample: &w.last, Said: w.said})
	w.said = nil
	if done {
		// The last sample may be older than what ended the action.
		w.read()
		w.finish(r)
	}
}

// finish measures what an action brought and says so.
func (w *watcher) finish(r action.Result) {
	f, o := w.conclude(r)
	w.voice.say(w.now(), f.decision.Rule+"@"+string(f.decision.Limit), memory(&f.before)+": "+outcome(f.decision.Action, &o))
}

// conclude ends the action in flight without a line on stderr.
func (w *watcher) conclude(r action.Result) (*inFlight, event.Outcome) {
	f := w.flight
	w.flight = nil
	now := w.now()
	o := event.Outcome{
		Decision: f.decision.ID, OK: r.OK, Reason: r.Reason, Detail: r.Detail, PID: r.PID,
		Before: f.before.Used, After: f.before.Used,
		Duration: (now - f.began).Seconds(), Paused: r.Paused.Seconds(),
	}
	if l := same(w.readings, &f.before); l != nil {
		o.After = l.Used
	}
	if r.OK {
		// Others grow meanwhile, so the limit's own fall understates what the
		// processes acted on gave back; both are measured.
		o.Freed = max(o.Before.Sub(o.After), w.givenBack(f))
	}
	w.ladder.Done(o)
	if r.OK && f.decision.Action == event.ActionRecycle && f.pool == nil {
		w.sum.forked++
	}
	w.sum.acted(f.decision.Action, &o)
	w.put(event.NameOutcome, func(h event.Head) any {
		o := o
		o.Head = h
		return o
	})
	return f, o
}

// givenBack is what the processes acted on counted before, less what they and
// those in their places count now. One that has ended and was not replaced gave
// nothing back by what we did.
func (w *watcher) givenBack(f *inFlight) rss.Bytes {
	a := f.before.Accounting
	var before, after rss.Bytes
	known := map[rss.ProcID]bool{}
	for i := range f.actedOn {
		p := &f.actedOn[i]
		known[p.ID] = true
		q := w.last.Find(p.ID.PID)
		if next, ok := w.workers.took[p.ID.PID]; ok {
			q = w.last.Find(next)
		} else if q != nil && q.ID != p.ID {
			q = nil
		}
		if q != nil {
			after += counted(q, a)
		}
		if q != nil || f.pool != nil {
			before += counted(p, a)
		}
	}
	for _, id := range f.pool {
		known[id] = true
	}
	if f.pool != nil {
		for _, id := range w.pool.workers(&w.last) {
			if e := w.workers.staff[id.PID]; e != nil && !known[id] {
				e.fresh = true
				after += counted(w.last.Find(id.PID), a)
			}
		}
	}
	return before.Sub(after)
}

// skipped says that a rung was crossed and nothing can be done.
func (w *watcher) skipped(s policy.Skipped) {
	if r, err := policy.ParseRule(s.Rule); err != nil || r.Cond.Kind != policy.KindFree || r.Cond.Free < s.LimitSize {
		w.sum.skipped++ // else no rung was crossed: there is none
	}
	l := meant(w.readings, s.Limit, s.Used, s.LimitSize)
	if l == nil {
		return
	}
	why := string(s.Reason)
	if s.Detail != "" {
		why += ", " + s.Detail
	}
	w.put(event.NameOutcome, func(h event.Head) any {
		return event.Outcome{
			Head: h, Reason: s.Reason, Detail: s.Rule + ": " + why,
			Before: s.Used, After: s.Used,
		}
	})
	if !w.voice.once("skip", s.Rule+string(s.Limit)+why) {
		return
	}
	w.voice.say(w.now(), "skip", memory(l)+": "+string(s.Action)+" is of no use ("+why+")")
}
