package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// manualIDs is where the numbers of such decisions begin, far above the ladder's.
const manualIDs = 1 << 50

// Requests is the command of a client that is being carried out, if any.
type Requests struct {
	set     *Set
	cmd     control.Command
	ctx     context.Context
	results chan control.Result // nil where nothing goes on
	todo    []target
	failed  bool
	at      target // what is in flight
	id      uint64
	since   time.Duration
	waits   time.Duration // since when for the ladder's own action, 0 for not
}

// manualPatience bounds how long a step may wait for the ladder's own action.
const manualPatience = 90 * time.Second

func (m *Requests) Obey(ctx context.Context, cmd control.Command) (<-chan control.Result, error) {
	a := m.set
	refuse := func(r event.Reason, format string, args ...any) (<-chan control.Result, error) {
		return nil, &control.Refused{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	for _, task := range cmd.Ranks {
		if !a.Ranks.Has(task) {
			return refuse(event.ReasonNotWatched, "no rank %d on this node", task)
		}
	}
	for _, pid := range cmd.PIDs {
		if a.View.Sample.Find(pid) == nil {
			return refuse(event.ReasonNotWatched, "process %d is none that is watched here", pid)
		}
	}
	if m.results != nil {
		return refuse(event.ReasonOccupied, "%s is running, asked for %s ago", m.cmd.Do, text.Span(a.Now()-m.since))
	}
	if a.Settings.DryRun {
		return refuse(event.ReasonDryRun, "this run has --dry-run, nothing is done in it")
	}
	var todo []target
	switch does, ok := a.all[cmd.Do].(commanded); {
	case cmd.Do == event.ActionSignal:
		return m.checkpoint(cmd)
	case !ok:
		return refuse(event.ReasonUnsupported, "%s cannot be asked for", cmd.Do)
	default:
		todo = does.targets(&cmd)
	}
	if len(todo) == 0 {
		return nil, m.noTarget(&cmd)
	}
	c := make(chan control.Result, len(todo)+len(cmd.PIDs)+1)
	m.cmd, m.ctx, m.results, m.todo, m.failed, m.since = cmd, ctx, c, todo, false, a.Now()
	for _, pid := range cmd.PIDs {
		if !slices.ContainsFunc(todo, func(t target) bool { return slices.Contains(t.pids, pid) }) {
			m.failed = true
			one := control.Command{Do: cmd.Do, PIDs: []int{pid}}
			c <- control.Result{PID: pid, Task: a.Ranks.Task(pid), Reason: event.ReasonNoWorker, Detail: strings.Join(m.whyNone(&one), "; ")}
		}
	}
	m.GoOn()
	return c, nil
}

// GoOn begins the next step of a command where nothing else is being done.
func (m *Requests) GoOn() {
	a := m.set
	switch {
	case m.results == nil:
		return
	case m.ctx.Err() != nil:
		m.todo = nil // who asked has gone: what was begun goes on, no more is
		if a.flight == nil || !a.flight.manual {
			m.end(event.ReasonError, "")
		}
		return
	case a.flight != nil:
		switch {
		case a.flight.manual:
		case m.waits == 0:
			m.waits = a.Now()
		case a.Now()-m.waits > manualPatience:
			m.end(event.ReasonOccupied, "the ladder does not come to rest")
		}
		return
	case len(m.todo) == 0:
		m.end(event.ReasonDone, "")
		return
	}
	t := m.todo[0]
	m.todo, m.at, m.waits = m.todo[1:], t, 0
	f := &Flight{Began: a.Now(), manual: true}
	f.actOn(&a.View.Sample, t.pids)
	f.Before = m.bindingNow()
	f.Decision = m.decide(&m.cmd, &f.Before)
	a.fly(f, func(f *Flight) (Running, Result) { return a.all[m.cmd.Do].(commanded).beginFor(f, t.pids) })
}

// decide reports the decision of who asked, for each step of what was asked for.
func (m *Requests) decide(cmd *control.Command, l *event.Limit) event.Decision {
	m.id++
	d := event.Decision{
		ID: manualIDs + m.id, Rule: event.AskedFor, Limit: l.Name, Action: cmd.Do, Arg: cmd.Signal,
		Used: l.Used, LimitSize: l.Limit, By: cmd.By,
	}
	m.set.Tell.Put(event.NameDecision, func(h event.Head) any { d.Head = h; return d })
	return d
}

// bindingNow is the nearest limit, by which a decision without a rule is measured.
func (m *Requests) bindingNow() event.Limit {
	a := m.set
	if a.View.Watched >= 0 {
		return a.View.Limits[a.View.Watched]
	}
	for i := range a.View.Limits {
		if a.View.Limits[i].Name.Memory() {
			return a.View.Limits[i]
		}
	}
	return event.Limit{Name: event.LimitNode, Accounting: event.AccountingRSS}
}

// stepDone tells who asked what came of a step.
func (m *Requests) stepDone(f *Flight, o *event.Outcome) {
	a := m.set
	if m.results == nil {
		return
	}
	r := control.Result{
		Task: m.at.task, OK: o.OK, Reason: o.Reason, Detail: o.Detail, Paused: o.Paused, Duration: o.Duration,
		Freed: a.Workers.GivenBack(&f.Acted, &f.Before),
	}
	if len(m.at.pids) == 1 {
		r.PID = m.at.pids[0]
	}
	m.failed = m.failed || !o.OK
	m.results <- r // there is room for each step; the next begins with the next look
}

func (m *Requests) End(why string) { m.end(event.ReasonVanished, why) }

// end closes the answer. What was not begun is not done.
func (m *Requests) end(r event.Reason, detail string) {
	if m.results == nil {
		return
	}
	ok := r == event.ReasonDone && !m.failed
	if m.failed && r == event.ReasonDone {
		r = event.ReasonError
	}
	m.results <- control.Result{Task: -1, OK: ok, Reason: r, Detail: detail, Done: true}
	close(m.results)
	m.results, m.todo = nil, nil
}

// checkpoint signals trainers, by the signal that was named or the run's own.
func (m *Requests) checkpoint(cmd control.Command) (<-chan control.Result, error) {
	a := m.set
	name := cmp.Or(cmd.Signal, a.Settings.CheckpointSignal)
	if name == "" {
		return nil, &control.Refused{
			Reason: event.ReasonUnsupported, Detail: "no signal is known that asks for a checkpoint",
			Hint: "name one, as checkpoint --signal USR1 does, or start the run with --checkpoint-signal",
		}
	}
	r, err := event.AskBySignal(name)
	if err != nil {
		refused := &control.Refused{Reason: event.ReasonUnsupported, Detail: "cannot send the signal: " + err.Error()}
		if bad := (*event.RuleError)(nil); errors.As(err, &bad) {
			refused.Detail, refused.Hint = fmt.Sprintf("cannot send %q: %s", bad.Part, bad.Why), bad.Hint
		}
		return nil, refused
	}
	list, h := signalling{a.Env}.receiversAmong(r, nil, func(pid int) bool {
		_, ok := a.wanted(&cmd, pid)
		return ok
	})
	if len(list) == 0 {
		refused := &control.Refused{Reason: h.Reason, Detail: strings.TrimSuffix(string(h.Reason)+": "+h.Detail, ": ")}
		if len(cmd.Ranks) > 0 {
			refused.Detail = text.Named("rank", cmd.Ranks) + ": " + refused.Detail
		}
		if h.Reason == event.ReasonNotCaught {
			refused.Hint = "the training must have a handler for it, and no other was asked; checkpoint --signal names another signal"
		}
		return nil, refused
	}
	sig, _, _ := r.Signal()
	b := m.bindingNow()
	cmd.Signal = name
	d := m.decide(&cmd, &b)
	c := make(chan control.Result, len(list)+1)
	all := true
	for _, p := range list {
		res := Signal(a.Kill, []*rss.Proc{p}, sig, "")
		all = all && res.OK
		c <- control.Result{PID: p.ID.PID, Task: a.Ranks.Task(p.ID.PID), OK: res.OK, Reason: res.Reason, Detail: res.Detail}
	}
	reason := event.ReasonDone
	if !all {
		reason = event.ReasonError
	}
	o := event.Outcome{Decision: d.ID, OK: all, Reason: reason, Detail: h.Detail, Before: b.Used, After: b.Used}
	a.Tell.Outcome(&d, &o)
	c <- control.Result{Task: -1, OK: all, Reason: reason, Detail: h.Detail, Done: true}
	close(c)
	return c, nil
}

// noTarget is the refusal of a command that no process can carry out.
func (m *Requests) noTarget(cmd *control.Command) *control.Refused {
	a := m.set
	who := ""
	if len(cmd.Ranks) > 0 {
		who = text.Named("rank", cmd.Ranks) + ": "
	}
	why := m.whyNone(cmd)
	if len(why) > 3 {
		why = append(why[:3], "and more like it")
	}
	r := &control.Refused{
		Reason: event.ReasonNoWorker,
		Detail: fmt.Sprintf("%sno process to %s: %s", who, cmd.Do, strings.Join(why, "; ")),
	}
	byHand := "rsswarden trim --pid PID"
	if _, ok := a.Limits.Job(); ok {
		byHand = "rsswarden trim without --rank, on the node,"
	}
	r.Hint = "it takes a PyTorch DataLoader or a pool that the hook can reach: rsswarden doctor -- PYTHON tells whether it can"
	if does, ok := a.all[cmd.Do].(commanded); ok && does.instead() != "" {
		r.Hint = fmt.Sprintf(does.instead(), byHand)
	}
	return r
}

// whyNone says for each trainer in scope why it and its workers cannot, and
// where there is none, why no loader is known.
func (m *Requests) whyNone(cmd *control.Command) []string {
	a := m.set
	var all []string
	add := func(pid int, why string) {
		if why = fmt.Sprintf("process %d: %s", pid, why); !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	met := false
	for _, t := range a.Workers.Trainers() {
		_, ok := a.wanted(&control.Command{Ranks: cmd.Ranks}, t.ID.PID)
		if !ok {
			continue
		}
		switch {
		case t.Off:
			met = true
			add(t.ID.PID, "hook off: "+t.OffWhy)
		case len(t.Loaders) > 0:
			met = true
		}
		for _, l := range t.Loaders {
			switch {
			case t.Off:
			case len(cmd.PIDs) > 0 && !slices.ContainsFunc(l.Workers, func(pid int) bool { return slices.Contains(cmd.PIDs, pid) }):
			case cmd.Do != event.ActionRecycle:
			case l.NumWorkers == 0:
				add(t.ID.PID, "its DataLoader has no workers (num_workers=0)")
			case !t.CanRecycle && !l.Pool:
				add(t.ID.PID, t.Why)
			case !l.CanRecycle:
				add(t.ID.PID, l.Why)
			}
		}
	}
	switch {
	case len(all) > 0:
		return all
	case len(cmd.PIDs) > 0:
		for _, pid := range cmd.PIDs {
			all = append(all, fmt.Sprintf("process %d is no worker of a loader or pool that can", pid))
		}
		return all
	case met:
		return []string{"no worker of a DataLoader or pool is there now"}
	}
	return []string{"hook off: " + a.NoHook()}
}
