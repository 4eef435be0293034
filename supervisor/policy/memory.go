package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	memoryVersion = 1
	// MostMemory bounds a [Memory] as it is written, in bytes, and mostRungs what is
	// believed of one that is read.
	MostMemory = 48 << 10
	mostRungs  = 4096
	mostAlerts = 64
	mostStep   = 64
	// mostWait is the longest that a rung is held back after it has fired.
	mostWait = time.Hour
)

// Memory is what a ladder hands to the one after it, where another watcher takes
// over: the rungs that have fired and were not left since, and when each may fire
// again. Without it signals, programs, alerts and a requeue would be repeated. What only
// spares a line or a gc is left out. Its times are those of a clock that both
// ladders know, and above 0; 0 is none.
type Memory struct {
	V     int           `json:"v"`
	At    time.Duration `json:"at_ns"` // when it was taken
	Rungs []RungMemory  `json:"rungs"` // those that fired last come first
	// Step is the step under which alerts are told that are of none, and Run the run.
	Step string `json:"step,omitempty"`
	Run  string `json:"run,omitempty"`
	// Alerts are those that receivers may believe to fire, whether or not their rungs
	// are crossed still.
	Alerts []AlertMemory `json:"alerts,omitempty"`
}

// AlertMemory is one alert, by what tells it from others.
type AlertMemory struct {
	Limit  event.LimitName `json:"limit"`
	Scope  event.Scope     `json:"scope,omitempty"`
	Rung   string          `json:"rung"` // "80%"
	ETA    bool            `json:"eta,omitempty"`
	Action event.Action    `json:"action"`
	Step   string          `json:"step,omitempty"`
	Since  time.Duration   `json:"since_ns"`
}

// RungMemory is a rule that has fired on a limit, or one that warned and waits for its
// next turn.
type RungMemory struct {
	Rule string `json:"rule"`
	event.LimitID
	// Fired is false where its rung was left since.
	Fired bool          `json:"fired,omitempty"`
	Quiet bool          `json:"quiet,omitempty"` // without a decision
	At    time.Duration `json:"fired_at_ns,omitempty"`
	// Next is when it may fire again although it was not left, 0 for never, and Use
	// the use at which it may, 0 for none.
	Next  time.Duration `json:"next_ns,omitempty"`
	Use   rss.Bytes     `json:"use,omitempty"`
	Again bool          `json:"again,omitempty"`
	Gap   time.Duration `json:"gap_ns,omitempty"` // between two warnings
}

// Changes counts what changes a [Memory]: where it is the same, so is what
// [State.Snapshot] returns, except for the time.
func (s *State) Changes() uint64 { return s.changes }

// Begun says that the action in flight with this ID goes on whatever becomes of
// who decided on it.
func (s *State) Begun(id uint64) {
	for f := s.flight; f != nil; f = f.under {
		if f.id == id && !f.begun {
			f.begun = true
			s.changes++
			s.given = append(s.given, event.Given{Begun: id})
		}
	}
}

// Snapshot returns what the ladder remembers now, by a clock that reads clock at
// the ladder's time now. Its successor begins again what is lost with us:
// an action in flight, unless [State.Begun], and a decision that has not been begun,
// whose ID is waiting, 0 for none. A stop is never handed over as done.
func (s *State) Snapshot(now, clock time.Duration, waiting uint64) Memory {
	m := Memory{V: memoryVersion, At: max(clock, 1)}
	lost := map[rungKey]bool{}
	for f := s.flight; f != nil; f = f.under {
		lost[f.key] = !f.begun
	}
	there := func(t time.Duration) time.Duration { return max(t-now+clock, 1) }
	for k, g := range s.rungs {
		r := s.rules[k.rule]
		e := RungMemory{Rule: r.String(), LimitID: k.limit}
		if now-g.at < 4*g.gap {
			e.Gap = g.gap
		}
		if g.fired && !lost[k] && r.Action != event.ActionStop && (waiting == 0 || g.id != waiting) {
			e.Fired, e.Quiet, e.Use, e.Again = true, g.quiet, g.level, g.again
			if g.next != never {
				e.Next = there(g.next)
			}
		}
		if e.Fired || e.Gap > 0 {
			e.At = there(g.at)
			m.Rungs = append(m.Rungs, e)
		}
	}
	slices.SortFunc(m.Rungs, func(a, b RungMemory) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Accounting, b.Accounting), cmp.Compare(a.Level, b.Level))
	})
	return m
}

// Restore takes in what another ladder of the same rules remembered. It is for a
// ladder that has seen nothing yet. own is the level of the limits of one's own step as the
// memory has it, empty outside a step: alone they have none.
func (s *State) Restore(m *Memory, now, clock time.Duration, own string) {
	here := func(t time.Duration) time.Duration { return t - clock + now }
	for i := range m.Rungs {
		e := &m.Rungs[i]
		rule := slices.IndexFunc(s.rules, func(r event.Rule) bool { return r.String() == e.Rule && r.Matches(e.Name) })
		if rule < 0 || !e.Fired && e.Gap == 0 || s.rules[rule].Action == event.ActionStop {
			continue
		}
		at := time.Duration(0)
		if e.At != 0 {
			at = min(here(e.At), now)
		}
		g := &rung{at: at, gap: min(e.Gap, mostWait)}
		if e.Fired {
			g.fired, g.quiet, g.level, g.again, g.next, g.raised, g.up = true, e.Quiet, e.Use, e.Again, never, !e.Quiet, at
			if e.Next != 0 {
				g.next = min(here(e.Next), now+mostWait)
			}
			if c := s.rules[rule].Cond; c.Kind == event.KindETA {
				// There is no forecast before readings were seen for that long, as
				// [rss.Trend.ETA] has it for one at which the rule counts as left.
				g.absent, g.gone = true, now+max(rss.HoldTime, c.ETA/2)
			}
		}
		id := e.LimitID
		s.put(rungKey{id, rule}, g, now)
		if e.Own(own) {
			id.Level = ""
			s.put(rungKey{id, rule}, g, now)
		}
	}
}

// Own says that it is a limit of one's own step, by the level of that.
func (e *RungMemory) Own(level string) bool {
	return level != "" && e.Name == event.LimitSlurm && e.Level == level
}

// put lays a rung down where none is. A limit that is never seen again is
// forgotten in its time.
func (s *State) put(k rungKey, g *rung, now time.Duration) {
	if s.rungs[k] != nil {
		return
	}
	s.rungs[k] = g
	if _, ok := s.away[k.limit]; !ok && k.limit.Name != event.LimitTime {
		s.away[k.limit] = now
	}
}

// Encode returns the memory as [ParseMemory] reads it, in at most [MostMemory]
// bytes: of more rungs than that those are left out that fired first.
func (m *Memory) Encode() ([]byte, error) {
	for c := *m; ; c.Rungs = c.Rungs[:len(c.Rungs)*3/4] {
		data, err := json.Marshal(&c)
		if err != nil || len(data) <= MostMemory || len(c.Rungs) == 0 {
			return data, err
		}
	}
}

var errMemory = errors.New("cannot read what the ladder remembered")

// ParseMemory reads what [Memory.Encode] wrote. It believes no times that cannot be.
func ParseMemory(data []byte) (*Memory, error) {
	m := &Memory{}
	if len(data) > MostMemory {
		return nil, fmt.Errorf("%w: it has %d bytes", errMemory, len(data))
	}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errMemory, err)
	}
	if m.V != memoryVersion || len(m.Rungs) > mostRungs || len(m.Step) > mostStep || len(m.Run) > mostStep {
		return nil, fmt.Errorf("%w: version %d, %d rungs", errMemory, m.V, len(m.Rungs))
	}
	times := []time.Duration{m.At}
	for i := range m.Rungs {
		e := &m.Rungs[i]
		times = append(times, e.At, e.Next, e.Gap)
		if !slices.Contains(event.Limits, e.Name) {
			return nil, fmt.Errorf("%w: %q on a limit %q", errMemory, e.Rule, e.Name)
		}
	}
	if len(m.Alerts) > mostAlerts {
		return nil, fmt.Errorf("%w: %d alerts", errMemory, len(m.Alerts))
	}
	for i := range m.Alerts {
		a := &m.Alerts[i]
		times = append(times, a.Since)
		if !slices.Contains(event.Limits, a.Limit) || max(len(a.Scope), len(a.Rung), len(a.Action), len(a.Step)) > mostStep {
			return nil, fmt.Errorf("%w: an alert %q on a limit %q", errMemory, a.Rung, a.Limit)
		}
	}
	for _, t := range times {
		if t < 0 || t > math.MaxInt64/4 {
			return nil, fmt.Errorf("%w: a time of %d ns", errMemory, t)
		}
	}
	return m, nil
}

// Pass lets time go by up to now without a look. An action that ends between two
// looks has ended then, and not at the look before: called before [State.Done], it
// makes what follows count from the outcome's time.
func (s *State) Pass(now time.Duration) {
	s.now = max(s.now, now)
	if n := len(s.given); n > 0 && s.given[n-1].Passed > 0 {
		s.given = s.given[:n-1]
	}
	s.given = append(s.given, event.Given{Passed: now})
}

// moves says that judging these readings changes what the ladder remembers even if nothing
// fires, see [Judgement.Changed].
func (s *State) moves(limits []event.Limit) bool {
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

// Record is what a judgement was given, for [Repeat]. Head and N are the caller's.
func Record(in *Input, j *Judgement) event.Judged {
	e := event.Judged{Now: in.Now, Given: j.Given, Left: in.JobEnd, Asking: in.EndUnsure}
	for i := range in.Limits {
		l := &in.Limits[i]
		e.Limits = append(e.Limits, event.JudgedLimit{
			LimitID: l.ID(), PID: l.PID, Used: l.Used, Size: l.Limit, ETA: l.ETA, Outlook: l.Outlook, Binding: l.Binding,
		})
	}
	index := func(of event.LimitID) int {
		return slices.IndexFunc(in.Limits, func(l event.Limit) bool { return l.ID() == of })
	}
	for ask, lead := range in.Lead {
		e.Leads = append(e.Leads, event.JudgedLead{Rule: ask.Rule.String(), Limit: index(ask.On), Lead: lead})
	}
	for _, d := range j.Asked {
		e.Feasible = append(e.Feasible, event.JudgedFeasible{Rule: d.Rule.String(), Limit: index(d.On), Feasibility: in.Feasible[d.Ask]})
	}
	slices.SortFunc(e.Leads, func(a, b event.JudgedLead) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Rule, b.Rule))
	})
	return e
}

// Repeat makes a judgement again. It is the same, to the byte, for a ladder that has repeated
// all judgements before it that moved one ([Judgement.Moved]).
func Repeat(s *State, v *event.Judged) Judgement {
	for _, g := range v.Given {
		switch o := g.Outcome; {
		case o != nil:
			s.Done(event.Outcome{Decision: o.Decision, OK: o.OK, Reason: o.Reason, After: o.After, Freed: o.Freed})
		case g.Begun != 0:
			s.Begun(g.Begun)
		default:
			s.Pass(g.Passed)
		}
	}
	in := Input{
		Now: v.Now, JobEnd: v.Left, EndUnsure: v.Asking,
		Lead: map[event.Ask]rss.Bytes{}, Feasible: map[event.Ask]event.Feasibility{},
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		in.Limits = append(in.Limits, event.Limit{
			Name: l.Name, Scope: l.Scope, Accounting: l.Accounting, Level: l.Level, PID: l.PID,
			Used: l.Used, Limit: l.Size, ETA: l.ETA, Outlook: l.Outlook, Binding: l.Binding,
		})
	}
	rules := map[string]event.Rule{}
	for _, r := range s.rules {
		rules[r.String()] = r
	}
	for _, l := range v.Leads {
		in.Lead[event.Ask{Rule: rules[l.Rule], On: v.On(l.Limit)}] = l.Lead
	}
	for _, f := range v.Feasible {
		in.Feasible[event.Ask{Rule: rules[f.Rule], On: v.On(f.Limit)}] = f.Feasibility
	}
	s.Observe(in.Now, in.Limits)
	return s.Judge(in)
}
