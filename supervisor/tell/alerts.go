package tell

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Alerts tells the receivers of --alert which rungs are crossed. In a dry run a line says
// what they would get.
type Alerts struct {
	sender *alert.Sender // nil without receivers, and in a dry run
	would  string        // … whose receivers these are
	fired  map[string]bool
	wait   func() // for the last answers; nil before the end
}

// OpenAlerts begins with what a leader before has left open.
func (f *Fan) OpenAlerts(opt alert.Options, open []alert.Alert) {
	opt.Fault = func(text string) { f.failed.tell("alert", text) }
	f.Alerts.sender = alert.New(opt)
	if len(open) > 0 {
		f.Alerts.sender.Inherit(open)
	}
}

// DryRun writes what these receivers would get.
func (a *Alerts) DryRun(targets []alert.Target) {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.String()
	}
	a.would = strings.Join(names, ", ")
}

// Raise takes in the rungs that are crossed now. It comes before the actions of a step.
func (f *Fan) Raise(now time.Duration, current []alert.Alert, room alert.Room) {
	s := &f.Alerts
	if s.sender != nil {
		s.sender.Room(room)
		s.sender.Set(current)
	}
	if s.would == "" {
		return
	}
	before := s.fired
	s.fired = map[string]bool{}
	for i := range current {
		a := &current[i]
		if s.fired[a.ID()] = true; !before[a.ID()] {
			f.Say(now, "alert", fmt.Sprintf("would tell %s: %s fires (%s), %s (dry run)", s.would, a.Name(), a.Severity(), a.Summary))
		}
	}
}

// Open returns the alerts that a receiver may believe to fire.
func (a *Alerts) Open() []alert.Alert { return a.sender.Open() }

// Close ends the alerts. What fires is resolved unless another leader goes on with it.
func (a *Alerts) Close(resolve bool) {
	if a.sender != nil {
		a.wait = a.sender.Close(resolve)
	}
}

// Standing is the state of the receivers.
func (a *Alerts) Standing() (all []control.Alerts) {
	for _, r := range a.sender.Standing() {
		c := control.Alerts{
			Receiver: r.Target.String(), Firing: r.Firing, Sent: r.Sent, Failed: r.Failed, Overtaken: r.Overtaken,
			Lost: r.Lost + r.Dropped, Untold: r.Untold, Held: r.Held && r.Untold+r.Firing > 0, Failing: r.Failing, Error: r.Error,
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

// LastAlerts waits a moment for receivers that have always answered, and writes what was
// not told or may not have been.
func (f *Fan) LastAlerts() {
	if f.Alerts.wait == nil {
		return
	}
	f.Alerts.wait()
	for _, r := range f.Alerts.sender.Standing() {
		for _, text := range lastWordsOf(&r) {
			if r.Failing || r.Missed+r.Dropped > 0 {
				f.Warn(text)
			} else {
				f.Info(text) // it has always answered, and may be slow
			}
		}
	}
}

// lastWordsOf tells of one receiver at the end.
func lastWordsOf(r *alert.Standing) (all []string) {
	because := ""
	if r.Error != "" {
		because = ": " + r.Error
	}
	switch n := text.Count(r.Untold, "alert"); {
	case r.Untold == 0:
	case r.Asked && r.Failing:
		all = append(all, fmt.Sprintf("alert: %v was told at the end how %s stood, and was not waited for; it failed before%s", r.Target, n, because))
	case r.Asked:
		all = append(all, fmt.Sprintf("alert: %v was told at the end how %s stood; whether it took that is not known", r.Target, n))
	default:
		all = append(all, fmt.Sprintf("alert: %v was not told how %s stood at the end%s", r.Target, n, because))
	}
	if r.Missed > 0 {
		all = append(all, fmt.Sprintf("alert: %v was not told of the end of %s in time%s", r.Target, text.Count(r.Missed, "earlier alert"), because))
	}
	if r.Dropped > 0 {
		all = append(all, fmt.Sprintf("alert: %v was not told of %s: too many at a time", r.Target, text.Count(r.Dropped, "alert")))
	}
	return all
}
