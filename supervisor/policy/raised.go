package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Raised is a rung that was crossed and was not left since: by enough, as for
// [State.Step]. One whose action was asked for on another limit is none, and
// neither is one whose rule acted before it was crossed.
type Raised struct {
	Rule  event.Rule
	Limit *event.Limit // as read now, nil where it was not
	Name  event.LimitName
	Scope event.Scope
	Level string
	Since time.Duration // by the clock of [Input]
}

// Raised returns these rungs, the one first that was crossed first. limits are the
// readings of the last step.
func (s *State) Raised(limits []event.Limit) (all []Raised) {
	for k, g := range s.rungs {
		if !g.raised {
			continue
		}
		r := Raised{Rule: s.rules[k.rule], Name: k.limit.Name, Scope: k.limit.Scope, Level: k.limit.Level, Since: g.up}
		if i := slices.IndexFunc(limits, func(l event.Limit) bool { return l.ID() == k.limit }); i >= 0 {
			r.Limit = &limits[i]
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Raised) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Rule.String(), b.Rule.String()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Level, b.Level))
	})
	return all
}
