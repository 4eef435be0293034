package policy

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file lets a ladder be run again over what a record holds, which is fewer
// readings than the ladder saw.

// Recall takes in the forecast that was made of l when it was read: eta, or none
// where ok is false. The next [State.Step], which must be at the same time, then
// judges by it and makes none of its own: a forecast made from a reading a
// second would differ, and a rule on it fire at another moment. It counts above
// half of the limit only, as every forecast does.
func (s *State) Recall(now time.Duration, l *event.Limit, eta time.Duration, ok bool) {
	f := s.trends[l.ID()]
	if f == nil {
		f = &forecaster{}
		s.trends[l.ID()] = f
	}
	f.made, f.at, f.limit = true, max(s.now, now), l.Limit
	f.eta, f.low, f.high, f.ok = eta, eta, eta, ok
}

// Pass lets time go by up to now without a look. An action that ends between two
// looks has ended then, and not at the look before: whoever calls it before
// [State.Done] has what follows counted from the time that the outcome has.
func (s *State) Pass(now time.Duration) { s.now = max(s.now, now) }

// Moves says that a step over these readings changes what the ladder remembers
// even if nothing fires: an action has ended since the last one, a rung that
// fired is left, or one begins to wait for an action. Whoever wants to run the
// ladder again must keep such readings beside those on which it decides. It is
// called before the step.
func (s *State) Moves(limits []event.Limit) bool {
	if s.ended {
		return true
	}
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 {
			continue
		}
		for j, r := range s.rules {
			if r.Cond.Kind == event.KindETA || !r.Matches(l.Name) {
				continue // a forecast is made each 5 s: readings each second tell
			}
			g := s.rungs[rungKey{l.ID(), j}]
			waits := g != nil && g.waits
			switch {
			case g != nil && (g.fired || waits) && s.left(g, r, l):
				return true
			case r.Action.Asks() && s.flight != nil && !waits && crossed(r, l, 0):
				return true
			}
		}
	}
	return false
}
