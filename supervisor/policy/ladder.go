package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// None as the first --at clears the default ladder.
const None = "none"

// Default returns the ladder of a run without --at. Nothing in it can hurt.
func Default() []event.Rule {
	warn := func(l event.LimitName, at float64) event.Rule {
		return event.Rule{Limit: l, Cond: percent(at), Action: event.ActionWarn}
	}
	rules := []event.Rule{
		warn("", 80),
		{Cond: event.Cond{Kind: event.KindETA, ETA: 10 * time.Minute}, Action: event.ActionWarn},
		{Cond: percent(85), Action: event.ActionTrim},
		{Cond: percent(90), Action: event.ActionRecycle},
	}
	// Twice: several processes share these limits, or are under one each, and the
	// first that passes 80 % may stay there for days.
	for _, at := range []float64{80, 95} {
		for _, l := range []event.LimitName{event.LimitMaps, event.LimitFDs, event.LimitCommit, event.LimitSHM, event.LimitTasks} {
			rules = append(rules, warn(l, at))
		}
	}
	return rules
}

func percent(p float64) event.Cond { return event.Cond{Kind: event.KindPercent, Percent: p} }

// Ladder returns the default rules followed by those of --at, in the order
// given, each once. [None] as the first of at leaves the default rules out.
func Ladder(at []string) ([]event.Rule, error) {
	rules := Default()
	for i, s := range at {
		if strings.TrimSpace(s) == None {
			if i > 0 {
				return nil, &event.RuleError{Rule: s, Why: "it clears the default ladder and comes after another rule",
					Hint: "write --at none before every other --at"}
			}
			rules = rules[:0]
			continue
		}
		r, err := event.ParseRule(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	return rules, nil
}
