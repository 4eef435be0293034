package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// manualIDs is where the numbers of such decisions begin, far above the ladder's.
const manualIDs = 1 << 50

// manual is the command that is being carried out, if any.
type manual struct {
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

// target is one step of a command: a worker, or all processes of a rank.
type target struct {
	task int
	pids []int
}

// manualPatience bounds how long a step may wait for the ladder's own action.
const manualPatience = 90 * time.Second

// obeyClient begins a command.
func (w *watcher) obeyClient(ctx context.Context, cmd control.Command) (<-chan control.Result, error) {
	m := &w.serving.manual
	refuse := func(r event.Reason, format string, args ...any) (<-chan control.Result, error) {
		return nil, &control.Refused{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	for _, task := range cmd.Ranks {
		if _, ok := w.node.Numbered(task); !ok {
			return refuse(event.ReasonNotWatched, "no rank %d on this node", task)
		}
	}
	for _, pid := range cmd.PIDs {
		if w.view.Sample.Find(pid) == nil {
			return refuse(event.ReasonNotWatched, "process %d is none that is watched here", pid)
		}
	}
	if m.results != nil {
		return refuse(event.ReasonOccupied, "%s is being carried out, which somebody asked for %s ago", m.cmd.Do, text.Span(w.now()-m.since))
	}
	if w.Settings.DryRun {
		return refuse(event.ReasonDryRun, "this run has --dry-run, nothing is done in it")
	}
	var todo []target
	switch targets := performers[cmd.Do].targets; {
	case cmd.Do == event.ActionSignal:
		return w.checkpoint(cmd)
	case targets == nil:
		return refuse(event.ReasonUnsupported, "%s cannot be asked for", cmd.Do)
	default:
		todo = targets(w, &cmd)
	}
	if len(todo) == 0 {
		return nil, w.nobodyTo(&cmd)
	}
	c := make(chan control.Result, len(todo)+1)
	m.cmd, m.ctx, m.results, m.todo, m.failed, m.since = cmd, ctx, c, todo, false, w.now()
	w.goOn()
	return c, nil
}

// wanted says that a command means a process.
func (w *watcher) wanted(cmd *control.Command, pid int) (task int, ok bool) {
	task = w.owner(pid).Task
	switch {
	case len(cmd.PIDs) > 0:
		return task, slices.Contains(cmd.PIDs, pid)
	case len(cmd.Ranks) > 0:
		return task, slices.Contains(cmd.Ranks, task)
	}
	return task, true
}

// recycleTargets are the workers that can be recycled, one of each rank in turn.
func (w *watcher) recycleTargets(cmd *control.Command) []target {
	byTask := map[int][]target{}
	var tasks []int
	for _, u := range w.observe.Workers.Recyclable(event.AccountingCgroup) {
		pid := u.ID.PID
		if u.Trainer == 0 {
			continue // a pool's worker gets a signal, which only its own options ask for
		}
		task, ok := w.wanted(cmd, pid)
		if !ok {
			continue
		}
		if byTask[task] == nil {
			tasks = append(tasks, task)
		}
		byTask[task] = append(byTask[task], target{task, []int{pid}})
	}
	slices.Sort(tasks)
	var todo []target
	for more := true; more; {
		more = false
		for _, task := range tasks {
			if list := byTask[task]; len(list) > 0 {
				todo, byTask[task], more = append(todo, list[0]), list[1:], true
			}
		}
	}
	return todo
}

// hookTargets are those of the processes that a command means, by rank.
func (w *watcher) hookTargets(cmd *control.Command, pids []int) []target {
	if w.observe.Loader == nil {
		return nil
	}
	var todo []target
	for _, pid := range pids {
		task, ok := w.wanted(cmd, pid)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(todo, func(t target) bool { return t.task == task }); i >= 0 {
			todo[i].pids = append(todo[i].pids, pid)
		} else {
			todo = append(todo, target{task, []int{pid}})
		}
	}
	slices.SortFunc(todo, func(a, b target) int { return a.task - b.task })
	return todo
}

// goOn begins the next step of a command where nothing else is being done.
func (w *watcher) goOn() {
	m := &w.serving.manual
	switch {
	case m.results == nil:
		return
	case m.ctx.Err() != nil:
		m.todo = nil // who asked has gone: what was begun goes on, no more is
		if w.flight == nil || !w.flight.manual {
			m.end(event.ReasonError, "")
		}
		return
	case w.flight != nil:
		switch {
		case w.flight.manual:
		case m.waits == 0:
			m.waits = w.now()
		case w.now()-m.waits > manualPatience:
			m.end(event.ReasonOccupied, "the ladder does not come to rest")
		}
		return
	case len(m.todo) == 0:
		m.end(event.ReasonDone, "")
		return
	}
	t := m.todo[0]
	m.todo, m.at, m.waits = m.todo[1:], t, 0
	f := &inFlight{began: w.now(), manual: true}
	f.actOn(&w.view.Sample, t.pids)
	f.before = w.bindingNow()
	m.id++
	f.decision = event.Decision{
		ID: manualIDs + m.id, Rule: event.AskedFor, Limit: f.before.Name, Action: m.cmd.Do,
		Used: f.before.Used, LimitSize: f.before.Limit, By: m.cmd.By,
	}
	w.tell.Put(event.NameDecision, func(h event.Head) any { f.decision.Head = h; return f.decision })
	w.flight, w.said, w.came = f, nil, arrivals{}
	performers[m.cmd.Do].beginFor(w, f, t.pids)
}

// bindingNow is the limit that is nearest, for what a decision of nobody's rule is
// measured by.
func (w *watcher) bindingNow() event.Limit {
	if w.view.Watched >= 0 {
		return w.view.Limits[w.view.Watched]
	}
	for i := range w.view.Limits {
		if w.view.Limits[i].Name.Memory() {
			return w.view.Limits[i]
		}
	}
	return event.Limit{Name: event.LimitNode, Accounting: event.AccountingRSS}
}

// stepDone tells who asked what came of a step.
func (w *watcher) stepDone(f *inFlight, o *event.Outcome) {
	m := &w.serving.manual
	if m.results == nil {
		return
	}
	r := control.Result{
		Task: m.at.task, OK: o.OK, Reason: o.Reason, Detail: o.Detail, Paused: o.Paused, Duration: o.Duration,
		Freed: w.observe.Workers.GivenBack(&f.acted, &f.before),
	}
	if len(m.at.pids) == 1 {
		r.PID = m.at.pids[0]
	}
	m.failed = m.failed || !o.OK
	m.results <- r // there is room for each step; the next begins with the next look
}

// end closes the answer. What was not begun is not done.
func (m *manual) end(r event.Reason, detail string) {
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
func (w *watcher) checkpoint(cmd control.Command) (<-chan control.Result, error) {
	name := cmd.Signal
	if name == "" {
		name = w.Settings.CheckpointSignal
	}
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
	list, h := w.receiversAmong(r, nil, func(pid int) bool {
		_, ok := w.wanted(&cmd, pid)
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
	m := &w.serving.manual
	m.id++
	b := w.bindingNow()
	d := event.Decision{
		ID: manualIDs + m.id, Rule: event.AskedFor, Limit: b.Name, Action: event.ActionSignal, Arg: name,
		Used: b.Used, LimitSize: b.Limit, By: cmd.By,
	}
	w.tell.Put(event.NameDecision, func(h event.Head) any { d.Head = h; return d })
	c := make(chan control.Result, len(list)+1)
	all := true
	for _, p := range list {
		res := action.Signal(w.kill, []*rss.Proc{p}, sig, "")
		all = all && res.OK
		c <- control.Result{PID: p.ID.PID, Task: w.owner(p.ID.PID).Task, OK: res.OK, Reason: res.Reason, Detail: res.Detail}
	}
	reason := event.ReasonDone
	if !all {
		reason = event.ReasonError
	}
	o := event.Outcome{Decision: d.ID, OK: all, Reason: reason, Detail: h.Detail, Before: b.Used, After: b.Used}
	w.tell.Outcome(&d, &o)
	c <- control.Result{Task: -1, OK: all, Reason: reason, Detail: h.Detail, Done: true}
	close(c)
	return c, nil
}
