package supervisor

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// alerting are the labels under which alerts go on where another leads.
type alerting struct {
	// step is the step that what is of none counts as, and run the run: those of who
	// led first.
	step, run string
	inherited []policy.AlertMemory // what that one has left open
}

// startAlerts begins to tell receivers.
func (w *watcher) startAlerts() {
	s := &w.Settings
	if w.alerts.step == "" {
		w.alerts.step = w.peers.me.Step
	}
	if w.alerts.run == "" {
		w.alerts.run = w.tell.Run.Label()
	}
	w.tell.Comment.Start, w.tell.Comment.DryRun = w.Link.Start, s.DryRun
	if s.DryRun {
		w.tell.Alerts.DryRun(s.Alerts)
		return
	}
	w.openAlerts()
}

func (w *watcher) openAlerts() {
	s := &w.Settings
	if len(s.Alerts) == 0 {
		return
	}
	p := alert.NewProgram(s.AlertProgram, hold.Environ(), w.Link.Start)
	w.tell.OpenAlerts(alert.Options{Targets: s.Alerts, Token: s.AlertToken, TokenFile: s.AlertTokenFile, Send: p.Send, Leave: p.Leave}, w.inheritedAlerts())
}

// whose says for people what an alert is about.
func (w *watcher) whose(a *alert.Alert) string {
	if a.Job != "" {
		return "job " + a.Job
	}
	return "run " + w.Settings.RunID
}

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
	now, room := w.now(), alert.RoomOf(w.readings)
	if s.AlertComment {
		w.commentWarning(now, first, room)
	}
	w.tell.Raise(now, current, room)
}

// alertOf makes the alert of a rung whose limit was read.
func (w *watcher) alertOf(r *policy.Raised) alert.Alert {
	a := alert.Alert{
		Job: w.alertJob(), Run: w.alerts.run, Node: w.tell.Run.Node, Limit: r.Name, Scope: r.Scope, Rung: r.Rule.Cond.String(),
		ETA: r.Rule.Cond.Kind == event.KindETA, Action: r.Rule.Action, Step: w.alertStep(r),
	}
	l := r.Limit
	d := event.Decision{Limit: l.Name, Used: l.Used, LimitSize: l.Limit, ETA: l.ETA}
	a.Used, a.Size, a.Left = l.Used, l.Limit, l.ETA
	a.Summary = w.whose(&a) + " on " + a.Node + ": " + phrase.Occasion(&d, l) + phrase.Forecast(&d)
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
		if job := w.tell.Run.Job; job != nil {
			return job.ID
		}
		return ""
	}
	job, _, _ := strings.Cut(w.pop.Name, ".") // of a step that we attached to
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

// commentsJob says that it is ours to write: of the first node who leads.
func (w *watcher) commentsJob() (id string, ok bool) {
	job, in := w.limits.Job()
	if !in || !w.Settings.AlertComment || w.Able.Comment != "" || job.NodeID != 0 || w.tell.Comment.Refused() {
		return "", false
	}
	if w.peers.post == nil && job.Task != 0 {
		return "", false
	}
	if job.ArrayJob != "" && job.ArrayTask != "" {
		return job.ArrayJob + "_" + job.ArrayTask, true // see [slurm.SetComment]
	}
	return job.ID, true
}

// commentWarning writes the limit of a warning into the comment; nil where none is
// crossed.
func (w *watcher) commentWarning(now time.Duration, l *event.Limit, room alert.Room) {
	if !w.tell.Comment.Warned(now, l != nil) || room == alert.None {
		return
	}
	if id, ok := w.commentsJob(); ok {
		w.tell.CommentWarning(now, id, fmt.Sprintf("memory %s of %v on %s at %s", text.Percent(l.Ratio()), l.Limit, w.tell.Run.Node, time.Now().Format(time.TimeOnly)))
	}
}

// lastComment is how the job ended and what it needs. Who leads after us writes its own in
// its place. Ranks that end together have none who does: so ours is about us.
func (w *watcher) lastComment(out *event.Exit) string {
	words := "ended, " + string(out.Verdict)
	if len(w.peers.others) > 0 {
		words = fmt.Sprintf("rank %d %s", w.peers.me.Task, words)
	}
	if b := out.Binding; b != nil {
		words += fmt.Sprintf("; at most %s of %v on %s", text.Percent(b.Ratio()), b.Limit, w.tell.Run.Node)
	}
	if out.Advice != 0 {
		words += "; next time --mem=" + policy.MemArg(out.Advice)
	}
	return words
}
