package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
		if err != nil {
			t.Fatal(err)
		}
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
func canAll(event.Rule, *event.Limit) Help { return Help{OK: true} }

// script drives a State through steps and outcomes and writes down what it
// says, one word a happening.
type script struct {
	t    *testing.T
	s    *State
	now  time.Duration
	can  func(event.Rule, *event.Limit) Help
	end  time.Duration
	last event.Decision
}

func newScript(t *testing.T, ladder string) *script {
	return &script{t: t, s: New(rules(t, ladder), Options{}), can: canAll}
}

// at lets d pass and looks at limits.
func (c *script) at(d time.Duration, limits ...event.Limit) []string {
	c.now += d
	res := c.s.Step(Input{Now: c.now, Limits: limits, JobEnd: c.end, Can: c.can})
	var said []string
	for _, x := range res.Skipped {
		said = append(said, fmt.Sprintf("skip %s: %s", x.Rule, x.Reason))
	}
	for _, d := range res.Decisions {
		said = append(said, d.Rule)
		c.last = d
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
	if most := int(forgotten/time.Minute) + 1; len(c.s.trends) > most || len(c.s.rungs) > most*len(c.s.rules) {
		t.Errorf("%d limits and %d rungs are remembered, want %d of the last minutes", len(c.s.trends), len(c.s.rungs), most)
	}
	c.want(c.at(time.Minute, slurm(94)), "80%:warn", "85%:trim")
	c.done(true, event.ReasonDone, 94, 94)
	c.want(c.at(second, slurm(94)), "93%:signal=USR2")
	c.at(5 * time.Minute)
	if got := c.at(second, slurm(94)); slices.Contains(got, "93%:signal=USR2") {
		t.Errorf("asked again, %q", got)
	}
}

func TestOneActionAtATime(t *testing.T) {
	c := newScript(t, "80%:warn\n85%:trim\n90%:recycle")
	c.want(c.at(second, slurm(95)), "80%:warn", "85%:trim")
	c.want(c.at(second, slurm(96))) // trim is under way
	c.done(true, event.ReasonDone, 95, 70)
	c.want(c.at(second, slurm(70)))
	c.want(c.at(second, slurm(86)))             // armed again, and cooling down
	c.want(c.at(second, slurm(86)), "85%:trim") // 2 s later
}

func TestTooLittleTakesTheNextRungAtOnce(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle\n93%:signal=USR2\n97%:stop")
	c.want(c.at(second, slurm(95)), "85%:trim")
	c.done(true, event.ReasonTooLittle, 95, 95)
	c.want(c.at(0, slurm(95)), "90%:recycle")
	c.done(false, event.ReasonTimeout, 95, 95)
	c.want(c.at(0, slurm(95)), "93%:signal=USR2")
	c.done(true, event.ReasonDone, 95, 95)
	c.want(c.at(0, slurm(95)))
	c.want(c.at(0, slurm(97)), "97%:stop")
	if !c.s.Stopped() {
		t.Error("not stopped")
	}
	c.want(c.at(time.Hour, slurm(99)))
}

func TestNextRungWaitsForItsOwnThreshold(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	c.want(c.at(second, slurm(86)), "85%:trim")
	c.done(true, event.ReasonTooLittle, 86, 86)
	c.want(c.at(0, slurm(86)))
	c.want(c.at(0, slurm(90)), "90%:recycle")
}

func TestRecycleGoesOnWhileItHelps(t *testing.T) {
	c := newScript(t, "90%:recycle")
	c.want(c.at(second, slurm(95)), "90%:recycle")
	c.done(true, event.ReasonDone, 95, 93)
	c.want(c.at(0, slurm(93)), "90%:recycle")
	c.done(true, event.ReasonDone, 93, 91)
	c.want(c.at(0, slurm(91)), "90%:recycle")
	c.done(true, event.ReasonDone, 91, 89)
	c.want(c.at(0, slurm(89))) // below the rung
	c.want(c.at(second, slurm(90.5)), "90%:recycle")
	c.done(true, event.ReasonDone, 90.5, 90.4) // 3 MiB
	c.want(c.at(0, slurm(90.5)))
	c.want(c.at(29*second, slurm(90.5)))
	c.want(c.at(2*second, slurm(90.5)), "90%:recycle")
}

func TestTrimAgain(t *testing.T) {
	c := newScript(t, "85%:trim")
	c.want(c.at(second, slurm(86)), "85%:trim")
	c.done(true, event.ReasonDone, 86, 82)
	c.want(c.at(second, slurm(86))) // 82 + 5 not reached
	c.want(c.at(second, slurm(87.1)), "85%:trim")
	c.done(true, event.ReasonDone, 87.1, 86)
	c.want(c.at(second, slurm(86)))
	c.want(c.at(30*second, slurm(86)), "85%:trim")
}

// TestTrimAgainNearTheLimit: a trim that held a job near its limit is not put off until
// that is full.
func TestTrimAgainNearTheLimit(t *testing.T) {
	c := newScript(t, "85%:trim")
	c.want(c.at(second, slurm(99)), "85%:trim")
	c.done(true, event.ReasonDone, 99, 94)
	c.want(c.at(second, slurm(96.9)))
	c.want(c.at(second, slurm(97.1)), "85%:trim") // 94 and half of what that leaves
}

// TestTrimAgainByPSS: what use stands at after a trim tells only a later reading. It is
// repeated for what it would give back then, behind whoever could have a turn.
func TestTrimAgainByPSS(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	used := func(percent, most float64) event.Limit {
		l := slurm(percent)
		l.Accounting, l.UsedMax = event.AccountingPSS, slurm(most).Used
		return l
	}
	var gain float64 // of a trim, in percent
	recycle := false
	c.can = func(r event.Rule, l *event.Limit) Help {
		if r.Action == event.ActionRecycle {
			return Help{OK: recycle, Reason: event.ReasonNothing}
		}
		return Help{OK: gain > 0, Gain: l.Limit.Scale(gain / 100), Reason: event.ReasonNothing}
	}
	gain = 10
	c.want(c.at(second, used(86, 98)), "85%:trim")
	c.done(true, event.ReasonDone, 86, 98)
	gain = 0.9
	c.want(c.at(second, used(86, 98))) // 1 % would be half of what is left for certain
	gain = 4
	c.want(c.at(second, used(86, 88))) // 5 % where more is left
	c.want(c.at(second, used(86, 98)), "85%:trim")
	c.done(true, event.ReasonDone, 86, 98)
	recycle = true
	c.want(c.at(second, used(91, 98)), "90%:recycle")
	c.done(true, event.ReasonDone, 91, 97)
	recycle = false
	c.want(c.at(second, used(86, 98)), "85%:trim")
}

func TestNoHelpIsSaidOnceAndTheNextRungTaken(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	reason := event.ReasonNoWorker
	c.can = func(r event.Rule, _ *event.Limit) Help {
		switch r.Action {
		case event.ActionTrim:
			return Help{Detail: "only unreclaimable memory counts"}
		}
		return Help{OK: reason == "", Reason: reason}
	}
	c.want(c.at(second, slurm(91)), "skip 85%:trim: cannot help this limit", "skip 90%:recycle: no worker")
	c.want(c.at(second, slurm(92)))
	reason = event.ReasonRecent
	c.want(c.at(second, slurm(92)), "skip 90%:recycle: worker recycled less than 30 s ago")
	reason = ""
	c.want(c.at(second, slurm(92)), "90%:recycle")
	c.done(true, event.ReasonDone, 92, 60)
	c.want(c.at(second, slurm(60)))
	c.want(c.at(5*second, slurm(86)), "skip 85%:trim: cannot help this limit") // a new crossing
}

func TestTooSmallAGainIsNoHelp(t *testing.T) {
	c := newScript(t, "85%:trim")
	gain := 10 * rss.MiB
	c.can = func(event.Rule, *event.Limit) Help { return Help{OK: true, Gain: gain} }
	c.want(c.at(second, slurm(86)), "skip 85%:trim: nothing to give back")
	gain = 100 * rss.MiB
	c.want(c.at(second, slurm(86)), "85%:trim")
}

func TestWithoutCanNothingButWarnAndStop(t *testing.T) {
	c := newScript(t, "80%:warn\n85%:trim\n90%:stop")
	c.can = nil
	c.want(c.at(second, slurm(86)), "skip 85%:trim: not supported here", "80%:warn")
	c.want(c.at(second, slurm(91)), "90%:stop")
}

func TestForkRefusedEndsRecycling(t *testing.T) {
	c := newScript(t, "90%:recycle")
	c.want(c.at(second, slurm(91)), "90%:recycle")
	c.done(false, event.ReasonForkRefused, 91, 91)
	c.want(c.at(time.Minute, slurm(91)), "skip 90%:recycle: fork refused")
	c.want(c.at(second, slurm(50)))
	c.want(c.at(time.Hour, slurm(91)), "skip 90%:recycle: fork refused")
}

func TestRecoveredBeforeTheAction(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	c.want(c.at(second, slurm(91)), "85%:trim")
	c.done(false, event.ReasonRecovered, 80, 80)
	c.want(c.at(second, slurm(91)))
	c.want(c.at(2*second, slurm(91)), "85%:trim") // as if for the first time
}

func TestDryRunSaysEveryDecisionOnce(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle\n95%:stop")
	c.want(c.at(second, slurm(96)), "85%:trim")
	for _, next := range []string{"90%:recycle", "95%:stop"} {
		c.done(true, event.ReasonDryRun, 96, 96)
		c.want(c.at(0, slurm(96)), next)
	}
	c.done(true, event.ReasonDryRun, 96, 96)
	c.want(c.at(time.Hour, slurm(96)))
	c.want(c.at(second, slurm(50)))
	c.want(c.at(time.Minute, slurm(86)), "85%:trim")
}

// A stop does not wait for an action that may hang.
func TestStopOvertakes(t *testing.T) {
	c := newScript(t, "90%:recycle\n97%:stop")
	c.want(c.at(second, slurm(91)), "90%:recycle")
	recycle := c.last.ID
	c.want(c.at(second, slurm(97)), "97%:stop")
	c.s.Done(event.Outcome{Decision: recycle, OK: true})
	if c.s.InFlight() != c.last.ID || !c.s.Stopped() {
		t.Fatalf("in flight %d, stopped %v", c.s.InFlight(), c.s.Stopped())
	}
}

func TestAStopThatFailed(t *testing.T) {
	c := newScript(t, "90%:recycle\n97%:stop")
	c.want(c.at(second, slurm(91)), "90%:recycle")
	recycle := c.last.ID
	c.want(c.at(second, slurm(97)), "97%:stop")
	c.done(false, event.ReasonError, 97, 97)
	if c.s.Stopped() || c.s.InFlight() != recycle {
		t.Fatalf("stopped %v, in flight %d, want the recycle", c.s.Stopped(), c.s.InFlight())
	}
	c.want(c.at(second, slurm(97)))
	c.want(c.at(30*second, slurm(97)), "97%:stop")
}

func TestLostOutcome(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	c.want(c.at(second, slurm(91)), "85%:trim")
	lost := c.last.ID
	c.want(c.at(4*time.Minute, slurm(91)))
	c.want(c.at(time.Minute, slurm(91)), "90%:recycle")
	c.s.Done(event.Outcome{Decision: lost, OK: true}) // too late
	if c.s.InFlight() != c.last.ID {
		t.Errorf("in flight %d, want %d", c.s.InFlight(), c.last.ID)
	}
	c.done(true, event.ReasonDone, 91, 50)
	c.done(true, event.ReasonDone, 91, 50) // twice
	if c.s.InFlight() != 0 {
		t.Errorf("in flight %d", c.s.InFlight())
	}
}

func TestTheMostUrgentLimitFirst(t *testing.T) {
	c := newScript(t, "85%:trim\n90%:recycle")
	user := slurm(91)
	user.Name = event.LimitUser
	c.can = func(r event.Rule, l *event.Limit) Help { return Help{OK: l.Name == event.LimitUser} }
	c.want(c.at(second, user, slurm(95)), "skip 85%:trim: cannot help this limit", "skip 90%:recycle: cannot help this limit", "85%:trim")
	if c.last.Limit != event.LimitUser {
		t.Errorf("acted for %s", c.last.Limit)
	}
}

func TestFirstID(t *testing.T) {
	s := New(rules(t, "80%:warn"), Options{FirstID: 41})
	res := s.Step(Input{Now: second, Limits: []event.Limit{slurm(90)}})
	if len(res.Decisions) != 1 || res.Decisions[0].ID != 41 {
		t.Errorf("decisions %+v", res.Decisions)
	}
	if got := s.Rules(); len(got) != 1 {
		t.Errorf("rules %v", got)
	}
}

func BenchmarkStep(b *testing.B) {
	for name, used := range map[string]float64{"idle": 40, "carried": 84} {
		b.Run(name, func(b *testing.B) {
			s := New(Default(), Options{})
			limits := []event.Limit{slurm(used), slurm(used / 2), slurm(used / 3)}
			limits[1].Name, limits[2].Name = event.LimitCgroup, event.LimitNode
			now := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now += time.Second
				s.Step(Input{Now: now, Limits: limits, Can: canAll})
			}
		})
	}
}

// TestRecycleInVain: a recycle that brought too little does not keep its rung from
// firing once use has grown by what a recycle may bring, and keeps it until then.
func TestRecycleInVain(t *testing.T) {
	for name, c := range map[string]struct {
		freed rss.Bytes
		then  float64 // use in percent of 3000 MiB, a second later
		again bool
	}{
		"use stands still":   {2 * rss.MiB, 91, false},
		"it grew a little":   {2 * rss.MiB, 91.4, false},
		"it grew by as much": {2 * rss.MiB, 91.6, true},
		"enough was freed":   {100 * rss.MiB, 91, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(rules(t, "90%:recycle"), Options{})
			in := Input{Limits: []event.Limit{slurm(91)}, Can: canAll}
			d := s.Step(in).Decisions
			if len(d) != 1 {
				t.Fatalf("%+v", d)
			}
			s.Done(event.Outcome{Decision: d[0].ID, OK: true, Reason: event.ReasonDone, Before: d[0].Used, After: d[0].Used, Freed: c.freed})
			in.Limits = []event.Limit{slurm(c.then)}
			decided := false
			for in.Now = time.Second; in.Now < 10*time.Second; in.Now += time.Second {
				decided = decided || len(s.Step(in).Decisions) > 0
			}
			if decided != c.again {
				t.Errorf("fires again: %v, want %v", decided, c.again)
			}
		})
	}
}

// TestRecycleOfOneOfMany: of forty workers that leaked alike none gives back 5 % of what
// is wanted, and all of them give back twice that.
func TestRecycleOfOneOfMany(t *testing.T) {
	s := New(rules(t, "85%:trim\n90%:recycle"), Options{CoolDown: time.Millisecond})
	small := func(event.Rule, *event.Limit) Help { return Help{OK: true, Gain: 20 * rss.MiB} }
	in := Input{Limits: []event.Limit{slurm(99)}, Can: small}
	in.Limits[0].Limit, in.Limits[0].Used = 30*rss.GiB, (30 * rss.GiB).Scale(0.99)
	for n := range 5 {
		in.Now = time.Duration(n) * time.Second
		d := s.Step(in).Decisions
		if len(d) != 1 || d[0].Action != event.ActionRecycle {
			t.Fatalf("%d: %+v, want a recycle", n, d)
		}
		s.Done(event.Outcome{Decision: d[0].ID, OK: true, Reason: event.ReasonDone, Before: d[0].Used, After: d[0].Used - 20*rss.MiB, Freed: 20 * rss.MiB})
		in.Limits[0].Used -= 20 * rss.MiB
	}
}
