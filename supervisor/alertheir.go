package supervisor

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file has alerts go on where another leads.

// alertIDs tells one set of alerts from another.
func alertIDs(all []alert.Alert) string {
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID()
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// rememberAlerts are alerts for who leads next, at now by the clock of both.
func rememberAlerts(open []alert.Alert, now time.Duration) (all []policy.AlertMemory) {
	for i := range open {
		a := &open[i]
		all = append(all, policy.AlertMemory{
			Limit: a.Limit, Scope: a.Scope, Rung: a.Rung, ETA: a.ETA, Action: a.Action, Step: a.Step, Since: max(now-time.Since(a.Since), 1),
		})
	}
	return all
}

// inheritedAlerts are those that the leader before us has left open, with its labels.
func (w *watcher) inheritedAlerts() []alert.Alert {
	now, clock := time.Now(), bootTime()
	all := make([]alert.Alert, 0, len(w.alerts.inherited))
	for i := range w.alerts.inherited {
		m := &w.alerts.inherited[i]
		a := alert.Alert{
			Job: w.alertJob(), Run: w.alerts.run, Node: slurm.NodeName(w.Lookup), Limit: m.Limit, Scope: m.Scope,
			Rung: m.Rung, ETA: m.ETA, Action: m.Action, Step: m.Step, Since: now.Add(min(m.Since-clock, 0)),
		}
		a.Summary = w.whose(&a) + " on " + a.Node
		a.Text = "the rung " + a.Rung + " of the limit " + string(a.Limit)
		all = append(all, a)
	}
	return all
}

// resolveLeft resolves what the leader before us has told of, where the lead fell to
// us and there is nothing left to lead: our command has ended, and nobody else's
// lives.
func (w *watcher) resolveLeft() {
	p := &w.peers
	if !p.heir || p.post == nil || w.Settings.DryRun || len(w.Settings.Alerts) == 0 {
		return
	}
	data, err := p.post.Kept()
	if err != nil || data == nil {
		return
	}
	m, err := policy.ParseMemory(data)
	members, _, merr := p.post.Members()
	if err != nil || merr != nil {
		return
	}
	for i := range members {
		if m := &members[i]; m.Ended == nil && m.Holder != p.me.Holder {
			return
		}
	}
	w.alerts.step, w.alerts.run, w.alerts.inherited = m.Step, m.Run, m.Alerts
	if len(m.Alerts) == 0 {
		return
	}
	if w.alerts.sender = w.newSender(); w.alerts.sender != nil {
		w.alerts.sender.Inherit(w.inheritedAlerts())
		w.endAlerts(true)
	}
}
