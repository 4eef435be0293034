package tell

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// Outcome sums an outcome up and tells it.
func (f *Fan) Outcome(d *event.Decision, o *event.Outcome) {
	told := *o
	f.Put(event.NameOutcome, func(h event.Head) any {
		told.Head = h
		return outcomeOf(d.Limit, told)
	})
	f.Status.Outcome(d, told)
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

// Skipped tells that a rung was crossed and its action cannot help. l is the limit as read,
// nil where it was not.
func (f *Fan) Skipped(now time.Duration, s *policy.Skipped, l *event.Limit) {
	// The ledger is about memory, and where a rung is none it was not crossed.
	var action event.Action
	if r := s.Rule; s.On.Name.Thing() == "" && (r.Cond.Kind != event.KindFree || r.Cond.Free < s.LimitSize) {
		action = r.Action
	}
	if l == nil && s.On.Name != event.LimitTime {
		return
	}
	why := string(s.Reason)
	if s.Detail != "" {
		why += ", " + s.Detail
	}
	f.Put(event.NameOutcome, func(h event.Head) any {
		return outcomeOf(s.On.Name, event.Outcome{
			Head: h, Action: action, Reason: s.Reason, Detail: s.Rule.String() + ": " + why,
			Before: s.Used, After: s.Used,
		})
	})
	// The detail may name another process each time, and faults share the room.
	if f.Once("skip", string(s.Rule.Action)+s.Rule.Arg+"@"+string(s.On.Name)+string(s.Reason)) {
		f.SayOf(now, Kind{Name: "skipped " + string(s.Rule.Action), Thing: "skipped action"}, phrase.SkippedRule(&s.Rule, s.On.Name, s.Reason, s.Detail))
	}
}
