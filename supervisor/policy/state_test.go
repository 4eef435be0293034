package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// rules parses a ladder, one rule a line.
func rules(t testing.TB, text string) []event.Rule {
	t.Helper()
	var out []event.Rule
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		r, err := event.ParseRule(line)
		wardentest.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// slurm is a summed-RSS limit of 3000 MiB with so many percent used.
func slurm(percent float64) event.Limit {
	return event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS,
		Used: (3000 * rss.MiB).Scale(percent / 100), Limit: 3000 * rss.MiB,
	}
}

// canAll helps always, by an unknown amount.
func canAll(event.Rule, *event.Limit) event.Feasibility { return event.Feasibility{OK: true} }

// reading is one look of a test: can and lead are what each action could do and how far ahead
// it fires, nil for nothing.
type reading struct {
	Now, JobEnd time.Duration
	EndUnsure   bool
	Limits      []event.Limit
	Can         func(event.Rule, *event.Limit) event.Feasibility
	Lead        func(event.Rule, *event.Limit) rss.Bytes
}

// told is what a ladder makes of it.
type told struct {
	Judgement
	Limits []event.Limit // with forecasts
}

// forecasts are those of each ladder of a test.
var forecasts sync.Map

func step(s *State, r reading) told {
	f, _ := forecasts.LoadOrStore(s, &Forecasts{})
	limits := f.(*Forecasts).Of(r.Now, r.Limits, s.InFlight() != 0)
	s.Observe(r.Now, limits)
	in := Input{Now: r.Now, Limits: limits, JobEnd: r.JobEnd, EndUnsure: r.EndUnsure, Lead: map[event.Ask]rss.Bytes{}}
	for rule, l := range s.Uncrossed(limits) {
		if r.Lead != nil {
			in.Lead[event.Ask{Rule: rule, On: l.ID()}] = r.Lead(rule, l)
		}
	}
	for due := range s.Asks(&in) {
		if r.Can == nil {
			break
		}
		in.Feasible[due.Ask] = r.Can(due.Rule, due.Reading)
	}
	return told{s.Judge(in), limits}
}

// script drives a State through steps and outcomes and writes down what it
// says, one word a happening.
type script struct {
	t    *testing.T
	s    *State
	now  time.Duration
	can  func(event.Rule, *event.Limit) event.Feasibility
	end  time.Duration
	last event.Decision

	answers map[string]event.Feasibility // by action or limit, of TestLadder
	leads   map[string]rss.Bytes         // by action
	ids     map[string]uint64            // of the last decision of each rule
	seen    []event.Limit                // in the last look
	changes uint64                       // as they were counted last
}

func newScript(t *testing.T, ladder string) *script {
	return &script{t: t, s: New(rules(t, ladder), 1), can: canAll}
}

// at lets d pass and looks at limits.
func (c *script) at(d time.Duration, limits ...event.Limit) []string {
	c.now += d
	res := step(c.s, reading{
		Now: c.now, Limits: limits, JobEnd: c.end, Can: c.can,
		Lead: func(r event.Rule, _ *event.Limit) rss.Bytes { return c.leads[string(r.Action)] },
	})
	c.seen = limits
	var said []string
	for _, x := range res.Skipped {
		said = append(said, fmt.Sprintf("skip %s: %s", x.Rule, x.Reason))
	}
	for _, d := range res.Decisions {
		said = append(said, d.Rule)
		c.last = d
		if c.ids != nil {
			c.ids[d.Rule] = d.ID
		}
	}
	return said
}

// want checks what a step said.
func (c *script) want(got []string, want ...string) {
	c.t.Helper()
	if !slices.Equal(got, want) {
		c.t.Fatalf("at %v: %q, want %q", c.now, got, want)
	}
}

// done reports the last decision's outcome.
func (c *script) done(ok bool, reason event.Reason, before, after float64) {
	b, a := slurm(before).Used, slurm(after).Used
	c.s.Done(event.Outcome{Decision: c.last.ID, OK: ok, Reason: reason, Before: b, After: a, Freed: b.Sub(a)})
}

// play plays one line of a script, which may go on with another ladder.
func (c *script) play(line string) *script {
	c.t.Helper()
	words := strings.Fields(line)
	number := func(text string) float64 {
		v, err := strconv.ParseFloat(text, 64)
		wardentest.NoError(c.t, err)
		return v
	}
	switch words[0] {
	case "can":
		h := event.Feasibility{OK: words[2] == "yes"}
		switch reason := strings.Join(words[2:], " "); {
		case h.OK && len(words) > 3:
			h.Gain = rss.Bytes(number(words[3])) * rss.MiB
		case reason == "nothing":
			h.Reason = event.ReasonUnsupported
		case !h.OK && reason != "no":
			h.Reason = event.Reason(reason)
		}
		c.answers[words[1]] = h
	case "lead":
		c.leads[words[1]] = rss.Bytes(number(words[2])) * rss.MiB
	case "ahead":
		if c.last.Lead != rss.Bytes(number(words[1]))*rss.MiB {
			c.t.Fatalf("at %v: %+v", c.now, c.last)
		}
	case "changed": // what would be handed over, since the last of these lines
		if now := c.s.Changes(); (now != c.changes) != (words[1] == "yes") {
			c.t.Fatalf("at %v: %d changes, before %d", c.now, now, c.changes)
		}
		c.changes = c.s.Changes()
	case "moves":
		if got := c.s.moves([]event.Limit{c.limit(words[1], number)}); got != (words[2] == "yes") {
			c.t.Fatalf("at %v, %s: moves %v", c.now, words[1], got)
		}
	case "ended":
		c.s.Done(event.Outcome{Decision: c.ids[strings.Join(words[1:], " ")], OK: true})
	case "raised":
		var all []string
		for _, r := range c.s.Raised(c.seen) {
			all = append(all, fmt.Sprintf("%s since %v", r.Rule, r.Since))
		}
		if got, want := strings.Join(all, ", "), strings.Join(words[1:], " "); got != want {
			c.t.Fatalf("at %v: raised %q, want %q", c.now, got, want)
		}
	case "end":
		c.end, _ = time.ParseDuration(words[1])
	case "done", "failed":
		reason := event.ReasonDone
		if len(words) > 3 {
			reason = event.Reason(strings.Join(words[3:], " "))
		}
		c.done(words[0] == "done", reason, number(words[1]), number(words[2]))
	case "flight":
		if f := c.s.flight; (f == nil) != (words[1] == "none") || f != nil && f.rule.String() != words[1] {
			c.t.Fatalf("at %v: %+v is in flight", c.now, f)
		}
	case "stopped":
		if c.s.Stopped() != (words[1] == "yes") {
			c.t.Fatalf("at %v: stopped %v", c.now, c.s.Stopped())
		}
	case "on":
		if string(c.last.Limit) != words[1] {
			c.t.Fatalf("at %v: %+v", c.now, c.last)
		}
	case "begun":
		c.s.Begun(c.last.ID)
	case "handover":
		waiting := uint64(0)
		if len(words) > 1 {
			waiting = c.last.ID
		}
		return c.successor(waiting)
	default:
		pause, err := time.ParseDuration(words[0])
		wardentest.NoError(c.t, err)
		looked, said, ok := strings.Cut(line, ">")
		if !ok {
			c.t.Fatalf("%q is no line of a script", line)
		}
		var limits []event.Limit
		for _, word := range strings.Fields(looked)[1:] {
			limits = append(limits, c.limit(word, number))
		}
		var want []string
		if said = strings.TrimSpace(said); said != "" {
			want = strings.Split(said, ", ")
		}
		c.want(c.at(pause, limits...), want...)
	}
	return c
}

// limit reads a limit of a script.
func (c *script) limit(word string, number func(string) float64) event.Limit {
	used, level, _ := strings.Cut(word, "@")
	name, rest, named := strings.Cut(used, ":")
	if named {
		used = rest
	}
	used, most, isPSS := strings.Cut(used, "most")
	used, of, other := strings.Cut(used, "of")
	free, isFree := strings.CutPrefix(used, "free")
	l := slurm(0)
	if isFree {
		l.Used = l.Limit - rss.Bytes(number(free))*rss.MiB
	} else {
		l = slurm(number(used))
	}
	switch {
	case name == "job" && named:
		l.Scope = event.ScopeJob
	case named:
		l.Name = event.LimitName(name)
	}
	if l.Level = level; other {
		l.Limit = rss.Bytes(number(of)) * rss.MiB
	}
	if isPSS {
		l.Accounting, l.UsedMax = event.AccountingPSS, slurm(number(most)).Used
	}
	return l
}

const second = time.Second

func TestDecisionSaysWhy(t *testing.T) {
	c := newScript(t, "85%:trim")
	c.want(c.at(second, slurm(88)), "85%:trim")
	l := slurm(88)
	want := event.Decision{
		ID: 1, Rule: "85%:trim", Limit: event.LimitSlurm, Action: event.ActionTrim,
		Rung: event.Rule{Cond: percent(85), Action: event.ActionTrim}, On: l.ID(), Used: l.Used, LimitSize: l.Limit, Threshold: 2550 * rss.MiB,
	}
	if c.last != want {
		t.Errorf("decision %+v, want %+v", c.last, want)
	}
	if c.s.InFlight() != 1 {
		t.Errorf("in flight %d, want 1", c.s.InFlight())
	}
}

// TestLimitsThatAreGoneAreForgotten: a job may have thousands of steps, each
// with limits of its own. One that cannot be read for a moment keeps its rungs.
func TestLimitsThatAreGoneAreForgotten(t *testing.T) {
	c := newScript(t, "80%:warn\n85%:trim\n93%:signal=USR2")
	step := func(n int) event.Limit {
		l := slurm(85)
		l.Level = fmt.Sprint("46.", n)
		return l
	}
	for n := range 200 {
		c.at(time.Minute, step(n))
		c.done(true, event.ReasonDone, 85, 85)
	}
	if most := int(forgotten/time.Minute) + 2; len(c.s.away) > most || len(c.s.rungs) > most*len(c.s.rules) {
		t.Errorf("%d limits and %d rungs are remembered, want %d of the last minutes", len(c.s.away), len(c.s.rungs), most)
	}
	c.want(c.at(time.Minute, slurm(94)), "80%:warn", "85%:trim")
	c.done(true, event.ReasonDone, 94, 94)
	c.want(c.at(second, slurm(94)), "93%:signal=USR2")
	c.at(5 * time.Minute)
	if got := c.at(second, slurm(94)); slices.Contains(got, "93%:signal=USR2") {
		t.Errorf("asked again, %q", got)
	}
}

func TestFirstID(t *testing.T) {
	s := New(rules(t, "80%:warn"), 2)
	res := step(s, reading{Now: second, Limits: []event.Limit{slurm(90)}})
	if len(res.Decisions) != 1 || res.Decisions[0].ID != 2<<32|1 {
		t.Errorf("decisions %+v", res.Decisions)
	}
	if got := s.Rules(); len(got) != 1 {
		t.Errorf("rules %v", got)
	}
}

// A job that the ladder carries goes up and down through its rungs.
func TestWarningsThin(t *testing.T) {
	c := newScript(t, "80%:warn")
	var at []time.Duration
	for range 240 {
		c.at(30*second, slurm(70))
		if len(c.at(30*second, slurm(81))) > 0 {
			at = append(at, c.now)
		}
	}
	m := time.Minute
	if want := []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, 64 * m, 124 * m, 184 * m}; !slices.Equal(at, want) {
		t.Errorf("warned at %v, want %v", at, want)
	}
	c.at(second, slurm(10))
	c.want(c.at(4*time.Hour, slurm(81)), "80%:warn") // that was long ago
	c.at(second, slurm(10))
	c.want(c.at(time.Minute, slurm(81)), "80%:warn")
}

// Actions that follow upon each other, each of some use and none of enough,
// must not keep the trainer from its checkpoint either.
func TestAskWaitsForOneActionNotForAll(t *testing.T) {
	c := newScript(t, "90%:recycle\n93%:signal=USR2")
	c.want(c.at(0, slurm(95)), "90%:recycle")
	for c.now < time.Minute && !slices.Contains(c.at(second, slurm(95)), "93%:signal=USR2") {
		c.done(true, event.ReasonDone, 95, 92)
		c.want(c.at(second, slurm(92)), "90%:recycle") // below the rung, and not left
	}
	if most := askPatience + 2*second; c.now > most {
		t.Errorf("asked after %v of recycles, want %v at most", c.now, most)
	}
}

// TestUselessCollectionThins: collecting garbage stops the trainer, so where it frees
// nothing it is done less and less often.
func TestUselessCollectionThins(t *testing.T) {
	c := newScript(t, "85%:gc")
	var at []time.Duration
	for range 240 {
		if len(c.at(15*second, slurm(90))) > 0 {
			at = append(at, c.now)
			c.done(true, event.ReasonDone, 90, 90)
		}
	}
	var gaps []time.Duration
	for i := range at[1:] {
		gaps = append(gaps, at[i+1]-at[i])
	}
	want := []time.Duration{30 * second, 60 * second, 120 * second, 240 * second, 480 * second, 960 * second}
	if !slices.Equal(gaps, want) {
		t.Errorf("collected %v apart, want %v", gaps, want)
	}
	c.at(second, slurm(10))
	c.want(c.at(10*second, slurm(90)), "85%:gc") // a new crossing
}

// history is what the properties remember of one rule on one limit.
type history struct {
	fired  bool
	left   bool // below its re-arm line since
	at     time.Duration
	helped bool
}

type pairKey struct {
	rule  string
	limit event.LimitName
}

// TestProperties walks at random: use jumps and creeps, outcomes come late, in
// any shape or never, actions can and cannot help.
func TestProperties(t *testing.T) {
	for seed := range uint64(60) {
		walk(t, rand.New(rand.NewPCG(seed, 7)), seed)
		if t.Failed() {
			return
		}
	}
}

func walk(t *testing.T, rng *rand.Rand, seed uint64) {
	ladder := Default()
	for _, extra := range rules(t, "free<450M:trim\nslurm 93%:gc\n95%:signal=USR2\nuser 96%:exec=x\neta<5m:recycle\n98%:requeue\n99.5%:stop") {
		if rng.IntN(2) == 0 {
			ladder = append(ladder, extra)
		}
	}
	s := New(ladder, 1)
	byText := map[string]event.Rule{}
	for _, r := range ladder {
		byText[r.String()] = r
	}
	var (
		now      time.Duration
		used     = [2]float64{rng.Float64() * 80, rng.Float64() * 80}
		seen     = map[pairKey]*history{}
		flight   *event.Decision
		coolTill time.Duration
		settled  bool
		stopped  bool
	)
	can := func(event.Rule, *event.Limit) event.Feasibility {
		return event.Feasibility{OK: rng.IntN(4) > 0, Gain: rss.Bytes(rng.IntN(500)) * rss.MiB}
	}
	for range 3000 {
		now += time.Duration(rng.IntN(3000)) * time.Millisecond
		limits := []event.Limit{slurm(used[0]), slurm(used[1])}
		limits[1].Name = event.LimitUser
		if settled {
			settled = false
			coolTill = now + coolDown
		}
		res := step(s, reading{Now: now, Limits: limits, Can: can})
		for k, h := range seen {
			l := &res.Limits[0]
			if k.limit == event.LimitUser {
				l = &res.Limits[1]
			}
			if r := byText[k.rule]; r.Cond.Kind == event.KindETA || l.Used < r.Rearm(l.Limit) {
				h.left = true // a forecast's own rule is tested in TestForecastRuleArmsAgain
			}
		}
		actions := 0
		for _, d := range res.Decisions {
			r := byText[d.Rule]
			if stopped {
				t.Errorf("seed %d: %s after a stop", seed, d.Rule)
			}
			if r.Cond.Kind == event.KindETA {
				if d.ETA == nil || *d.ETA >= r.Cond.ETA.Seconds() || d.Used*2 <= d.LimitSize {
					t.Errorf("seed %d: %s fired on %+v", seed, d.Rule, d)
				}
			} else if leaps := d.Spike != nil && d.Used+d.Spike.Ahead() >= d.LimitSize; d.Used < d.Threshold && !leaps || d.Threshold == 0 {
				t.Errorf("seed %d: %s fired at %v, below %v", seed, d.Rule, d.Used, d.Threshold)
			}
			k := pairKey{d.Rule, d.Limit}
			h := seen[k]
			if h == nil {
				h = &history{}
				seen[k] = h
			}
			if h.fired && !h.left {
				switch {
				case !r.Action.Frees():
					t.Errorf("seed %d: %s fired twice for one crossing", seed, d.Rule)
				case !h.helped && now-h.at < repeatAfter:
					t.Errorf("seed %d: %s again %v after it had freed nothing", seed, d.Rule, now-h.at)
				}
			}
			if r.Action == event.ActionWarn && h.fired && now-h.at < warnEvery {
				t.Errorf("seed %d: %s warned again after %v", seed, d.Rule, now-h.at)
			}
			*h = history{fired: true, at: now}
			if r.Action == event.ActionWarn {
				continue
			}
			actions++
			if r.Action == event.ActionStop {
				stopped = true
			} else if r.Action.Asks() {
				continue // nothing waits for it
			} else if flight != nil {
				t.Errorf("seed %d: %s while %s is in flight", seed, d.Rule, flight.Rule)
			} else if now < coolTill {
				t.Errorf("seed %d: %s in the cool-down", seed, d.Rule)
			}
			flight = &d
		}
		if actions > 1 {
			t.Errorf("seed %d: %d actions in one step", seed, actions)
		}
		if t.Failed() {
			return
		}
		for i := range used {
			used[i] = min(max(used[i]+rng.NormFloat64()*2, 0), 104)
		}
		if flight == nil || stopped || rng.IntN(3) > 0 {
			continue
		}
		i := 0
		if flight.Limit == event.LimitUser {
			i = 1
		}
		o := event.Outcome{Decision: flight.ID, OK: rng.IntN(4) > 0, Before: slurm(used[i]).Used}
		if o.OK {
			used[i] -= rng.Float64() * used[i] / 2
		}
		o.After = slurm(used[i]).Used
		o.Freed = o.Before.Sub(o.After)
		r := byText[flight.Rule]
		line := r.Rearm(flight.LimitSize)
		h := seen[pairKey{flight.Rule, flight.Limit}]
		if r.Cond.Kind == event.KindETA {
			h.helped = o.OK && o.Freed >= event.MinGain(0)
			settled = h.helped
		} else {
			worth := max(16*rss.MiB, (flight.Used.Sub(line)).Scale(0.05))
			if r.Action == event.ActionRecycle {
				worth = min(16*rss.MiB, flight.LimitSize/200) // one worker's part of what is wanted
			}
			h.helped = o.OK && o.Freed >= worth
			settled = o.OK && o.After <= line
		}
		s.Done(o)
		flight = nil
	}
}

// TestAsksOneAfterTheOther: what a milder rule can do spares the question about the next, and
// asking changes nothing that is remembered.
func TestAsksOneAfterTheOther(t *testing.T) {
	for answers, want := range map[string]string{
		"yes":        "85%:trim",
		"no yes":     "85%:trim 90%:recycle",
		"no no no":   "85%:trim 90%:recycle 93%:signal=USR2",
		"no no":      "85%:trim 90%:recycle 93%:signal=USR2", // the last is not answered
		"no no yes!": "85%:trim 90%:recycle 93%:signal=USR2",
	} {
		s := New(rules(t, "80%:warn\n85%:trim\n90%:recycle\n93%:signal=USR2\n97%:stop"), 1)
		in := Input{Now: second, Limits: []event.Limit{slurm(95)}}
		s.Observe(second, in.Limits)
		before := s.Snapshot(second, second, 0)
		given := strings.Fields(answers)
		var asked []string
		for due := range s.Asks(&in) {
			asked = append(asked, due.Rule.String())
			if len(given) > 0 {
				in.Feasible[due.Ask] = event.Feasibility{OK: strings.HasPrefix(given[0], "yes")}
				given = given[1:]
			}
		}
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("answered %s: asked %s, want %s", answers, got, want)
		}
		if len(s.rungs) > 0 || s.flight != nil || !reflect.DeepEqual(before, s.Snapshot(second, second, 0)) {
			t.Errorf("answered %s: something is remembered: %d rungs", answers, len(s.rungs))
		}
	}
}

// TestAgain: a ladder that is given only the judgements that have moved another one decides
// the same, whatever limits come and go, and whatever comes of actions.
func TestAgain(t *testing.T) {
	for seed := range uint64(20) {
		if diff := again(t, rand.New(rand.NewPCG(seed, 11))); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

func again(t *testing.T, rng *rand.Rand) string {
	ladder := append(Default(), rules(t, "free<450M:trim\nslurm 93%:gc\n95%:signal=USR2\neta<5m:recycle\ntime eta<30m:signal=USR1\n98%:requeue\n99.5%:stop")...)
	live, repeat := New(ladder, 1), New(ladder, 1)
	var flight []uint64
	now, used, away := time.Duration(0), [3]float64{60, 70, 50}, [3]time.Duration{}
	for range 2000 {
		now += time.Duration(rng.IntN(3000)) * time.Millisecond
		if rng.IntN(50) == 0 {
			now += time.Duration(rng.IntN(600)) * time.Second
		}
		in := Input{Now: now, JobEnd: max(time.Hour-now/4, time.Second), EndUnsure: rng.IntN(20) == 0, Lead: map[event.Ask]rss.Bytes{}}
		for i := range used {
			used[i] = min(max(used[i]+rng.NormFloat64()*3, 20), 102)
			if now >= away[i] && rng.IntN(100) == 0 {
				away[i] = now + time.Duration(rng.IntN(1200))*time.Second
			}
			if now < away[i] {
				continue
			}
			l := slurm(used[i])
			l.Name = []event.LimitName{event.LimitSlurm, event.LimitCgroup, event.LimitUser}[i]
			l.Binding = len(in.Limits) == 0
			if rng.IntN(3) > 0 {
				eta := rng.Float64() * 1500
				l.ETA, l.ETAHigh = &eta, &eta
			}
			if rng.IntN(20) == 0 {
				l.Spike = &event.Spike{Bytes: rss.Bytes(rng.IntN(1500)) * rss.MiB}
			}
			in.Limits = append(in.Limits, l)
		}
		live.Observe(now, in.Limits)
		for r, l := range live.Uncrossed(in.Limits) {
			if r.Action.Frees() && rng.IntN(4) == 0 {
				in.Lead[event.Ask{Rule: r, On: l.ID()}] = l.Limit.Scale(0.1)
			}
		}
		for due := range live.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{
				OK: rng.IntN(3) > 0, Gain: rss.Bytes(rng.IntN(500)) * rss.MiB, Later: rng.IntN(4) == 0,
				Reason: []event.Reason{event.ReasonNone, event.ReasonNoWorker, event.ReasonNothing}[rng.IntN(3)],
			}
		}
		j := live.Judge(in)
		switch {
		case j.Moved:
			was := Record(&in, &j)
			second := Repeat(repeat, &was)
			if diff := cmp.Diff(j.Decisions, second.Decisions) + cmp.Diff(j.Skipped, second.Skipped); diff != "" {
				return fmt.Sprintf("at %v (-first, +again):\n%s", now, diff)
			}
		case len(j.Decisions)+len(j.Skipped) > 0:
			return fmt.Sprintf("at %v a judgement that has not moved the ladder has %v, %v", now, j.Decisions, j.Skipped)
		}
		for _, d := range j.Decisions {
			if !d.Action.Asks() && d.Action != event.ActionWarn {
				flight = append(flight, d.ID)
			}
		}
		switch rng.IntN(8) {
		case 0:
			live.Pass(now + time.Duration(rng.IntN(200))*time.Millisecond)
		case 1, 2, 3:
			if n := len(flight); n > 0 {
				o := event.Outcome{Decision: flight[n-1], OK: rng.IntN(3) > 0, After: slurm(used[0]).Used, Freed: rss.Bytes(rng.IntN(300)) * rss.MiB}
				o.Reason = []event.Reason{event.ReasonDone, event.ReasonRecovered, event.ReasonTimeout, event.ReasonForkRefused}[min(rng.IntN(40), 3)]
				if rng.IntN(4) == 0 {
					live.Begun(o.Decision)
				}
				live.Pass(now + time.Duration(rng.IntN(200))*time.Millisecond)
				live.Done(o)
				flight = flight[:n-1]
			}
		}
	}
	return ""
}
