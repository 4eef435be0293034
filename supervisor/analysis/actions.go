package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// actionsSeen is what the rules of one run did. The zero value is ready.
type actionsSeen struct {
	kinds map[event.Action]*Action
	// helped counts outcomes that gave something back; asked says that some did that a user
	// asked for while there was room, which are not in it.
	helped int
	asked  bool
	roomy  map[uint64]bool // the decisions of asked
	// open are decisions whose outcome has not come yet.
	open    map[uint64]event.Action
	budget  Budget
	Last    *event.Decision
	LastAt  time.Time
	Outcome *event.Outcome // of last
}

func (d *actionsSeen) decided(at time.Time, v *event.Decision) {
	if d.kinds == nil {
		d.kinds, d.open, d.roomy = map[event.Action]*Action{}, map[uint64]event.Action{}, map[uint64]bool{}
	}
	a := d.kinds[v.Action]
	if a == nil {
		a = &Action{Action: v.Action, FirstAt: at}
		d.kinds[v.Action] = a
	}
	a.Fired++
	a.LastAt = at
	a.PeakUsed = max(a.PeakUsed, v.Used)
	d.open[v.ID], d.roomy[v.ID] = v.Action, v.Unneeded()
	if v.Action != event.ActionWarn {
		d.Last, d.LastAt, d.Outcome = v, at, nil
	}
}

// came takes in an outcome and returns the action that it is of, empty where the
// decision is not known.
func (d *actionsSeen) came(v *event.Outcome) event.Action {
	switch {
	case !v.OK || v.Freed == 0:
	case d.roomy[v.Decision]:
		d.asked = true
	default:
		d.helped++
	}
	kind, ok := d.open[v.Decision]
	if !ok {
		return ""
	}
	delete(d.open, v.Decision)
	if d.Last != nil && d.Last.ID == v.Decision {
		d.Outcome = v
	}
	a := d.kinds[kind]
	a.Paused += v.Paused
	if v.OK {
		a.Worked++
		a.Freed += v.Freed
		return kind
	}
	if a.Reasons == nil {
		a.Reasons = map[event.Reason]int{}
	}
	a.Reasons[v.Reason]++
	return kind
}

// said takes in trims that workers made by themselves: those that a rule asked
// for are in its outcome.
func (d *actionsSeen) said(v *event.LoaderSaid) {
	if v.What != event.LoaderTrimmed || v.Count == 0 {
		return
	}
	d.budget.Times += v.Count
	d.budget.Freed += v.Freed
}
