package supervisor

import (
	"cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// performer is how the watcher carries one action out; what an action has no part in is nil.
type performer struct {
	// can says whether it can help a limit now, and how much it may give back.
	can func(*watcher, event.Rule, *event.Limit) event.Feasibility
	// lead is by how much a limit grows until the action takes effect.
	lead func(*watcher, *event.Limit) rss.Bytes

	begin func(*watcher, *inFlight, *event.Limit)      // of what is in flight until it has ended
	ask   func(*watcher, event.Decision, *event.Limit) // of what only asks, and is over at once

	// By hand: on which processes a command is carried out, one target after the other,
	// how one of them is begun, and what to do instead where there is none, with the
	// words for doing it without a leader.
	targets  func(*watcher, *control.Command) []target
	beginFor func(*watcher, *inFlight, []int)
	instead  string
}

// performers are those of all actions but that of a warning, which only has a lead.
var performers = map[event.Action]performer{
	event.ActionWarn: {
		lead: func(w *watcher, l *event.Limit) rss.Bytes { return w.observe.Counts.Ahead(l) },
	},
	event.ActionTrim: {
		can:   func(w *watcher, _ event.Rule, l *event.Limit) event.Feasibility { return w.canTrim(l) },
		begin: (*watcher).beginTrim,
		lead: func(w *watcher, l *event.Limit) rss.Bytes {
			if lead := w.trimAhead(l); lead > 0 {
				return lead
			}
			if lead := w.growthUntilTraced(l); lead > 0 && w.canTrace(l).OK {
				return lead
			}
			return 0
		},
		targets: func(w *watcher, cmd *control.Command) []target {
			var pids []int
			for _, m := range w.observe.Workers.Mappers(event.AccountingRSS) {
				pids = append(pids, m.ID.PID)
			}
			return w.hookTargets(cmd, pids)
		},
		beginFor: func(w *watcher, f *inFlight, pids []int) { f.running = action.Trim(w.observe.Loader, pids, f.began) },
		instead:  "%s does it by ptrace, which needs no hook",
	},
	event.ActionRecycle: {
		can:  func(w *watcher, _ event.Rule, l *event.Limit) event.Feasibility { return w.canRecycle(l) },
		lead: (*watcher).growthUntilRecycled, begin: (*watcher).beginRecycle,
		targets: (*watcher).recycleTargets,
		beginFor: func(w *watcher, f *inFlight, pids []int) {
			fresh, ok := w.observe.Workers.Fresh(pids[0], f.before.Accounting)
			if !ok {
				w.finish(action.Result{Reason: event.ReasonVanished})
				return
			}
			f.running = action.Recycle(w.observe.Loader, pids[0], workers.RecycleMode(f.before.Headroom(), fresh), f.began)
		},
		instead: "only workers of PyTorch DataLoaders that the hook can reach are replaced: rsswarden doctor -- PYTHON tells whether it can; %s needs no hook",
	},
	event.ActionGC: {
		can: func(w *watcher, _ event.Rule, l *event.Limit) event.Feasibility { return w.canCollect(l) },
		begin: func(w *watcher, f *inFlight, _ *event.Limit) {
			pids, trainers := w.observe.Workers.Trainers().Collectors()
			f.actOn(&w.view.Sample, pids)
			f.running = action.Collect(w.observe.Loader, pids, trainers, f.began)
		},
		targets: func(w *watcher, cmd *control.Command) []target {
			pids, _ := w.observe.Workers.Trainers().Collectors()
			return w.hookTargets(cmd, pids)
		},
		beginFor: func(w *watcher, f *inFlight, pids []int) {
			_, trainers := w.observe.Workers.Trainers().Collectors()
			f.running = action.Collect(w.observe.Loader, pids, trainers, f.began)
		},
	},
	event.ActionSignal: {
		can: func(w *watcher, r event.Rule, l *event.Limit) event.Feasibility {
			_, h := w.receivers(r, l)
			return h
		},
		ask: (*watcher).signal,
	},
	event.ActionExec: {
		can: func(*watcher, event.Rule, *event.Limit) event.Feasibility { return event.Feasibility{OK: true} },
		ask: (*watcher).exec,
	},
	event.ActionRequeue: {can: (*watcher).canRequeue, begin: (*watcher).beginRequeue},
	event.ActionStop:    {begin: (*watcher).beginStop},
}

// can answers the ladder: whether an action can help a limit now, and how much
// it may give back.
func (w *watcher) can(r event.Rule, l *event.Limit) event.Feasibility {
	if w.flight != nil && w.flight.manual && r.Action.Frees() {
		return event.Feasibility{Reason: event.ReasonOccupied, Later: true} // what was asked for by hand ends first
	}
	if can := performers[r.Action].can; can != nil {
		return can(w, r, l)
	}
	return event.Feasibility{Reason: event.ReasonUnsupported}
}

// canCollect answers for gc, which gives anonymous memory back: every way of
// adding memory up counts that but the virtual size, of which little goes.
func (w *watcher) canCollect(l *event.Limit) event.Feasibility {
	switch {
	case !l.Name.Memory() || l.Accounting == event.AccountingVirtual:
		return event.Feasibility{Reason: event.ReasonNoHelp, Detail: "anonymous memory is not what counts here"}
	case w.observe.Loader == nil:
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: cmp.Or(w.Able.Hook, noHook)}
	}
	if pids, _ := w.observe.Workers.Trainers().Collectors(); len(pids) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker, Detail: w.observe.Workers.NoHello()}
	}
	return event.Feasibility{OK: true} // how much is garbage shows only afterwards
}

// leads is how much each limit grows by until the action of a rule takes effect, or until
// it is counted again, where that is anything. The hook is given budgets ahead instead.
func (w *watcher) leads() map[event.Ask]rss.Bytes {
	var all map[event.Ask]rss.Bytes
	for r, l := range w.ladder.Uncrossed(w.view.Limits) {
		if n := leadOf(w, r, l); n > 0 {
			if all == nil {
				all = map[event.Ask]rss.Bytes{}
			}
			all[event.Ask{Rule: r, On: l.ID()}] = n
		}
	}
	return all
}

func leadOf(w *watcher, r event.Rule, l *event.Limit) rss.Bytes {
	if lead := performers[r.Action].lead; lead != nil {
		return lead(w, l)
	}
	return 0
}

// actOn notes processes as they are before they are acted on.
func (f *inFlight) actOn(s *rss.Sample, pids []int) {
	for _, pid := range pids {
		if p := s.Find(pid); p != nil {
			f.acted.Procs = append(f.acted.Procs, *p)
		}
	}
}
