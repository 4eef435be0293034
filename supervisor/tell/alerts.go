package tell

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Alerts tells the receivers of --alert which rungs are crossed. In a dry run a line says
// what they would get.
type Alerts struct {
	Comment Comment
	out     *events
	opt     AlertOptions
	// step and run are labels: the step that a limit of none counts as, and the run; those
	// of who led first, so that receivers see no difference.
	step, run string
	inherited []policy.AlertMemory // what that one has left open
	sender    *alert.Sender        // nil without receivers, and in a dry run
	would     string               // … whose receivers these are
	fired     map[string]bool
	wait      func() // for the last answers; nil before the end
}

// AlertOptions say how alerts are sent, beside the settings.
type AlertOptions struct {
	Environ    []string              // of the program that carries them
	Start      func(*exec.Cmd) error // starts it, and scontrol
	Job        string                // the label, empty outside Slurm
	CommentJob string                // whose comment is ours to write, empty for none
	Step       string                // of our command
}

// Inherit takes over what a leader before has left open, with its labels. It comes before
// [Alerts.Open].
func (a *Alerts) Inherit(m *policy.Memory) { a.step, a.run, a.inherited = m.Step, m.Run, m.Alerts }

// Remember adds to m what [Alerts.Inherit] takes.
func (a *Alerts) Remember(m *policy.Memory) {
	m.Step, m.Run = a.step, a.run
	for _, o := range a.sender.Open() {
		m.Alerts = append(m.Alerts, policy.AlertMemory{
			Limit: o.Limit, Scope: o.Scope, Rung: o.Rung, ETA: o.ETA, Action: o.Action, Step: o.Step, Since: max(m.At-time.Since(o.Since), 1),
		})
	}
}

// Open begins to tell receivers. clock is the time since boot.
func (a *Alerts) Open(opt AlertOptions, clock time.Duration) {
	a.opt = opt
	if a.step == "" {
		a.step = opt.Step
	}
	if a.run == "" {
		a.run = a.out.Run.Label()
	}
	s := a.out.set
	a.Comment.start = opt.Start
	if s.AlertComment {
		a.Comment.job = opt.CommentJob
	}
	switch {
	case len(s.Alerts) == 0:
		return
	case s.DryRun:
		names := make([]string, len(s.Alerts))
		for i, t := range s.Alerts {
			names[i] = t.String()
		}
		a.would = strings.Join(names, ", ")
		return
	}
	p := alert.NewProgram(s.AlertProgram, opt.Environ, opt.Start)
	a.sender = alert.New(alert.Options{
		Targets: s.Alerts, Token: s.AlertToken, TokenFile: s.AlertTokenFile, Send: p.Send, Leave: p.Leave,
		Fault: func(text string) { a.out.failed.tell("alert", text) },
	})
	if open := a.left(clock); len(open) > 0 {
		a.sender.Inherit(open)
	}
}

// left are the alerts that the leader before us has left open.
func (a *Alerts) left(clock time.Duration) (all []alert.Alert) {
	now := time.Now()
	for i := range a.inherited {
		m := &a.inherited[i]
		one := a.newAlert(m.Limit, m.Scope, m.Rung)
		one.ETA, one.Action, one.Step, one.Since = m.ETA, m.Action, m.Step, now.Add(min(m.Since-clock, 0))
		one.Summary = a.whose()
		one.Text = "the rung " + one.Rung + " of the limit " + string(one.Limit)
		all = append(all, one)
	}
	return all
}

func (a *Alerts) newAlert(l event.LimitName, scope event.Scope, rung string) alert.Alert {
	return alert.Alert{Job: a.opt.Job, Run: a.run, Node: a.out.Run.Node, Limit: l, Scope: scope, Rung: rung}
}

// whose says for people what alerts are about.
func (a *Alerts) whose() string {
	if a.opt.Job != "" {
		return "job " + a.opt.Job + " on " + a.out.Run.Node
	}
	return "run " + a.out.Run.ID + " on " + a.out.Run.Node
}

// Raise takes in the rungs that are crossed now. It comes before the actions of a step.
func (a *Alerts) Raise(now time.Duration, raised []policy.Raised, limits []event.Limit) {
	if len(a.out.set.Alerts) == 0 && a.Comment.job == "" {
		return
	}
	var current []alert.Alert
	var first *event.Limit
	for i := range raised {
		r := &raised[i]
		if r.Limit == nil {
			continue // it is not there any more, or has another name now
		}
		one := a.alertOf(r)
		one.Since = time.Now().Add(r.Since - now)
		current = append(current, one)
		if first == nil && r.Rule.Action == event.ActionWarn && r.Name.Memory() {
			first = r.Limit
		}
	}
	room := alert.HeadroomOf(limits)
	a.Comment.warning(now, first, room)
	if a.sender != nil {
		a.sender.SetHeadroom(room)
		a.sender.Set(current)
	}
	if a.would == "" {
		return
	}
	before := a.fired
	a.fired = map[string]bool{}
	for i := range current {
		c := &current[i]
		if a.fired[c.ID()] = true; !before[c.ID()] {
			a.out.Say(now, "alert", fmt.Sprintf("would alert %s: %s (%s), %s (dry run)", a.would, c.Name(), c.Severity(), c.Summary))
		}
	}
}

// alertOf makes the alert of a rung whose limit was read.
func (a *Alerts) alertOf(r *policy.Raised) alert.Alert {
	one := a.newAlert(r.Name, r.Scope, r.Rule.Cond.String())
	one.ETA, one.Action, one.Step = r.Rule.Cond.Kind == event.KindETA, r.Rule.Action, stepOf(r, a.step)
	l := r.Limit
	d := event.Decision{Limit: l.Name, Used: l.Used, LimitSize: l.Limit, ETA: l.ETA}
	one.Used, one.Size, one.Left = l.Used, l.Limit, l.ETA
	one.Summary = a.whose() + ": " + phrase.Occasion(&d, l) + phrase.Forecast(&d)
	if l.Name == event.LimitTime {
		one.Used, one.Size = 0, 0
		one.Text = "Slurm ends the job then"
	} else {
		one.Text = fmt.Sprintf("%s of %s are used, %s are left", l.Name.Amount(l.Used), l.Name.Amount(l.Limit), l.Name.Amount(l.Headroom()))
	}
	one.Text += fmt.Sprintf("; the rule at %s has the action %s", one.Rung, one.Action)
	return one
}

// stepOf is the step that a limit is of, empty for one of more than that; own is that of
// our command.
func stepOf(r *policy.Raised, own string) string {
	if _, step, ok := strings.Cut(r.Level, "."); ok && r.Name == event.LimitSlurm && !strings.HasPrefix(r.Level, "/") {
		return step // "46.batch", of several steps
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
		return own
	}
	return ""
}

// OpenIDs tells one set of open alerts from another: those that a receiver may believe to
// fire.
func (a *Alerts) OpenIDs() string {
	open := a.sender.Open()
	ids := make([]string, len(open))
	for i := range open {
		ids[i] = open[i].ID()
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// Close ends the alerts. What fires is resolved unless another leader goes on with it.
func (a *Alerts) Close(resolve bool) {
	if a.sender != nil {
		a.wait = a.sender.Close(resolve)
	}
}

// Receivers is the state of the receivers.
func (a *Alerts) Receivers() (all []control.Alerts) {
	for _, r := range a.sender.Receivers() {
		c := control.Alerts{
			Receiver: r.Target.String(), Firing: r.Firing, Sent: r.Sent, Failed: r.Failed,
			Lost: r.Lost, Untold: r.Untold, Held: r.Held && r.Untold+r.Firing > 0, Failing: r.Failing, Error: r.Error,
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

// Last waits a moment for receivers that have always answered, and writes what was
// not told or may not have been.
func (a *Alerts) Last() {
	if a.wait == nil {
		return
	}
	a.wait()
	for _, r := range a.sender.Receivers() {
		for _, text := range lastWordsOf(&r) {
			if r.Failing || r.Lost > 0 {
				a.out.Warn(text)
			} else {
				a.out.Info(text) // it has always answered, and may be slow
			}
		}
	}
}

// lastWordsOf tells of one receiver at the end.
func lastWordsOf(r *alert.ReceiverState) (all []string) {
	because := ""
	if r.Error != "" {
		because = ": " + r.Error
	}
	last := "the last state of " + text.Count(r.Untold, "alert")
	switch {
	case r.Untold == 0:
	case r.Asked && r.Failing:
		all = append(all, fmt.Sprintf("alert: %s was sent to %v without waiting; it failed before%s", last, r.Target, because))
	case r.Asked:
		all = append(all, fmt.Sprintf("alert: %s was sent to %v, which has not answered yet", last, r.Target))
	default:
		all = append(all, fmt.Sprintf("alert: %v did not get %s%s", r.Target, last, because))
	}
	if r.Lost > 0 {
		all = append(all, fmt.Sprintf("alert: %v did not get %s%s", r.Target, text.Count(r.Lost, "earlier state"), because))
	}
	return all
}
