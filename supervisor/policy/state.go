// Package policy decides which rule fires, on which limit, and what may follow: the ladder
// with its hysteresis, the forecast, and the advice at the end.
//
// The package is pure. It has no clock, reads no file and logs nothing: time comes in as a
// value, readings come in as [event.Limit], decisions go out as [event.Decision]. The caller
// reads again before acting, acts, and reports the outcome with [State.Done].
//
// It promises: no rule fires below its rung; never two actions at once; nothing fires twice
// for one crossing unless the first time helped; an action that cannot help a limit is
// skipped, and the reason is told once.
//
// signal= and exec= ask another process and free nothing themselves. Each is decided once
// for a crossing, however many limits are crossed together, and nothing waits for it: the
// next rung is as near as if it were not there.
package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Options tune the ladder. A zero field takes its default.
type Options struct {
	// CoolDown is the pause between one action and the next that is not the
	// next rung of the same trouble; 2 s.
	CoolDown time.Duration
	// Repeat is how long a rung waits before it tries the same action again
	// while use stays above it; 30 s.
	Repeat time.Duration
	// WarnEvery is the least time between two warnings of one rung; 1 minute.
	// It doubles, up to an hour, while a rung keeps warning.
	WarnEvery time.Duration
	// Lost is when an action without an outcome is given up; 5 minutes.
	Lost time.Duration
	// FirstID is the ID of the first decision; 1. A watcher that was started
	// again goes on where the last one ended.
	FirstID uint64
}

func (o Options) withDefaults() Options {
	o.CoolDown = cmp.Or(o.CoolDown, 2*time.Second)
	o.Repeat = cmp.Or(o.Repeat, 30*time.Second)
	o.WarnEvery = cmp.Or(o.WarnEvery, time.Minute)
	o.Lost = cmp.Or(o.Lost, 5*time.Minute)
	o.FirstID = cmp.Or(o.FirstID, 1)
	return o
}

// Input is what one step looks at.
type Input struct {
	// Now is the time since the start on a monotonic clock; it never goes back.
	Now time.Duration
	// Limits are this tick's readings.
	Limits []event.Limit
	// JobEnd is the time left until the job's own end, 0 where it has none.
	JobEnd time.Duration
	// EndUnsure says that the job's end is being asked for: no rule on it fires.
	EndUnsure bool
	// Can says whether a rule's action can help a limit now. It is asked for
	// every action but warn and stop, and only where the rule is about to
	// fire. Without it nothing but warn and stop ever fires.
	Can func(event.Rule, *event.Limit) Help
	// Lead says how much a limit will have grown by before a rule's action takes
	// effect. The rule fires by so much before its rung. nil is none.
	Lead func(event.Rule, *event.Limit) rss.Bytes
}

// Help is the answer of [Input.Can].
type Help struct {
	OK bool
	// Gain estimates how much of the limit's Used the action could give back,
	// 0 where it is not known.
	Gain rss.Bytes
	// More says that Gain is a lower bound only: small, it is no reason not to act.
	More bool
	// Reason and Detail say why not, where OK is false.
	Reason event.Reason
	Detail string
	// Later says that it will be known in a moment: there is nothing to say yet.
	Later bool
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

// Result is what one step decides.
type Result struct {
	// Decisions holds the warnings that fire, what the job's end asks for, and
	// at most one action. Their
	// Head is left to the caller.
	Decisions []event.Decision
	// Skipped is said once for each crossing and reason.
	Skipped []Skipped
	// Limits is Input.Limits with ETA filled in where a forecast holds, and
	// Binding on the one that ends the job first; see [Binding].
	Limits []event.Limit
}

// State is the ladder with its memory. It is not safe for concurrent use.
type State struct {
	rules  []event.Rule // from mild to hard
	opts   Options
	rungs  map[rungKey]*rung
	trends map[event.LimitID]*forecaster

	nextID   uint64
	now      time.Duration
	flight   *flight
	ended    bool // an outcome came in since the last step
	waive    bool // … after which the next action need not wait
	coolTill time.Duration
	noFork   bool
	stopped  bool
	changes  uint64 // in what a Snapshot tells of
}

// flight is the action that was decided on and has no outcome yet.
type flight struct {
	id    uint64
	key   rungKey
	at    time.Duration
	rule  event.Rule
	limit event.Limit // as it stood
	lead  bool        // … before the rung was crossed
	begun bool        // it goes on without us
	under *flight     // what a stop has overtaken
}

// New returns a ladder of these rules with nothing seen yet. Rules are tried
// from mild to hard, equal actions in the order given.
func New(rules []event.Rule, opts Options) *State {
	opts = opts.withDefaults()
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b event.Rule) int { return cmp.Compare(a.Action.Severity(), b.Action.Severity()) })
	return &State{
		rules:  rules,
		opts:   opts,
		rungs:  map[rungKey]*rung{},
		trends: map[event.LimitID]*forecaster{},
		nextID: opts.FirstID,
	}
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

// Step judges one reading of the limits.
func (s *State) Step(in Input) Result {
	s.now = max(s.now, in.Now)
	if s.ended {
		s.ended = false
		if !s.waive {
			s.coolTill = s.now + s.opts.CoolDown
		}
	}
	if s.flight != nil && !s.stopped && s.now-s.flight.at >= s.opts.Lost {
		s.Done(event.Outcome{Decision: s.flight.id, Reason: event.ReasonTimeout})
		s.ended = false
	}
	var res Result
	res.Limits = s.forecast(in.Limits)
	if s.stopped {
		return res
	}
	s.rearm(res.Limits)
	for _, i := range byUrgency(res.Limits) {
		s.warn(&res, &res.Limits[i], in)
	}
	s.time(&res, in)
	for _, i := range byUrgency(res.Limits) {
		if s.act(&res, &res.Limits[i], in) {
			break
		}
	}
	return res
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
