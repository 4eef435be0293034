package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
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

func percent(p float64) event.Cond { return event.Cond{Kind: event.KindPercent, Percent: p} }

const (
	// forecastGone is how long a forecast must be absent before the rules on it
	// are armed again: growth in steps has none between two steps.
	forecastGone = 3 * time.Minute
	// never is a time that does not come.
	never = time.Duration(math.MaxInt64)
)

type rungKey struct {
	limit event.LimitID
	rule  int // index in State.rules
}

// rung is what is remembered of one rule on one limit. The zero value is armed.
type rung struct {
	fired  bool
	id     uint64         // of its last decision
	quiet  bool           // … without a decision: the same was asked on another limit
	gap    time.Duration  // how long it must not warn after at, nor act for a spike; 0 where it never has
	at     time.Duration  // when it fired last
	next   time.Duration  // when it may fire again although it was not left
	wait   time.Duration  // … after an action without effect
	level  rss.Bytes      // … or at what use, 0 for none
	again  bool           // … or once as much could be given back as [event.Rule.Again] says
	ahead  time.Duration  // when it may fire again before it is crossed
	told   []event.Reason // reasons already said for this crossing
	gone   time.Duration  // since when there has been no forecast
	absent bool           // there is none now
	waits  bool           // it was crossed while an action was in flight
	since  time.Duration  // … first at this time
	raised bool           // it was crossed, and was not left since: see [State.Raised]
	up     time.Duration  // … first at this time
}

// fire notes that the rung has fired, by the decision with that ID, 0 for none.
func (s *State) fire(g *rung, id uint64) {
	g.fired, g.id, g.at, g.next, g.level, g.again, g.waits = true, id, s.now, never, 0, false, false
	s.changes++
	s.moved = true
}

func (s *State) raise(g *rung) {
	if !g.raised {
		g.raised, g.up, s.moved = true, s.now, true
	}
}

func (s *State) reset(g *rung) {
	if g.fired {
		s.changes++
	}
	s.moved = s.moved || g.holds()
	g.raised = false
	g.fired, g.quiet, g.waits, g.next, g.wait, g.level, g.again, g.told = false, false, false, 0, 0, 0, false, g.told[:0]
}

// holds says that there is anything that [State.reset] takes away.
func (g *rung) holds() bool {
	return g.fired || g.quiet || g.waits || g.raised || g.again || g.next != 0 || g.wait != 0 || g.level != 0 || len(g.told) > 0
}

// ready says whether the rung may fire now, given that its condition holds.
func (g *rung) ready(now time.Duration, l *event.Limit) bool {
	return !g.fired || now >= g.next || g.level > 0 && l.Used >= g.level
}

func (s *State) rung(rule int, l *event.Limit) *rung {
	k := rungKey{l.ID(), rule}
	g := s.rungs[k]
	if g == nil {
		g = &rung{}
		s.rungs[k] = g
	}
	return g
}

// crossed says whether r's condition holds for l. A forecast beyond the job's
// own end is none, and so is one of growth that may flatten before: it has no
// end of its range.
func crossed(r event.Rule, l *event.Limit, jobEnd time.Duration) bool {
	if r.Cond.Kind == event.KindETA {
		eta, ok := etaOf(l)
		return ok && l.ETAHigh != nil && eta < r.Cond.ETA && (jobEnd <= 0 || eta < jobEnd)
	}
	at, ok := r.At(l.Limit)
	return ok && l.Used >= at
}

// hopeless says why a rule can never make sense for l.
func hopeless(r event.Rule, l *event.Limit) (why string, bad bool) {
	if r.Cond.Kind == event.KindFree && r.Cond.Free >= l.Limit {
		return fmt.Sprintf("%v can never be free of %v; write a share, such as 80%%, or less than that", r.Cond.Free, l.Limit), true
	}
	return "", false
}

// rearm arms every rung that was left by enough.
func (s *State) rearm(limits []event.Limit) {
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 {
			continue
		}
		for j, r := range s.rules {
			g := s.rungs[rungKey{l.ID(), j}]
			if g == nil || !r.Matches(l.Name) {
				continue
			}
			if s.left(g, r, l) {
				s.reset(g)
			}
		}
	}
}

// left says whether the rung was left by enough. A forecast is left at twice
// the rule's, or where there has been none for long.
func (s *State) left(g *rung, r event.Rule, l *event.Limit) bool {
	if r.Cond.Kind != event.KindETA {
		if _, bad := hopeless(r, l); bad {
			return false
		}
		return l.Used < r.Rearm(l.Limit)
	}
	eta, ok := etaOf(l)
	if ok {
		s.moved = s.moved || g.absent && (g.holds() || s.flight != nil)
		g.absent = false
		return eta >= 2*r.Cond.ETA
	}
	if !g.absent {
		g.absent, g.gone = true, s.now
		// A rung that has nothing to be left for, and gets nothing by an outcome, is as it was.
		s.moved = s.moved || g.holds() || s.flight != nil
	}
	return s.now-g.gone >= forecastGone
}

// Done says what came of a decision. Outcomes of decisions that are not in
// flight are ignored. The next step may already decide on the next rung.
func (s *State) Done(o event.Outcome) {
	if s.done(o) {
		s.given = append(s.given, event.Given{Outcome: &event.GivenOutcome{Decision: o.Decision, OK: o.OK, Reason: o.Reason, After: o.After, Freed: o.Freed}})
	}
}

// done says whether it was in flight.
func (s *State) done(o event.Outcome) bool {
	f := s.flight
	switch {
	case f == nil:
		return false
	case f.id == o.Decision:
		s.flight = f.under
	case f.under != nil && f.under.id == o.Decision:
		f, f.under = f.under, nil
	default:
		return false
	}
	s.changes++
	action, of := f.rule.Action, f.rule.Action.Row()
	if action == event.ActionStop {
		s.stopped = o.OK && o.Reason != event.ReasonDryRun
	}
	g := s.rungs[f.key]
	after := f.limit
	after.Used = o.After
	helped := f.helped(&o)
	if f.lead {
		// A rung that fired before it was crossed counts as left at once, so that nothing else
		// keeps it from firing at every look where that has no effect.
		switch g.ahead = s.now; {
		case f.leaps && !helped:
			g.ahead += g.gap // less and less often: the spike may never come again
		case f.leaps:
			g.gap = 0
			g.ahead += repeatAfter
		case !helped:
			g.ahead += repeatAfter
		}
	}
	enough := o.OK && f.rule.Need(&after) == 0 && (f.rule.Cond.Kind != event.KindETA || helped)
	s.ended, s.waive = true, !enough
	if o.Reason == event.ReasonForkRefused {
		s.noFork = true
	}
	switch {
	case o.Reason == event.ReasonRecovered:
		// Nothing was done and nothing needs to be.
		s.reset(g)
		s.waive = false
	case o.Reason == event.ReasonDryRun:
		// Said once for a crossing, like a warning.
	case of.Single && helped:
		// One worker after the other for as long as use stays above the rung.
		g.fired = false
	case action.Frees(), action == event.ActionStop && !o.OK:
		g.next = s.now + repeatAfter
		if of.BacksOff && o.OK && !helped {
			// Trainers pause for it: less and less often where there is
			// no garbage.
			g.wait = min(max(2*g.wait, repeatAfter), time.Hour)
			g.next = s.now + g.wait
		}
		switch {
		case helped && f.limit.Accounting == event.AccountingPSS:
			g.again = true // the use is not known now
		case helped:
			g.level = o.After + event.Regrown(&after)
		case of.Single && o.OK:
			// One worker had too little to give back. Others may have it by the time
			// that use has grown by as much, and a leak fills the rest in seconds.
			g.level = o.After + event.MinRecycle(&f.limit)
		}
	}
	return true
}

// helped says that an action gave back enough to be worth it. By PSS only the next reading
// shows what a recycle or a trim freed: a page that several have mapped is given back by
// the last of them. A second call knows that reading.
func (f *flight) helped(o *event.Outcome) bool {
	unread := f.limit.Accounting == event.AccountingPSS && f.rule.Action.Row().Unmaps
	return o.OK && (unread || o.Freed >= f.rule.Worth(&f.limit))
}

// NextRung returns the use at which the next rule of the ladder would fire for
// l: the lowest rung above l.Used, else the limit itself. A fast tick need not
// read more than an upper bound of use while that stays below it.
func (s *State) NextRung(l *event.Limit) rss.Bytes {
	next := l.Limit
	for _, r := range s.rules {
		if at, ok := r.At(l.Limit); ok && r.Matches(l.Name) && at > l.Used {
			next = min(next, at)
		}
	}
	return next
}

// Straddles says whether a rung lies between what l uses for certain and what
// it uses at most, so that only a closer reading can tell.
func (s *State) Straddles(l *event.Limit) bool {
	return l.UsedMax > l.Used && s.NextRung(l) <= l.UsedMax
}

// Uncertain says whether [State.Straddles] holds for any of these.
func (s *State) Uncertain(limits []event.Limit) bool {
	return slices.ContainsFunc(limits, func(l event.Limit) bool { return s.Straddles(&l) })
}

// Rung returns the lowest use at which a rule with that action fires for l.
// ok is false where the ladder has none.
func (s *State) Rung(a event.Action, l *event.Limit) (at rss.Bytes, ok bool) {
	for _, r := range s.rules {
		if r.Action != a || !r.Matches(l.Name) {
			continue
		}
		if t, has := r.At(l.Limit); has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}
