package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// deeds is what the rules of one run did. The zero value is ready.
type actionsSeen struct {
	kinds map[event.Action]*Action
	// helped counts outcomes that gave something back, asked those of them that
	// somebody asked for while there was room.
	helped, asked int
	roomy         map[uint64]bool // the decisions of asked
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

// outcome is the verdict of an exit event. A run in which all that gave memory back was
// asked for while there was room was not carried by that, whatever the event says.
func (k *RunScan) outcome() event.Verdict {
	d := &k.Deeds
	if k.Exit.Verdict == event.VerdictCarried && d.asked > 0 && d.asked == d.helped && d.budget.Times == 0 && k.Run.Dropped == 0 {
		return event.VerdictFine
	}
	return k.Exit.Verdict
}

// came takes in an outcome and returns the action that it is of, empty where the
// decision is not known.
func (d *actionsSeen) came(v *event.Outcome) event.Action {
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
	if v.OK && v.Freed > 0 {
		if d.helped++; d.roomy[v.Decision] {
			d.asked++
		}
	}
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

// mergeDeeds adds up what was done in all runs, from mild to hard.
func mergeActions(looks []*RunScan) ([]Action, *Budget) {
	all := map[event.Action]*Action{}
	var budget Budget
	for _, k := range looks {
		budget.Times, budget.Freed = budget.Times+k.Deeds.budget.Times, budget.Freed+k.Deeds.budget.Freed
		for kind, a := range k.Deeds.kinds {
			sum := all[kind]
			if sum == nil {
				sum = &Action{Action: kind, FirstAt: a.FirstAt}
				all[kind] = sum
			}
			sum.add(a)
		}
	}
	out := make([]Action, 0, len(all))
	for _, a := range all {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b Action) int {
		return a.Action.Severity() - b.Action.Severity()
	})
	if budget.Times == 0 {
		return out, nil
	}
	return out, &budget
}

func (a *Action) add(b *Action) {
	a.Fired, a.Worked, a.Freed, a.Paused = a.Fired+b.Fired, a.Worked+b.Worked, a.Freed+b.Freed, a.Paused+b.Paused
	a.PeakUsed = max(a.PeakUsed, b.PeakUsed)
	if b.FirstAt.Before(a.FirstAt) {
		a.FirstAt = b.FirstAt
	}
	if b.LastAt.After(a.LastAt) {
		a.LastAt = b.LastAt
	}
	for why, n := range b.Reasons {
		if a.Reasons == nil {
			a.Reasons = map[event.Reason]int{}
		}
		a.Reasons[why] += n
	}
}

// freed is what all actions and the workers' own trims gave back.
func Freed(actions []Action, b *Budget) (sum rss.Bytes) {
	for i := range actions {
		sum += actions[i].Freed
	}
	if b != nil {
		sum += b.Freed
	}
	return sum
}
