package tell

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
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

const (
	// mostComments is how often the comment is written for warnings in one run, and
	// commentEvery how long it is left alone in between: slurmctld serves all jobs.
	mostComments = 3
	commentEvery = 5 * time.Minute
	commentPart  = "alert-comment"
)

// Comment is the job's comment, which squeue, scontrol and, where the site stores it,
// sacct show. What the user wrote there stays in front; ours is behind it and stays when
// the job has ended, to be read then.
type Comment struct {
	out     *events
	job     string                // whose, empty where it is not ours to write
	start   func(*exec.Cmd) error // of scontrol
	writing *writing              // the last, nil for none
	written int
	at      time.Duration // of the last for a warning
	warned  bool          // a rung of a warning is crossed
}

// CommentJob names the job whose comment a watcher writes: the first task of the first
// node does, or who leads there; empty for the others. alone says that no rank leads.
func CommentJob(job slurm.Job, alone bool) string {
	switch {
	case job.NodeID != 0, alone && job.Task != 0:
		return ""
	}
	return cmp.Or(slurm.ArrayTask(job.ArrayJob, job.ArrayTask), job.ID) // see [slurm.SetComment]
}

// writing is a call of scontrol; err is set once over is closed.
type writing struct {
	over chan struct{}
	err  error
}

// Writing returns a channel that is closed when what is being written is over; nil where
// nothing is.
func (c *Comment) Writing() <-chan struct{} {
	if c.writing == nil {
		return nil
	}
	select {
	case <-c.writing.over:
		return nil
	default:
		return c.writing.over
	}
}

// refused says that writing failed: a site that refuses the comment is asked once.
func (c *Comment) refused() bool {
	return c.writing != nil && c.Writing() == nil && c.writing.err != nil
}

// due takes in whether a rung of a warning is crossed, and says whether that is to be
// written: when it is first crossed, and not too often.
func (c *Comment) due(now time.Duration, crossed bool) bool {
	was := c.warned
	c.warned = crossed
	busy := c.Writing() != nil
	return crossed && (!was || c.written == 0) && !busy && !c.refused() &&
		c.written < mostComments && (c.written == 0 || now-c.at >= commentEvery)
}

// warning writes the limit of a warning into the comment; nil where none is
// crossed.
func (c *Comment) warning(now time.Duration, l *event.Limit, room alert.Headroom) {
	if c.job == "" || !c.due(now, l != nil) || room == alert.None {
		return
	}
	c.written, c.at = c.written+1, now
	what := "memory"
	switch l.Name {
	case event.LimitNode:
		what = "the node's memory, of all jobs,"
	case event.LimitUser:
		what = "memory by --limit"
	}
	words := fmt.Sprintf("%s %s of %s on %s at %s", what, text.Percent(l.Ratio()), l.Limit.Typed(), c.out.Run.Node, time.Now().Format(time.TimeOnly))
	if c.out.set.DryRun {
		c.out.Say(now, "comment", wouldComment(c.job, words))
		return
	}
	c.writing = c.write(words, slurm.ScontrolTimeout, &c.out.failed)
}

func wouldComment(job, text string) string {
	return "would set the comment of job " + job + ": " + slurm.Comment + text + " (dry run)"
}

// write writes the comment on the side. A failure goes to failed before it is over.
func (c *Comment) write(text string, within time.Duration, failed *failures) *writing {
	w, start := &writing{over: make(chan struct{})}, c.start
	scontrol := func(ctx context.Context, args ...string) ([]byte, error) {
		return slurm.ScontrolBy(ctx, start, args...)
	}
	go func() {
		defer close(w.over)
		fault.Point("comment")
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if w.err = slurm.SetComment(ctx, scontrol, c.job, text); w.err != nil {
			failed.tell(commentPart, w.err.Error())
		}
	}()
	return w
}

// Last returns what writes the last words into the comment, in at most so long: how
// the job ended and what it needs. rank is ours where others go on, else -1: who leads
// after us writes its own words in place of ours, and ranks that end together have none who
// does.
func (c *Comment) Last(exit *event.Exit, rank int, within time.Duration) func() {
	if c.job == "" || c.refused() {
		return func() {}
	}
	words := "ended, " + string(exit.Outcome)
	if rank >= 0 {
		words = fmt.Sprintf("rank %d %s", rank, words)
	}
	if b := exit.Binding; b != nil {
		words += fmt.Sprintf("; at most %s of %s on %s", text.Percent(b.Ratio()), b.Limit.Typed(), c.out.Run.Node)
	}
	if exit.Advice != 0 {
		words += "; next time --mem=" + policy.MemArg(exit.Advice)
	}
	if c.out.set.DryRun {
		c.out.Info(wouldComment(c.job, words))
		return func() {}
	}
	before := c.Writing()
	return func() {
		up := time.After(within)
		if before != nil {
			select { // two that write at once would undo each other
			case <-before:
			case <-up:
				return
			}
		}
		last := c.write(words, within, nil)
		select {
		case <-last.over:
			if last.err != nil {
				c.out.Warn(fmt.Sprintf("%s: %v", commentPart, last.err))
			}
		case <-up:
		}
	}
}
