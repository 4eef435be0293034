package supervisor

import (
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// serve opens the control socket. Where that fails nobody can ask.
func (w *watcher) serve() {
	if !w.node.Joined() {
		return
	}
	if err := w.tell.Status.Serve(w.node.Dir()); err != nil {
		w.fault("control", err)
	}
}

// serveNoMore closes the socket, before another watcher opens its own.
func (w *watcher) serveNoMore() {
	w.acts.EndRequest("the run has ended")
	w.tell.Status.Close()
}

// answerClient answers what a client asks.
func (w *watcher) answerClient(r tell.Request) {
	if r.Command != nil {
		r.Begun(w.acts.Obey(r.Context, *r.Command))
		w.tell.Status.Changed()
		return
	}
	w.tell.Status.Answer(r, w.now(), w.standing())
}

// standing is what the status is made of.
func (w *watcher) standing() *tell.Standing {
	p := w.node
	st := &tell.Standing{
		Since: w.started.Add(p.From), View: w.view, Rules: w.Settings.RuleTexts(), DryRun: w.Settings.DryRun,
		Trainers: w.observe.Workers.Trainers(), NoHook: w.acts.NoHook(), Recyclable: map[int]bool{}, Trimmable: map[int]bool{},
		Step: w.observe.Pop.Step, Counts: w.observe.Counts.Of, Ours: w.tell.Costs(w.now()), Alerts: w.tell.Alerts.Standing(),
	}
	if job, ok := w.observe.Limits.Job(); ok {
		st.Job = job.ID
	}
	if f := w.acts.InFlight(); f != nil {
		st.Action = &control.Action{Action: f.Decision.Action, Rule: f.Decision.Rule, Since: w.started.Add(f.Began)}
		for i := range f.Acted.Procs {
			st.Action.PIDs = append(st.Action.PIDs, f.Acted.Procs[i].ID.PID)
		}
	}
	for _, m := range append([]node.Member{p.Me}, p.Others...) {
		st.Ranks = append(st.Ranks, control.Rank{
			Task: m.Task, Step: m.Step, PID: m.Command.PID, Holder: m.Holder.PID, Watcher: m.Watcher.PID, Leads: m.Holder == p.Me.Holder,
			Command: strings.Join(m.Words, " "), Since: m.Since, Recycled: w.tell.Status.Recycled(m.Holder),
		})
	}
	for _, u := range w.observe.Workers.Recyclable(event.AccountingCgroup) {
		st.Recyclable[u.ID.PID] = true
	}
	if w.observe.Loader != nil && w.Settings.Trim.Hook() {
		for _, m := range w.observe.Workers.Mappers(event.AccountingRSS) {
			st.Trimmable[m.ID.PID] = true
		}
	}
	return st
}
