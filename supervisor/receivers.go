package supervisor

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file says whom a signal= rule asks.

// hookless says that nobody can say hello, so that the environment alone tells
// who trains.
func (w *watcher) hookless() bool {
	return w.Attached != nil || w.loader == nil && len(w.workers.trainers) == 0
}

// askable returns those of the processes that said hello which train, by PID:
// each with the role of one; where there is none, the uppermost that are neither
// workers nor agents. Where there is no hook it returns each with the role of one.
func (f *workforce) askable(s *rss.Sample, hookless bool) []*rss.Proc {
	var trainers, others []*rss.Proc
	for i := range s.Procs {
		p := &s.Procs[i]
		switch {
		case p.State == 'Z' || p.State == 'X' || !hookless && !f.hello(p.ID):
		case p.Role == rss.RoleTrainer:
			trainers = append(trainers, p)
		case p.Role == rss.RoleOther || p.Role == "":
			others = append(others, p)
		}
	}
	if len(trainers) > 0 || hookless {
		return trainers
	}
	for _, p := range others {
		if !slices.ContainsFunc(others, func(q *rss.Proc) bool { return below(s, p.ID.PID, q.ID.PID) }) {
			trainers = append(trainers, p)
		}
	}
	return trainers
}

// below says whether the process descends from the other.
func below(s *rss.Sample, pid, other int) bool {
	for range 64 { // a tree is not that deep
		p := s.Find(pid)
		if p == nil || p.Parent == pid {
			return false
		}
		if pid = p.Parent; pid == other {
			return true
		}
	}
	return false
}

// unsure says that one of these may turn out to be an agent, an agent to be a
// trainer, or another to be a rank beside these: environments have not been read
// yet. It does not outlast their youth, whatever else is started.
func (w *watcher) unsure(all []*rss.Proc) bool {
	r, s := &w.workers.roles, &w.last
	young := slices.ContainsFunc(all, func(p *rss.Proc) bool { return !r.places.late(p, s.Mono) })
	return len(r.open) > 0 || young && slices.ContainsFunc(s.Procs, func(q rss.Proc) bool {
		_, read := r.places.of(&q)
		return !read && living(&q)
	})
}

// receivers returns whom the signal of a rule goes to where l was crossed: every
// trainer that said hello, or without a hook has the environment of one, else the
// command, or what that runs in a container; of these those that catch it. Help says why it goes to nobody.
func (w *watcher) receivers(r event.Rule, l *event.Limit) (to []*rss.Proc, h policy.Help) {
	return w.receiversAmong(r, l, func(int) bool { return true })
}

// receiversAmong returns those of the receivers that somebody means, by PID.
func (w *watcher) receiversAmong(r event.Rule, l *event.Limit, means func(pid int) bool) (to []*rss.Proc, h policy.Help) {
	sig, rank0, ok := r.Signal()
	if !ok {
		return nil, policy.Help{Reason: event.ReasonUnsupported}
	}
	step, hookless := w.stepOf(l), w.hookless()
	all := slices.DeleteFunc(w.workers.askable(&w.last, hookless), func(p *rss.Proc) bool { return !w.isMeant(p.ID, step) })
	if len(all) == 0 {
		all = behind(&w.last, w.commands(step))
		switch {
		case len(all) == 0:
			return nil, policy.Help{Reason: event.ReasonVanished}
		case all[0].Role == rss.RoleAgent && !hookless:
			return nil, policy.Help{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and none of them said hello"}
		case all[0].Role == rss.RoleAgent:
			return nil, policy.Help{Reason: event.ReasonNoTrainer, Detail: "the command only starts ranks, and there is none now"}
		}
		all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return p.Role == rss.RoleAgent })
	}
	if w.Attached != nil && w.unsure(all) {
		return nil, policy.Help{Reason: event.ReasonNoTrainer, Detail: "who trains is not known yet", Later: true}
	}
	if all = slices.DeleteFunc(all, func(p *rss.Proc) bool { return !means(p.ID.PID) }); len(all) == 0 {
		return nil, policy.Help{Reason: event.ReasonNoTrainer, Detail: "of those that are meant none trains"}
	}
	if rank0 {
		if all, h = w.workers.roles.rank0(all, w.last.Mono); len(all) == 0 {
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
		return nil, policy.Help{Reason: event.ReasonNotCaught, Detail: event.SignalName(sig) + ", " + phrase.Processes(deaf)}
	}
	if !w.isAll(step) {
		h.Detail = strings.TrimPrefix(h.Detail+"; only "+w.target(step)+" is meant", "; ")
	}
	h.OK = true
	return to, h
}

// rank0 leaves of the processes those of rank 0, or says why there is none.
func (r *roles) rank0(all []*rss.Proc, now time.Duration) (zero []*rss.Proc, h policy.Help) {
	var unknown []*rss.Proc
	unread := false
	for _, p := range all {
		at, read := r.places.of(p)
		if r.leads[p.ID] && at.local < 0 {
			at.local = 0
		}
		is, known := at.zero()
		switch {
		case known && is:
			zero = append(zero, p)
		case !known:
			unknown = append(unknown, p)
			unread = unread || !read
			h.Later = h.Later || !read && !r.places.late(p, now)
		}
	}
	switch {
	case len(zero) > 0:
		return zero, policy.Help{}
	case unread:
		h.Detail = "the environment of " + phrase.Processes(unknown) + " cannot be read"
	case len(unknown) > 0:
		h.Detail = "no RANK, LOCAL_RANK or SLURM_PROCID in the environment of " + phrase.Processes(unknown)
	case len(all) == 1:
		h.Detail = phrase.Processes(all) + " is of another rank"
	default:
		h.Detail = phrase.Processes(all) + " are of other ranks"
	}
	h.Reason = event.ReasonNoRank0
	return nil, h
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

// collectors returns who can be asked to collect garbage: trainers that take
// batches, and their workers.
func (f *workforce) collectors() (pids, trainers []int) {
	for _, t := range f.trainers {
		if len(t.Loaders) == 0 || t.Off {
			continue
		}
		trainers = append(trainers, t.ID.PID)
		pids = append(pids, t.ID.PID)
		for _, l := range t.Loaders {
			pids = append(pids, l.Workers...)
		}
	}
	return pids, trainers
}
