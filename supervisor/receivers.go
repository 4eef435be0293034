package supervisor

import (
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/population"
)

// hookless says that nobody can say hello, so that the environment alone tells
// who trains.
func (w *watcher) hookless() bool {
	return w.observe.Pop.Attached() || w.observe.Loader == nil && len(w.observe.Workers.Trainers()) == 0
}

// receivers returns whom the signal of a rule goes to where l was crossed: every
// trainer that said hello, or without a hook has the environment of one, else the
// command, or what that runs in a container; of these those that catch it. Help says why it goes to no process.
func (w *watcher) receivers(r event.Rule, l *event.Limit) (to []*rss.Proc, h event.Feasibility) {
	return w.receiversAmong(r, l, func(int) bool { return true })
}

// receiversAmong returns those of the receivers that somebody means, by PID.
func (w *watcher) receiversAmong(r event.Rule, l *event.Limit, means func(pid int) bool) (to []*rss.Proc, h event.Feasibility) {
	sig, rank0, ok := r.Signal()
	if !ok {
		return nil, event.Feasibility{Reason: event.ReasonUnsupported}
	}
	step, hookless := w.observe.Limits.Step(l), w.hookless()
	all := slices.DeleteFunc(w.observe.Workers.Training(hookless), func(p *rss.Proc) bool { return !w.observe.Pop.InScope(p.ID, step) })
	if len(all) == 0 {
		all = population.InContainers(&w.view.Sample, w.observe.Pop.Commands(&w.view.Sample, step))
		switch {
		case len(all) == 0:
			return nil, event.Feasibility{Reason: event.ReasonVanished}
		case all[0].Role == rss.RoleAgent && !hookless:
			return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and none of them said hello"}
		case all[0].Role == rss.RoleAgent:
			return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and there is none now"}
		}
		all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return p.Role == rss.RoleAgent })
	}
	if w.observe.Pop.Attached() && w.observe.Workers.Unsure(all) {
		return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "who trains is not known yet", Later: true}
	}
	if all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return !means(p.ID.PID) }); len(all) == 0 {
		return nil, event.Feasibility{Reason: event.ReasonNoTrainer, Detail: "of those that are meant none trains"}
	}
	if rank0 {
		if all, h.Detail, h.Later = w.observe.Workers.Rank0(all); len(all) == 0 {
			h.Reason = event.ReasonNoRank0
			return nil, h
		}
	}
	var deaf []*rss.Proc
	for _, p := range all {
		// What cannot be read does not catch it as far as we know.
		if caught, _ := action.Catches(w.Proc, p.ID.PID, sig); caught {
			to = append(to, p)
		} else {
			deaf = append(deaf, p)
		}
	}
	if len(deaf) > 0 {
		h.Detail = "not to " + phrase.Processes(deaf) + ", without a handler for " + event.SignalName(sig)
	}
	if len(to) == 0 {
		return nil, event.Feasibility{Reason: event.ReasonNotCaught, Detail: event.SignalName(sig) + ", " + phrase.Processes(deaf)}
	}
	if !w.observe.Pop.IsAll(&w.view.Sample, step) {
		h.Detail = strings.TrimPrefix(h.Detail+"; only "+w.observe.Pop.Target(step)+" is meant", "; ")
	}
	h.OK = true
	return to, h
}

// signal carries a signal= rule out.
func (w *watcher) signal(d event.Decision, l *event.Limit) {
	sig, _, _ := d.Rung.Signal()
	to, h := w.receivers(d.Rung, l)
	if !h.OK {
		w.answer(d, l, action.Result{Reason: h.Reason, Detail: h.Detail})
		return
	}
	w.answer(d, l, action.Signal(w.kill, to, sig, h.Detail))
}
