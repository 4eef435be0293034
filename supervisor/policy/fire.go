package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// judging is one judgement, or a look at what one would ask.
type judging struct {
	*State
	in   *Input
	does bool // else nothing is changed
	out  Judgement

	need  Due // an answer that is missing
	needs bool
}

// warn fires what warns about l. Warnings block nothing.
func (j *judging) warn(l *event.Limit) {
	for i, r := range j.rules {
		if r.Action != event.ActionWarn || !r.Matches(l.Name) {
			continue
		}
		g := j.rung(i, l)
		if why, bad := hopeless(r, l); bad {
			j.skip(g, r, l, event.Feasibility{Reason: event.ReasonUnsupported, Detail: why})
		}
		lead, leaps, met := j.in.met(r, l)
		if !met {
			continue
		}
		if lead == 0 {
			j.raise(g)
		}
		if g.fired || j.now-g.at < g.gap {
			continue
		}
		g.gap = j.gap(g)
		d := j.decide(r, l, lead, leaps)
		j.fire(g, d.ID)
		j.out.Decisions = append(j.out.Decisions, d)
	}
}

// gap is how long a rung that warns now must be silent after it: twice as long
// as before, up to an hour, while its warnings come close upon each other. A
// job that the ladder carries crosses its rungs again and again.
func (s *State) gap(g *rung) time.Duration {
	if g.gap == 0 || s.now-g.at >= 4*g.gap {
		return warnEvery
	}
	return min(2*g.gap, time.Hour)
}

// JobEndAhead is how long before the job's end the first rule on it fires, 0
// where there is none.
func (s *State) JobEndAhead() time.Duration {
	var ahead time.Duration
	for _, r := range s.rules {
		if r.Limit == event.LimitTime {
			ahead = max(ahead, r.Cond.ETA)
		}
	}
	return ahead
}

// time serves the rules on the job's own end, which has no size.
func (j *judging) time() {
	if j.in.JobEnd <= 0 || j.in.EndUnsure {
		return
	}
	seconds := j.in.JobEnd.Seconds()
	l := &event.Limit{Name: event.LimitTime, Scope: event.ScopeJob, ETA: &seconds}
	for i, r := range j.rules {
		if r.Limit != event.LimitTime {
			continue
		}
		g := j.seen(i, l)
		if j.in.JobEnd >= 2*r.Cond.ETA {
			if j.does {
				j.reset(g)
			}
			continue
		}
		if j.in.JobEnd >= r.Cond.ETA || g.fired {
			continue
		}
		if r.Action != event.ActionWarn {
			h, known := j.help(r, l)
			if !known {
				return
			}
			if !h.OK {
				j.skip(g, r, l, h)
				continue
			}
		}
		if !j.does {
			continue
		}
		d := j.decide(r, l, 0, false)
		j.raise(g)
		j.fire(g, d.ID)
		j.out.Decisions = append(j.out.Decisions, d)
	}
}

// act decides on at most one action, for the limit that is most urgent.
func (j *judging) act() {
	for _, i := range byUrgency(j.in.Limits) {
		if j.needs || j.actOn(&j.in.Limits[i]) {
			return
		}
	}
}

// actOn decides on at most one action for l and says whether it did.
func (j *judging) actOn(l *event.Limit) bool {
	again, ahead, leap := -1, rss.Bytes(0), false
	for i, r := range j.rules {
		if r.Action == event.ActionWarn || !r.Matches(l.Name) {
			continue
		}
		g := j.seen(i, l)
		if why, bad := hopeless(r, l); bad {
			j.skip(g, r, l, event.Feasibility{Reason: event.ReasonUnsupported, Detail: why})
			continue
		}
		lead, leaps, met := j.in.met(r, l)
		if !met || j.waits(g, r, l) || lead > 0 && j.now < g.ahead {
			continue
		}
		if !g.ready(j.now, l) {
			if g.again && again < 0 {
				again, ahead, leap = i, lead, leaps
			}
			continue
		}
		if r.Action.Asks() && j.askedOn(i, l, j.in.Limits) {
			if j.does {
				j.fire(g, 0)
				g.quiet = true
			}
			continue
		}
		h, known := j.help(r, l)
		switch {
		case !known:
			return false
		case h.OK:
			j.begin(i, l, lead, leaps)
			return true
		case lead == 0:
			j.skip(g, r, l, h)
		case j.does:
			g.ahead, j.moved = j.now+repeatAfter, true // it was not crossed: there is nothing to say
		}
	}
	if again < 0 {
		return false
	}
	// What is repeated before its time waits for harder rules that could have a turn.
	r := j.rules[again]
	if h, known := j.help(r, l); !known || !h.OK || h.Gain < r.Again(l) {
		return false
	}
	j.begin(again, l, ahead, leap)
	return true
}

// seen is what is remembered of a rule on a limit. A look at what would be asked remembers
// nothing.
func (j *judging) seen(rule int, l *event.Limit) *rung {
	if j.does {
		return j.rung(rule, l)
	}
	if g := j.rungs[rungKey{l.ID(), rule}]; g != nil {
		return g
	}
	return &rung{}
}

func (j *judging) begin(rule int, l *event.Limit, lead rss.Bytes, leaps bool) {
	if !j.does {
		return
	}
	r, g := j.rules[rule], j.rung(rule, l)
	d := j.decide(r, l, lead, leaps)
	if lead == 0 {
		j.raise(g)
	}
	if leaps {
		g.gap = j.gap(g)
	}
	j.fire(g, d.ID)
	if !r.Action.Asks() {
		j.flight = &flight{
			id: d.ID, key: rungKey{l.ID(), rule}, at: j.now, rule: r, limit: *l, lead: lead > 0, leaps: leaps, under: j.flight,
		}
		j.stopped = r.Action == event.ActionStop
	}
	j.out.Decisions = append(j.out.Decisions, d)
}

// met says whether the rung of r is crossed, or will be, by lead, before its
// action takes effect, or whether a spike would leap over it and reach the limit.
func (in *Input) met(r event.Rule, l *event.Limit) (lead rss.Bytes, leaps, met bool) {
	if crossed(r, l, in.JobEnd) {
		return 0, false, true
	}
	at, ok := r.At(l.Limit)
	if !ok {
		return 0, false, false
	}
	if lead = in.Lead[event.Ask{Rule: r, On: l.ID()}]; lead > 0 && l.Used+lead >= at {
		return lead, false, true
	}
	switch r.Action {
	case event.ActionWarn, event.ActionTrim, event.ActionRecycle: // what pauses or ends the job is not done on a guess
		leaps = l.Leaps()
	}
	return at - l.Used, leaps, leaps
}

// askPatience is how long a rule with signal= or exec= waits for actions in flight, which
// may make it needless.
const askPatience = 5 * time.Second

// waits says whether r must wait for actions in flight. A stop never does: they may hang,
// and then the kernel ends the job. signal= and exec= wait for [askPatience] at most, for
// one action or several in a row, and not where use grew by as much since the action began
// as is left.
func (j *judging) waits(g *rung, r event.Rule, l *event.Limit) bool {
	f := j.flight
	switch {
	case r.Action == event.ActionStop:
		return false
	case f == nil:
		return j.now < j.coolTill
	case !r.Action.Asks():
		return true
	}
	since := j.now
	switch {
	case g.waits:
		since = g.since
	case j.does:
		g.waits, g.since, j.moved = true, j.now, true
	}
	grown := f.key.limit == l.ID() && l.Used.Sub(f.limit.Used) >= l.Headroom()
	return j.now-min(f.at, since) < askPatience && !grown
}

// askedOn says whether the rule has asked already, for another limit whose rung
// is not left yet. Step and job often have the same limit; a process is asked
// only once. Of two steps each has its own to ask.
func (s *State) askedOn(rule int, l *event.Limit, limits []event.Limit) bool {
	for i := range limits {
		o := &limits[i]
		g := s.rungs[rungKey{o.ID(), rule}]
		if o.ID() != l.ID() && g != nil && g.fired && !g.quiet && !apart(o, l) {
			return true
		}
	}
	return false
}

func apart(a, b *event.Limit) bool {
	return a.Name == b.Name && a.Scope == event.ScopeStep && b.Scope == event.ScopeStep &&
		!strings.HasPrefix(a.Level, b.Level) && !strings.HasPrefix(b.Level, a.Level)
}

// help says whether r can help l now, known false where that is to be asked.
func (j *judging) help(r event.Rule, l *event.Limit) (h event.Feasibility, known bool) {
	switch {
	case r.Action == event.ActionStop:
		return event.Feasibility{OK: true}, true
	case r.Action == event.ActionRecycle && j.noFork:
		return event.Feasibility{Reason: event.ReasonForkRefused}, true
	}
	ask := event.Ask{Rule: r, On: l.ID()}
	h, known = j.in.Feasible[ask]
	switch {
	case known && j.does:
		j.out.Asked = append(j.out.Asked, Due{ask, l})
	case j.does:
		h.Reason = event.ReasonUnsupported
	case !known:
		j.need, j.needs = Due{ask, l}, true
		return h, false
	}
	if h.OK && h.Gain > 0 && !h.AtLeast && h.Gain < r.Worth(l) {
		return event.Feasibility{Reason: event.ReasonNothing}, true
	}
	if !h.OK && h.Reason == event.ReasonNone {
		h.Reason = event.ReasonNoHelp
	}
	return h, true
}

// skip says once for a crossing and a reason that r was not asked for.
func (j *judging) skip(g *rung, r event.Rule, l *event.Limit, h event.Feasibility) {
	if !j.does || h.Later || slices.Contains(g.told, h.Reason) {
		return
	}
	g.told = append(g.told, h.Reason)
	j.moved = true
	j.out.Skipped = append(j.out.Skipped, Skipped{
		Rule: r, On: l.ID(), ETA: l.ETA,
		Reason: h.Reason, Detail: h.Detail, Used: l.Used, LimitSize: l.Limit,
	})
}

func (s *State) decide(r event.Rule, l *event.Limit, lead rss.Bytes, leaps bool) event.Decision {
	d := event.Decision{
		ID: s.nextID, Rule: r.String(), Limit: l.Name, Action: r.Action, Arg: r.Arg, Rung: r, On: l.ID(),
		PID: l.PID, Used: l.Used, LimitSize: l.Limit, Lead: lead,
		ETA: l.ETA, Outlook: l.Outlook,
	}
	if !leaps {
		d.Spike = nil
	}
	d.Threshold, _ = r.At(l.Limit)
	s.nextID++
	return d
}
