package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// heardCounts takes in what package counts has read, and says whether anything was, and
// whether a limit has reached a rung since the last look.
func (w *watcher) heardCounts() (news, reached bool) {
	fresh, news := w.counts.Take(w.look)
	return news, w.reached(fresh)
}

// countOutcome is an outcome about a limit on a number, which has no bytes to tell
// of. The samples have the number before and after.
type countOutcome struct {
	event.Outcome
	Before *struct{} `json:"before_bytes,omitempty"`
	After  *struct{} `json:"after_bytes,omitempty"`
	Freed  *struct{} `json:"freed_bytes,omitempty"`
}

// outcomeOf returns an outcome as the event of it is written.
func outcomeOf(l event.LimitName, o event.Outcome) any {
	if !l.Counts() {
		return o
	}
	return countOutcome{Outcome: o}
}

// reached says whether one of these limits stands at or above the rung that was
// the next at the last look.
func (w *watcher) reached(limits []event.Limit) bool {
	for i := range limits {
		l := &limits[i]
		if old := reading(w.readings, l.ID()); old == nil || l.Used >= w.ladder.NextRung(old) {
			return true
		}
	}
	return false
}
