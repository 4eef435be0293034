// Package policy decides which rule fires, on which limit, and what may follow: the ladder
// with its hysteresis, the forecast, and the advice at the end.
//
// The package is pure. It has no clock, reads no file, calls nothing back and logs nothing:
// time comes in as a value, readings come in as [event.Limit], what each action could do as
// [event.Feasibility], decisions go out as [event.Decision]. The caller takes a reading in
// with [State.Observe], answers what [State.Asks] asks, has it judged with [State.Judge],
// acts, and reports the outcome with [State.Done].
//
// It promises: no rule fires below its rung, but ahead of what grows before its action takes
// effect and of a spike that would leap over it and reach the limit; never two actions at
// once; nothing fires twice for one crossing unless the first time helped; an action that
// cannot help a limit is skipped, and the reason is reported once.
//
// signal= and exec= ask another process and free nothing themselves. Each is decided once
// for a crossing, however many limits are crossed together, and nothing waits for it: the
// next rung is as near as if it were not there.
package policy

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// coolDown is the pause between an action that was enough and the next. The result of an
	// action is measured at once, without a lagging average, so there is nothing to wait for
	// but the next crossing.
	coolDown = 200 * time.Millisecond
	// repeatAfter is how long a rung waits before it tries the same action again while use
	// stays above it.
	repeatAfter = 30 * time.Second
	// warnEvery is the least time between two warnings of one rung. It doubles, up to an hour,
	// while a rung keeps warning.
	warnEvery = time.Minute
	// lostAfter is when an action without an outcome is given up.
	lostAfter = 5 * time.Minute
)

// Input is what one judgement looks at.
type Input struct {
	// Now is the time since the start on a monotonic clock; it never goes back.
	Now time.Duration
	// Limits are this tick's readings, as [State.Observe] returns them.
	Limits []event.Limit
	// JobEnd is the time left until the job's own end, 0 where it has none.
	JobEnd time.Duration
	// EndUnsure says that the job's end is being asked for: no rule on it fires.
	EndUnsure bool
	// Lead says how much a limit will have grown by before a rule's action takes
	// effect: the rule fires by so much before its rung. What is missing is 0. See
	// [State.Uncrossed].
	Lead map[event.Ask]rss.Bytes
	// Feasible says what the actions that [State.Asks] asks for could do; those that are
	// missing can do nothing.
	Feasible map[event.Ask]event.Feasibility
}

// Due is a rule that is about to fire, of which it must be known first whether its action
// can help the limit.
type Due struct {
	event.Ask
	Reading *event.Limit // as read; with only a forecast where it is the job's end
}

// Skipped says that a rule's rung was crossed and its action not asked for.
type Skipped struct {
	Rule      event.Rule
	On        event.LimitID
	Reason    event.Reason
	Detail    string
	Used      rss.Bytes
	LimitSize rss.Bytes
	ETA       *float64
}

// Judgement is what is decided on one reading.
type Judgement struct {
	// Decisions holds the warnings that fire, what the job's end asks for, and
	// at most one action. Their
	// Head is left to the caller.
	Decisions []event.Decision
	// Skipped is reported once for each crossing and reason.
	Skipped []Skipped
	// Asked are those of Input.Feasible that it rests on, in the order in which they were
	// looked at.
	Asked []Due
	// Changed says that what the ladder remembers has changed in a way that shows even if
	// nothing fires: an action has ended since the last reading, a rung that fired was left,
	// or one begins to wait for an action.
	Changed bool
	// Moved says that anything that the ladder remembers has changed, and Given all that it
	// was told since the last judgement of which that is so. With these and the input of
	// each such judgement the ladder can be run again, and decides the same.
	Moved bool
	Given []event.Given
}

// State is the ladder with its memory. It is not safe for concurrent use.
type State struct {
	rules []event.Rule // from mild to hard
	rungs map[rungKey]*rung
	away  map[event.LimitID]time.Duration // since when each limit is not read, 0 for one that is

	nextID   uint64
	now      time.Duration
	flight   *flight
	ended    bool // an outcome came in since the last reading
	changed  bool // see [Judgement.Changed]
	moved    bool // see [Judgement.Moved]
	given    []event.Given
	waive    bool // … after which the next action need not wait
	coolTill time.Duration
	noFork   bool
	stopped  bool
	changes  uint64 // of a Snapshot
}

// flight is the action that was decided on and has no outcome yet.
type flight struct {
	id    uint64
	key   rungKey
	at    time.Duration
	rule  event.Rule
	limit event.Limit // as it was
	lead  bool        // … before the rung was crossed
	leaps bool        // … as a spike would leap over it
	begun bool        // it goes on without us
	under *flight     // what a stop has overtaken
}

// New returns a ladder of these rules with nothing seen yet, for a watcher; attempt counts
// those of a run from 1, and each numbers its decisions for itself. Rules are tried from mild
// to hard, equal actions in the order given.
func New(rules []event.Rule, attempt int) *State {
	s := &State{rules: slices.Clone(rules), rungs: map[rungKey]*rung{}, away: map[event.LimitID]time.Duration{}, nextID: 1}
	if attempt > 1 {
		s.nextID = uint64(attempt)<<32 | 1
	}
	slices.SortStableFunc(s.rules, func(a, b event.Rule) int { return cmp.Compare(a.Action.Severity(), b.Action.Severity()) })
	return s
}

// Rules returns the ladder's rules from mild to hard.
func (s *State) Rules() []event.Rule { return slices.Clone(s.rules) }

// InFlight returns the ID of the action that is being carried out, 0 if none.
func (s *State) InFlight() uint64 {
	if s.flight == nil {
		return 0
	}
	return s.flight.id
}

// Stopped says that a stop was decided. Nothing is decided after it, unless its
// outcome says that nothing was stopped.
func (s *State) Stopped() bool { return s.stopped }

// Observe takes in one reading of the limits, with forecasts, and what time alone has changed.
func (s *State) Observe(now time.Duration, limits []event.Limit) {
	s.now = max(s.now, now)
	s.changed, s.moved = s.moves(limits), false
	if s.ended {
		s.ended, s.moved = false, true
		if !s.waive {
			s.coolTill = s.now + coolDown
		}
	}
	if s.flight != nil && !s.stopped && s.now-s.flight.at >= lostAfter {
		s.done(event.Outcome{Decision: s.flight.id, Reason: event.ReasonTimeout})
		s.ended, s.moved = false, true
	}
	s.forget(limits)
	if !s.stopped {
		s.rearm(limits)
	}
}

// forget drops what is remembered of limits that are gone. An action in flight
// keeps all: it may be about one of them.
func (s *State) forget(limits []event.Limit) {
	for i := range limits {
		id := limits[i].ID()
		if s.away[id] != 0 {
			s.moved = s.moved || s.remembers(id)
		}
		s.away[id] = 0
	}
	if len(s.away) <= len(limits) {
		return
	}
	for id, since := range s.away {
		switch {
		case since == 0:
			if slices.ContainsFunc(limits, func(l event.Limit) bool { return l.ID() == id }) {
				continue
			}
			s.away[id] = s.now
			s.moved = s.moved || s.remembers(id)
		case s.flight == nil && s.now-since >= forgotten:
			s.moved = s.moved || s.remembers(id)
			delete(s.away, id)
			for i := range s.rules {
				delete(s.rungs, rungKey{id, i})
			}
		}
	}
}

func (s *State) remembers(of event.LimitID) bool {
	for i := range s.rules {
		if g := s.rungs[rungKey{of, i}]; g != nil && (g.holds() || g.at != 0 || g.ahead != 0) {
			return true
		}
	}
	return false
}

// Uncrossed yields the rules with a size that are not crossed, which fire ahead of that
// where [Input.Lead] says so.
func (s *State) Uncrossed(limits []event.Limit) iter.Seq2[event.Rule, *event.Limit] {
	return func(yield func(event.Rule, *event.Limit) bool) {
		for i := range limits {
			l := &limits[i]
			for _, r := range s.rules {
				if at, ok := r.At(l.Limit); l.Limit > 0 && ok && l.Used < at && r.Matches(l.Name) && !yield(r, l) {
					return
				}
			}
		}
	}
}

// Asks yields the rules whose feasibility [State.Judge] needs, in the order in which they are
// tried: what a milder rule can do spares the question about the next. The caller puts each
// answer into in.Feasible, and changes nothing else.
func (s *State) Asks(in *Input) iter.Seq[Due] {
	return func(yield func(Due) bool) {
		if in.Feasible == nil {
			in.Feasible = map[event.Ask]event.Feasibility{}
		}
		for !s.stopped {
			look := judging{State: s, in: in}
			look.time()
			look.act()
			if !look.needs || !yield(look.need) {
				return
			}
			if _, answered := in.Feasible[look.need.Ask]; !answered {
				return
			}
		}
	}
}

// Judge decides on the reading that was observed last.
func (s *State) Judge(in Input) Judgement {
	j := judging{State: s, in: &in, does: true}
	if !s.stopped {
		for _, i := range byUrgency(in.Limits) {
			j.warn(&in.Limits[i])
		}
		j.time()
		j.act()
	}
	j.out.Changed = s.changed
	if j.out.Moved = s.moved; s.moved {
		j.out.Given, s.given = s.given, nil
	}
	return j.out
}

// byUrgency orders limits by what ends the job first: the binding one, then
// the fullest.
func byUrgency(limits []event.Limit) []int {
	order := make([]int, 0, len(limits))
	for i := range limits {
		if limits[i].Limit > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &limits[a], &limits[b]
		if x.Binding != y.Binding {
			if x.Binding {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.Ratio(), x.Ratio())
	})
	return order
}

// Raised is a rung that was crossed and was not left since: by enough, as for
// [State.Observe]. One whose action was asked for on another limit is none, and
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
// last readings.
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
