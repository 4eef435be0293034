package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// warn fires what warns about l. Warnings block nothing.
func (s *State) warn(res *Result, l *event.Limit, in Input) {
	for i, r := range s.rules {
		if r.Action != event.ActionWarn || !r.Matches(l.Name) {
			continue
		}
		g := s.rung(i, l)
		if why, bad := hopeless(r, l); bad {
			s.skip(res, g, r, l, Help{Reason: event.ReasonUnsupported, Detail: why})
		}
		lead, met := in.met(r, l)
		if !met {
			continue
		}
		if lead == 0 {
			s.raise(g)
		}
		if g.fired || s.now-g.at < g.gap {
			continue
		}
		g.gap = s.gap(g)
		d := s.decide(r, l)
		d.Lead = lead
		s.fire(g, d.ID)
		res.Decisions = append(res.Decisions, d)
	}
}

// gap is how long a rung that warns now must be silent after it: twice as long
// as before, up to an hour, while its warnings come close upon each other. A
// job that the ladder carries crosses its rungs again and again.
func (s *State) gap(g *rung) time.Duration {
	if g.gap == 0 || s.now-g.at >= 4*g.gap {
		return s.opts.WarnEvery
	}
	return min(2*g.gap, max(time.Hour, s.opts.WarnEvery))
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
func (s *State) time(res *Result, in Input) {
	if in.JobEnd <= 0 || in.EndUnsure {
		return
	}
	seconds := in.JobEnd.Seconds()
	l := event.Limit{Name: event.LimitTime, Scope: event.ScopeJob, ETA: &seconds}
	for i, r := range s.rules {
		if r.Limit != event.LimitTime {
			continue
		}
		g := s.rung(i, &l)
		if in.JobEnd >= 2*r.Cond.ETA {
			s.reset(g)
		}
		if in.JobEnd >= r.Cond.ETA || g.fired {
			continue
		}
		if r.Action != event.ActionWarn {
			if h := s.help(r, &l, in); !h.OK {
				s.skip(res, g, r, &l, h)
				continue
			}
		}
		d := s.decide(r, &l)
		s.raise(g)
		s.fire(g, d.ID)
		res.Decisions = append(res.Decisions, d)
	}
}

// act decides on at most one action for l and says whether it did.
func (s *State) act(res *Result, l *event.Limit, in Input) bool {
	again, ahead := -1, rss.Bytes(0)
	for i, r := range s.rules {
		if r.Action == event.ActionWarn || !r.Matches(l.Name) {
			continue
		}
		if why, bad := hopeless(r, l); bad {
			s.skip(res, s.rung(i, l), r, l, Help{Reason: event.ReasonUnsupported, Detail: why})
			continue
		}
		lead, met := in.met(r, l)
		if !met {
			continue
		}
		g := s.rung(i, l)
		if s.waits(g, r, l) {
			continue
		}
		if lead > 0 && s.now < g.ahead {
			continue
		}
		if !g.ready(s.now, l) {
			if g.again && again < 0 {
				again, ahead = i, lead
			}
			continue
		}
		if r.Action.Asks() && s.askedOn(i, l, res.Limits) {
			s.fire(g, 0)
			g.quiet = true
			continue
		}
		if h := s.help(r, l, in); !h.OK {
			if lead > 0 {
				g.ahead = s.now + s.opts.Repeat // it was not crossed: there is nothing to say
			} else {
				s.skip(res, g, r, l, h)
			}
			continue
		}
		s.begin(res, i, l, lead)
		return true
	}
	if again < 0 {
		return false
	}
	// What is repeated before its time waits for harder rules that could have a turn.
	r := s.rules[again]
	if h := s.help(r, l, in); !h.OK || h.Gain < r.Again(l) {
		return false
	}
	s.begin(res, again, l, ahead)
	return true
}

// begin decides on the action of a rule.
func (s *State) begin(res *Result, rule int, l *event.Limit, lead rss.Bytes) {
	r, g := s.rules[rule], s.rung(rule, l)
	d := s.decide(r, l)
	d.Lead = lead
	if lead == 0 {
		s.raise(g)
	}
	s.fire(g, d.ID)
	if !r.Action.Asks() {
		s.flight = &flight{
			id: d.ID, key: rungKey{l.ID(), rule}, at: s.now, rule: r, limit: *l, lead: lead > 0, under: s.flight,
		}
		s.stopped = r.Action == event.ActionStop
	}
	res.Decisions = append(res.Decisions, d)
}

// met says whether the rung of r is crossed, or will be, by lead, before its
// action takes effect.
func (in *Input) met(r event.Rule, l *event.Limit) (lead rss.Bytes, met bool) {
	if crossed(r, l, in.JobEnd) {
		return 0, true
	}
	at, ok := r.At(l.Limit)
	if !ok || in.Lead == nil {
		return 0, false
	}
	lead = in.Lead(r, l)
	return lead, lead > 0 && l.Used+lead >= at
}

// askPatience is how long a rule that asks somebody waits for actions in
// flight, which may yet make it needless.
const askPatience = 5 * time.Second

// waits says whether r must wait its turn. A stop never does: what it would
// wait for may hang, and then the kernel ends the job. What asks somebody waits
// no longer than [askPatience], for one action or for several upon each other,
// and not where as much was used up since the action began as is left.
func (s *State) waits(g *rung, r event.Rule, l *event.Limit) bool {
	switch {
	case r.Action == event.ActionStop:
		return false
	case s.flight == nil:
		return s.now < s.coolTill
	case !r.Action.Asks():
		return true
	}
	if !g.waits {
		g.waits, g.since = true, s.now
	}
	f := s.flight
	grown := f.key.limit == l.ID() && l.Used.Sub(f.limit.Used) >= l.Headroom()
	return s.now-min(f.at, g.since) < askPatience && !grown
}

// askedOn says whether the rule has asked already, for another limit whose rung
// is not left yet. Step and job often have the same limit; whoever is asked has
// one thing to do. Of two steps each has its own to ask.
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

// apart says that two limits are those of two steps.
func apart(a, b *event.Limit) bool {
	return a.Name == b.Name && a.Scope == event.ScopeStep && b.Scope == event.ScopeStep &&
		!strings.HasPrefix(a.Level, b.Level) && !strings.HasPrefix(b.Level, a.Level)
}

// help asks whether r can help l now.
func (s *State) help(r event.Rule, l *event.Limit, in Input) Help {
	switch {
	case r.Action == event.ActionStop:
		return Help{OK: true}
	case r.Action == event.ActionRecycle && s.noFork:
		return Help{Reason: event.ReasonForkRefused}
	case in.Can == nil:
		return Help{Reason: event.ReasonUnsupported}
	}
	h := in.Can(r, l)
	if h.OK && h.Gain > 0 && !h.More && h.Gain < r.Worth(l) {
		return Help{Reason: event.ReasonNothing}
	}
	if !h.OK && h.Reason == event.ReasonNone {
		h.Reason = event.ReasonNoHelp
	}
	return h
}

// skip says once for a crossing and a reason that r was not asked for.
func (s *State) skip(res *Result, g *rung, r event.Rule, l *event.Limit, h Help) {
	if h.Later || slices.Contains(g.told, h.Reason) {
		return
	}
	g.told = append(g.told, h.Reason)
	res.Skipped = append(res.Skipped, Skipped{
		Rule: r, On: l.ID(), ETA: l.ETA,
		Reason: h.Reason, Detail: h.Detail, Used: l.Used, LimitSize: l.Limit,
	})
}

func (s *State) decide(r event.Rule, l *event.Limit) event.Decision {
	d := event.Decision{
		ID: s.nextID, Rule: r.String(), Limit: l.Name, Action: r.Action, Arg: r.Arg, Rung: r, On: l.ID(),
		PID: l.PID, Used: l.Used, LimitSize: l.Limit, ETA: l.ETA,
	}
	d.Threshold, _ = r.At(l.Limit)
	if f := s.trends[l.ID()]; f != nil && f.ok && l.ETA != nil {
		low, high := f.low.Seconds(), f.high.Seconds()
		d.ETALow, d.ETAHigh = &low, &high
	}
	s.nextID++
	return d
}
