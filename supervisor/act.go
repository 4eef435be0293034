package supervisor

import (
	"fmt"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// inFlight is the action that was begun and has not ended.
type inFlight struct {
	decision event.Decision
	running  action.Running
	began    time.Duration
	before   event.Limit // the limit as it was
	acted    workers.Acted
	target   string // what of a job is meant
	taken    bool   // something was given back by ptrace
	manual   bool   // a user asked for it, no rule

	result *action.Result // it has ended, and its outcome is being measured
	until  time.Duration  // … until then at most
}

// settling is how long the outcome of an action waits for readings of PSS that
// tell its outcome.
const settling = time.Second

// decide begins what the ladder decided.
func (w *watcher) decide(d event.Decision) {
	d.Head = event.Head{V: event.Version, Time: time.Now(), Event: event.NameDecision}
	w.tell.Put(event.NameDecision, func(h event.Head) any { d.Head = h; return d })
	l := w.view.Limit(d.On)
	p := performers[d.Action]
	switch {
	case d.Action == event.ActionWarn:
		w.tell.Textfile.Count(&d, &event.Outcome{OK: true})
		w.foresee(0)
		if d.Limit == event.LimitTime || l != nil {
			w.tell.Say(w.now(), d.Rule+"@"+string(d.Limit), phrase.Occasion(&d, l)+phrase.Coming(&d, counts.FullSoon)+phrase.Forecast(&d)+w.observe.Diagnosis.Because(l))
			if d.Limit == event.LimitSHM {
				level := ""
				if leaf := w.leafLimit(); leaf != nil {
					level = leaf.Level
				}
				w.observe.AskSHMUsers(w.view, level)
			}
		}
		return
	case p.ask != nil && w.Settings.DryRun:
		w.answer(d, l, action.Result{Reason: event.ReasonDryRun})
		return
	case p.ask != nil:
		p.ask(w, d, l)
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
	w.flight, w.said, w.came = f, nil, arrivals{}
	switch {
	case w.Settings.DryRun:
		w.finish(action.Result{Reason: event.ReasonDryRun})
	case p.begin == nil:
		w.finish(action.Result{Reason: event.ReasonUnsupported})
	default:
		p.begin(w, f, l)
	}
}

// answer says what came of a decision that only asked somebody. It frees
// nothing by itself, and what is freed meanwhile or later is nobody's to claim.
func (w *watcher) answer(d event.Decision, l *event.Limit, r action.Result) {
	o := event.Outcome{Decision: d.ID, OK: r.OK, Reason: r.Reason, Detail: r.Detail, PID: r.PID, Before: d.Used, After: d.Used, Duration: r.Took.Seconds(), Exit: r.Exit}
	if l != nil {
		if now := w.view.Limit(l.ID()); now != nil {
			o.After = now.Used // a command of exec= may have run for long
		}
	}
	w.tell.Outcome(&d, &o)
	w.tell.Say(w.now(), d.Rule+"@"+string(d.Limit), phrase.Occasion(&d, l)+": "+phrase.Outcome(&d, &o))
}

func (w *watcher) beginRecycle(f *inFlight, l *event.Limit) {
	u, reason := w.pick(l)
	if reason != event.ReasonNone {
		w.finish(action.Result{Reason: reason})
		return
	}
	pid := u.ID.PID
	w.node.Stagger.Recycled(w.owner(pid).Holder, w.now())
	f.acted = w.observe.Workers.ActOn(pid, l)
	if u.Trainer == 0 {
		w.beginReplace(f, l, &f.acted.Procs[0])
		return
	}
	fresh, _ := w.observe.Workers.Fresh(pid, l.Accounting)
	f.running = action.Recycle(w.observe.Loader, pid, workers.RecycleMode(l.Headroom(), fresh), f.began)
}

// kill signals one process of the tree. Never ourselves: an attach may run in
// what it watches; and never what is spared, whoever chose it.
func (w *watcher) kill(id rss.ProcID, sig syscall.Signal) error {
	if id.PID == w.Self {
		return nil
	}
	if w.observe.Pop.Excluded(id) {
		return fmt.Errorf("cannot signal process %v: the step %s is spared", id, w.observe.Pop.Step(id))
	}
	return action.Kill(id, sig, func(pid int) (uint64, error) { return proctree.StartTime(w.Proc, pid) })
}

// stepAction looks whether the action in flight has ended.
func (w *watcher) stepAction() {
	f := w.flight
	if f == nil || f.running == nil {
		return
	}
	if f.result == nil {
		r, done := f.running.Step(w.world(w.view.Sample.Mono))
		w.wake(f.running)
		if !done {
			return
		}
		// The last sample may be older than what ended the action.
		w.read()
		f.result, f.until = &r, w.now()+settling
	}
	if f.result.OK && w.now() < f.until && w.vague(&f.before) {
		if _, known := w.observe.Workers.OwnBack(&f.acted); !known {
			return
		}
	}
	w.finish(*f.result)
}

// world is what an action in flight may look at, and has looked at then.
func (w *watcher) world(now time.Duration) action.World {
	f := w.flight
	at := action.World{Now: now, Sample: &w.view.Sample, Said: w.said, Planned: w.came.planned, Taken: w.came.taken, Used: f.before.Used}
	if l := w.view.Limit(f.before.ID()); l != nil {
		at.Used = certain(l)
	}
	w.said, w.came = nil, arrivals{}
	return at
}
