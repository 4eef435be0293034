package supervisor

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// serving is the loop's side of the control socket.
type serving struct {
	server *control.Server
	asks   chan func() // answered by the loop; nil where nobody can ask
	gone   chan struct{}
	last   []control.Outcome // the newest outcomes, the newest first
	manual manual
}

// serve opens the control socket. Where that fails nobody can ask.
func (w *watcher) serve() {
	p := &w.peers
	if p.post == nil {
		return
	}
	w.serving.asks, w.serving.gone = make(chan func()), make(chan struct{})
	var err error
	if w.serving.server, err = control.Listen(p.post.Dir(), control.SocketName, source{w}); err != nil {
		w.fault("control", err)
	}
}

// serveNoMore closes the socket, before another watcher opens its own.
func (w *watcher) serveNoMore() {
	if w.serving.server == nil {
		return
	}
	close(w.serving.gone)
	w.tell.Clients.Close()
	w.serving.manual.end(event.ReasonVanished, "the run has ended")
	w.serving.server.Close()
	w.serving.server = nil
}

// source is the watcher as the server sees it. It touches nothing of the loop's but
// by questions.
type source struct{ w *watcher }

// ask has the loop answer a question.
func ask[T any](ctx context.Context, of *serving, question func() (T, error)) (T, error) {
	type answered struct {
		value T
		err   error
	}
	c, asks := make(chan answered, 1), of.asks
	for {
		var a answered
		select {
		case asks <- func() {
			v, err := question()
			c <- answered{v, err}
		}:
			asks = nil // the answer comes now
			continue
		case a = <-c:
		case <-ctx.Done():
			a.err = ctx.Err()
		case <-of.gone:
			a.err = tell.ErrEnded
		}
		return a.value, a.err
	}
}

// Status implements [control.Source].
func (s source) Status(ctx context.Context) (*control.Status, error) {
	return ask(ctx, &s.w.serving, func() (*control.Status, error) { return s.w.standing(), nil })
}

// Do implements [control.Source].
func (s source) Do(ctx context.Context, cmd control.Command) (<-chan control.Result, error) {
	return ask(ctx, &s.w.serving, func() (<-chan control.Result, error) { return s.w.obeyClient(ctx, cmd) })
}

// Events implements [control.Source].
func (s source) Events(ctx context.Context) (<-chan []byte, error) {
	return s.w.tell.Clients.Add(ctx)
}

// standing is the status as of the last full look.
func (w *watcher) standing() *control.Status {
	p := &w.peers
	st := &control.Status{
		V: control.Version, Time: w.view.Sample.At, Node: w.tell.Run.Node, Leader: w.Self, Version: w.Settings.Version,
		Since: w.started.Add(p.from), Limits: slices.Clone(w.view.Limits), Gaps: w.view.Sample.Gaps,
		Rules: w.Settings.RuleTexts(), DryRun: w.Settings.DryRun, Last: slices.Clone(w.serving.last),
		Ranks: []control.Rank{}, Procs: []control.Proc{}, Alerts: w.tell.Alerts.Standing(),
	}
	if job, ok := w.limits.Job(); ok {
		st.Job = job.ID
	}
	if f := w.flight; f != nil {
		a := &control.Action{Action: f.decision.Action, Rule: f.decision.Rule, Since: w.started.Add(f.began)}
		for i := range f.acted.Procs {
			a.PIDs = append(a.PIDs, f.acted.Procs[i].ID.PID)
		}
		st.Action = a
	}
	all := append([]node.Member{p.me}, p.others...)
	slices.SortStableFunc(all, func(a, b node.Member) int { return cmp.Or(cmp.Compare(a.Step, b.Step), a.Task-b.Task) })
	at := map[int]int{} // index in Ranks by PID of the command
	for i := range all {
		m := &all[i]
		at[m.Command.PID] = len(st.Ranks)
		st.Ranks = append(st.Ranks, control.Rank{
			Task: m.Task, Step: m.Step, PID: m.Command.PID, Holder: m.Holder.PID, Watcher: m.Watcher.PID, Leads: m.Holder == p.me.Holder,
			Command: strings.Join(m.Words, " "), Since: m.Since, Recycled: w.serving.manual.recycled[m.Holder], Hook: "off", Why: w.noHookWhy(),
		})
	}
	lineage := view.Lineage(w.view.Sample.Procs)
	able := map[int]bool{}
	for _, u := range w.workers.Recyclable(event.AccountingCgroup) {
		able[u.ID.PID] = true
	}
	trims := map[int]bool{}
	if w.loader != nil && w.Settings.Trim.Hook() {
		for _, m := range w.workers.Mappers(event.AccountingRSS) {
			trims[m.ID.PID] = true
		}
	}
	for i := range w.view.Sample.Procs {
		q := &w.view.Sample.Procs[i]
		r := lineage.Rank(q.ID.PID, at)
		c := w.procStatus(q)
		c.CanRecycle, c.CanTrim = able[q.ID.PID], trims[q.ID.PID]
		if r >= 0 {
			k := &st.Ranks[r]
			c.Task, c.Step = k.Task, k.Step
			k.Growth += c.Growth
			k.RSS, k.Anon, k.File, k.Shmem, k.Procs = k.RSS+q.RSS, k.Anon+q.Anon, k.File+q.File, k.Shmem+q.Shmem, k.Procs+1
			if q.Role == rss.RoleWorker {
				k.Workers++
			}
		}
		st.Procs = append(st.Procs, c)
	}
	for _, t := range w.workers.Trainers() {
		q := w.view.Sample.Find(t.ID.PID)
		if q == nil {
			continue
		}
		if r := lineage.Rank(q.ID.PID, at); r >= 0 {
			k := &st.Ranks[r]
			k.Hook, k.Why = "trim", t.Why
			switch {
			case t.Off:
				k.Hook, k.Why = "off", t.OffWhy
			case t.CanRecycle:
				k.Hook, k.Why = "recycle", ""
			}
		}
	}
	st.Ours = w.ours()
	return st
}

func (w *watcher) procStatus(p *rss.Proc) control.Proc {
	c := control.Proc{
		PID: p.ID.PID, Start: p.ID.Start, Parent: p.Parent, Role: p.Role, Task: -1, Step: w.pop.Step(p.ID),
		Comm: p.Comm, State: string(rune(p.State)), RSS: p.RSS, Anon: p.Anon, File: p.File, Shmem: p.Shmem, Threads: p.Threads,
	}
	if p.PSS != nil {
		low, _ := p.PSSRange()
		c.PSS, c.Age = &low, max(w.view.Sample.Mono-p.PSS.At, 0).Seconds()
	}
	maps, fds := w.counts.Of(p.ID)
	c.Maps, c.FDs = uint64(max(maps, 0)), uint64(max(fds, 0))
	c.Growth = w.serving.manual.growth(w.now(), p)
	return c
}

// noHook is why no loader can be asked for anything, where it is not told more closely.
const noHook = "no loader hook"

func (w *watcher) noHookWhy() string {
	if w.loader != nil {
		return w.workers.NoHello()
	}
	return cmp.Or(w.Able.Hook, noHook)
}

// remember keeps the newest outcomes for who asks.
func (w *watcher) remember(d *event.Decision, o event.Outcome) {
	const most = 8
	kept := control.Outcome{Outcome: o, Action: d.Action, Arg: d.Arg, Rule: d.Rule, By: d.By}
	w.serving.last = append([]control.Outcome{kept}, w.serving.last...)
	w.serving.last = w.serving.last[:min(len(w.serving.last), most)]
}

// growthKept is how far back the growth of a process is looked for.
const growthKept = time.Minute
