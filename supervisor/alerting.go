package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file has receivers of --alert told which rungs are crossed.

// alerting is the loop's side of it.
type alerting struct {
	sender *alert.Sender // nil without --alert, and in a dry run
	// step is the step that what is of none counts as: that of who led first, so that
	// alerts go on under the same labels where another leads.
	step string
	told map[string]bool // in a dry run, by ID
	wait func()          // for the last answers; nil before the end
}

// startAlerts begins to tell receivers.
func (w *watcher) startAlerts() {
	if w.alerts.step == "" {
		w.alerts.step = w.peers.me.Step
	}
	w.alerts.told = map[string]bool{}
	if !w.Settings.DryRun {
		w.alerts.sender = w.newSender()
	}
}

func (w *watcher) newSender() *alert.Sender {
	s := &w.Settings
	if len(s.Alerts) == 0 {
		return nil
	}
	p := &alert.Program{Path: s.AlertProgram, Start: w.Link.Start}
	p.Env = slices.DeleteFunc(hold.Environ(), func(v string) bool { return strings.HasPrefix(v, alertVariables) })
	return alert.New(alert.Options{Targets: s.Alerts, Token: s.AlertToken, TokenFile: s.AlertTokenFile, Send: p.Send, Leave: p.Leave})
}

// alertVariables are those that may hold secrets: who needs them is told by us.
const alertVariables = "RSSWARDEN_ALERT"

// raise says which rungs are crossed now. It comes before the actions of a step, and
// waits for nobody.
func (w *watcher) raise() {
	s := &w.Settings
	if len(s.Alerts) == 0 && !s.AlertComment {
		return
	}
	var current []alert.Alert
	var first *event.Limit
	for _, r := range w.ladder.Raised(w.readings) {
		if r.Limit == nil {
			continue // it is not there any more, or has another name now
		}
		a := w.alertOf(&r)
		a.Since = time.Now().Add(r.Since - w.now())
		current = append(current, a)
		if first == nil && r.Rule.Action == event.ActionWarn && r.Name.Memory() {
			first = r.Limit
		}
	}
	w.comment(first)
	if w.alerts.sender != nil {
		w.alerts.sender.Hold(w.tight())
		w.alerts.sender.Set(current)
		return
	}
	was := w.alerts.told
	w.alerts.told = map[string]bool{}
	for i := range current {
		a := &current[i]
		if w.alerts.told[a.ID()] = true; len(s.Alerts) > 0 && !was[a.ID()] {
			w.voice.say(w.now(), "alert", fmt.Sprintf("would tell %s: %s fires (%s), %s (dry run)", receivers(s.Alerts), a.Name(), a.Severity(), a.Summary))
		}
	}
}

// carrierRoom is what must be left before a limit that kills, for the process that
// carries an alert: some 8 MiB of RSS, of which 1 MiB is no page cache, and as much
// again. An alert must not be what ends the job.
const carrierRoom = 24 * rss.MiB

// tight says that less is left. Of all that kills only what counts that process too.
func (w *watcher) tight() bool {
	return slices.ContainsFunc(w.readings, func(l event.Limit) bool {
		return (l.Name == event.LimitCgroup || l.Name == event.LimitSlurm) && l.Limit > 0 && l.Limit.Sub(max(l.Used, l.UsedMax)) < carrierRoom
	})
}

func receivers(targets []alert.Target) string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// alertOf makes the alert of a rung.
func (w *watcher) alertOf(r *policy.Raised) alert.Alert {
	a := alert.Alert{
		Job: w.alertJob(), Node: slurm.NodeName(w.Lookup), Limit: r.Name, Scope: r.Scope, Rung: r.Rule.Cond.String(),
		ETA: r.Rule.Cond.Kind == policy.KindETA, Action: r.Rule.Action, Step: w.alertStep(r),
	}
	if a.Job == "" {
		a.Run = w.Settings.RunID // two runs on a node are two
	}
	whose := "run " + a.Run
	if a.Job != "" {
		whose = "job " + a.Job
	}
	l := r.Limit
	if l == nil {
		a.Summary = whose + " on " + a.Node
		a.Text = "the rung " + a.Rung + " of the limit " + string(a.Limit)
		return a
	}
	d := event.Decision{Limit: l.Name, Used: l.Used, LimitSize: l.Limit, ETA: l.ETA}
	a.Used, a.Size, a.Left = l.Used, l.Limit, l.ETA
	a.Summary = whose + " on " + a.Node + ": " + occasion(&d, l) + forecast(&d)
	if l.Name == event.LimitTime {
		a.Used, a.Size = 0, 0
		a.Text = "Slurm ends the job then"
	} else {
		a.Text = fmt.Sprintf("%s of %s are used, %s are left", l.Name.Amount(l.Used), l.Name.Amount(l.Limit), l.Name.Amount(l.Headroom()))
	}
	a.Text += fmt.Sprintf("; the rule at %s has the action %s", a.Rung, a.Action)
	return a
}

// alertJob is the job, empty outside Slurm. Who only stands by has no limits, and so
// no name for it from there.
func (w *watcher) alertJob() string {
	if w.limits == nil {
		if job := RecordJob(w.Lookup); job != nil {
			return job.ID
		}
		return ""
	}
	job, _, _ := strings.Cut(w.jobName(), ".") // of a step that we attached to
	return job
}

// alertStep is the step that a limit is of, empty for one of more than that.
func (w *watcher) alertStep(r *policy.Raised) string {
	if _, step, ok := strings.Cut(r.Level, "."); ok && r.Name == event.LimitSlurm && !strings.HasPrefix(r.Level, "/") {
		return step // see partName
	}
	if strings.HasPrefix(r.Level, "/") {
		for name := range strings.SplitSeq(r.Level, "/") {
			if step, ok := strings.CutPrefix(name, "step_"); ok {
				return step
			}
		}
		return ""
	}
	switch r.Scope {
	case event.ScopeStep, event.ScopeTree, event.ScopeProcess:
		return w.alerts.step
	}
	return ""
}

// endAlerts resolves what fires, where nobody goes on for us: else the alerts are
// the next leader's, who tells of the same ones.
func (w *watcher) endAlerts(alone bool) {
	if s := w.alerts.sender; s != nil {
		w.alerts.wait = s.Close(alone)
	}
}

// lastAlerts waits for those who have always answered, for a moment, and says what
// was not told.
func (w *watcher) lastAlerts() {
	if w.alerts.wait == nil {
		return
	}
	w.alerts.wait()
	for _, r := range w.alerts.sender.Standing() {
		n := r.Lost + r.Dropped
		if r.Failing {
			n += r.Untold
		}
		if n > 0 {
			w.Log.Warn(fmt.Sprintf("alert: %v was not told how %s stood: %s", r.Target, event.Many(n, "alert"), r.Error))
		}
	}
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
	w.alerts.step = m.Step
	var current []alert.Alert
	for i := range m.Rungs {
		e := &m.Rungs[i]
		rule, err := policy.ParseRule(e.Rule)
		if err != nil || !e.Fired || e.Quiet {
			continue
		}
		a := w.alertOf(&policy.Raised{Rule: rule, Name: e.Limit, Scope: e.Scope, Level: e.Level})
		a.Since = time.Now().Add(e.At - bootTime())
		current = append(current, a)
	}
	if len(current) == 0 {
		return
	}
	if w.alerts.sender = w.newSender(); w.alerts.sender != nil {
		w.alerts.sender.Set(current)
		w.endAlerts(true)
	}
}

// alertStanding tells how the receivers stand.
func (w *watcher) alertStanding() (all []control.Alerts) {
	for _, r := range w.alerts.sender.Standing() {
		c := control.Alerts{
			Receiver: r.Target.String(), Firing: r.Firing, Sent: r.Sent, Failed: r.Failed, Overtaken: r.Overtaken,
			Lost: r.Lost + r.Dropped, Untold: r.Untold, Held: r.Held && r.Untold > 0, Failing: r.Failing, Error: r.Error,
		}
		if !r.SentAt.IsZero() {
			c.SentAt = &r.SentAt
		}
		if !r.FailedAt.IsZero() {
			c.FailedAt = &r.FailedAt
		}
		all = append(all, c)
	}
	return all
}
