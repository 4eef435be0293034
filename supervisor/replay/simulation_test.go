package replay_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

// stage plays the watcher over a random job: it looks often, and keeps of that
// what the watcher keeps.
type stage struct {
	rng    *rand.Rand
	b      *record.Builder
	rules  []event.Rule
	limits []event.Limit
	slope  []float64 // bytes a second
	moves  bool      // looks on which the ladder moved are kept too, and the ladder learns when an action ends
	hands  bool      // a watcher that was started again takes over what the ladder remembered
	end    time.Duration

	state     *policy.State
	now       time.Duration
	sampleAt  time.Duration
	flight    *event.Decision
	key       int // index in limits of what the flight is for
	began     time.Duration
	lasts     time.Duration
	forecasts policy.Forecasts
	answers   map[string]event.Feasibility
	told      map[string]event.Feasibility
	made      []event.Decision
	at        []time.Duration
}

func ladder(t testing.TB, texts ...string) []event.Rule {
	t.Helper()
	var rules []event.Rule
	for _, text := range texts {
		r, err := event.ParseRecorded(text)
		must(t, err)
		rules = append(rules, r)
	}
	return rules
}

func texts(rules []event.Rule) (list []string) {
	for _, r := range rules {
		list = append(list, r.String())
	}
	return list
}

func newStage(t *testing.T, seed uint64, moves bool) *stage {
	s := &stage{
		rng: rand.New(rand.NewPCG(seed, 11)), moves: moves, end: 2 * time.Hour, sampleAt: -time.Hour,
		answers: map[string]event.Feasibility{}, told: map[string]event.Feasibility{},
	}
	s.rules = policy.Default()
	for _, extra := range []string{"free<450M:trim+drop", "slurm 93%:gc", "95%:signal=USR2", "user 96%:exec=notify it: now", "eta<5m:recycle", "eta<20m:warn", "time eta<30m:signal=USR1"} {
		if s.rng.IntN(2) == 0 {
			s.rules = append(s.rules, ladder(t, extra)...)
		}
	}
	for i, l := range []event.Limit{
		{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Limit: 3000 * rss.MiB},
		{Name: event.LimitSlurm, Scope: event.ScopeJob, Accounting: event.AccountingRSS, Limit: 3000 * rss.MiB},
		{Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Level: "/job/step", Limit: 2999*rss.MiB + 777},
		{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingPSS, Limit: 2500 * rss.MiB},
	} {
		if i == 0 || s.rng.IntN(2) == 0 {
			l.Used = l.Limit.Scale(0.5 + s.rng.Float64()/4)
			s.limits, s.slope = append(s.limits, l), append(s.slope, 0)
		}
	}
	meta := record.Meta{V: record.Version, ID: "stage", Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	meta.Job = &record.Job{ID: "1", End: meta.Start.Add(s.end + 10*time.Minute)}
	s.b = record.NewBuilder(meta)
	for _, l := range s.limits {
		l.Used, l.Limit = 0, 0
		s.b.Limit(l)
	}
	s.b.Event(record.Entry{Name: event.NameStart, Value: &event.Start{
		Rules: texts(s.rules), Settings: []event.Setting{{Name: "interval", Value: "1s"}},
	}})
	s.forecasts = policy.Forecasts{}
	s.state = policy.New(s.rules, policy.Options{CoolDown: replay.CoolDown})
	return s
}

// move lets time pass.
func (s *stage) move() {
	pause := time.Second
	switch {
	case s.flight != nil:
		pause = time.Duration(5+s.rng.IntN(200)) * time.Millisecond
	case s.rng.IntN(3) == 0:
		pause = time.Duration(2e6 + s.rng.IntN(400e6))
	}
	s.now += pause
	for i := range s.limits {
		l := &s.limits[i]
		if s.rng.IntN(200) == 0 {
			s.slope[i] = float64(s.rng.IntN(12)-2) * float64(l.Limit) / 12000
		}
		used := float64(l.Used) + s.slope[i]*pause.Seconds() + s.rng.NormFloat64()*float64(l.Limit)/3000
		switch s.rng.IntN(400) {
		case 0: // an epoch ends
			used *= 0.8
		case 1: // a burst
			used += float64(l.Limit) / 12
		}
		l.Used = rss.Bytes(min(max(used, float64(l.Limit)/10), 1.02*float64(l.Limit)))
		if l.Accounting != event.AccountingCgroup {
			l.Used = l.Used / rss.KiB * rss.KiB
		}
		l.UsedMax = l.Used
	}
}

// can answers at random, the same for a while, and writes down what is new.
func (s *stage) can(r event.Rule, l *event.Limit) event.Feasibility {
	k := r.String() + string(l.Name) + string(l.Scope)
	h, ok := s.answers[k]
	if !ok || s.rng.IntN(20) == 0 {
		h = event.Feasibility{OK: s.rng.IntN(4) > 0}
		if h.OK {
			h.Gain = rss.Bytes(s.rng.IntN(400)) * rss.MiB
			h.AtLeast = s.rng.IntN(8) == 0
		} else {
			h.Reason = event.ReasonNoWorker
			h.Later = s.rng.IntN(8) == 0
		}
		s.answers[k] = h
	}
	if was, ok := s.told[k]; !ok || was != h {
		s.told[k] = h
		s.b.Event(record.Entry{At: s.now, Name: event.NameHelp, Value: &event.Help{
			Rule: r.String(), Limit: l.Name, Scope: l.Scope, Acct: l.Accounting, Level: l.Level,
			OK: h.OK, Gain: h.Gain, More: h.AtLeast, Later: h.Later, Reason: h.Reason,
		}})
	}
	return h
}

// lead has trims fire ahead now and then.
func (s *stage) lead(r event.Rule, l *event.Limit) rss.Bytes {
	if r.Action != event.ActionTrim || l.Used/rss.MiB%5 != 0 {
		return 0
	}
	return l.Limit / 20
}

// sample keeps a look.
func (s *stage) sample(limits []event.Limit, moved bool) {
	s.sampleAt = s.now
	out := record.Sample{At: s.now, AtDecision: moved}
	for i, l := range limits {
		r := record.Reading{Limit: i, Used: l.Used, UsedMax: l.UsedMax, Size: l.Limit, ETA: -1, Binding: l.Binding}
		if l.ETA != nil {
			r.ETA, r.MayFlatten = *l.ETA, l.ETAHigh == nil
		}
		out.Limits = append(out.Limits, r)
	}
	s.b.Sample(&out)
}

// finish ends the action in flight.
func (s *stage) finish() {
	l := &s.limits[s.key]
	o := event.Outcome{Decision: s.flight.ID, OK: s.rng.IntN(4) > 0, Before: s.flight.Used}
	if o.OK {
		l.Used = l.Used.Scale(0.5+s.rng.Float64()/2) / rss.KiB * rss.KiB
		l.UsedMax = l.Used
		o.Reason = event.ReasonDone
	} else {
		o.Reason = []event.Reason{event.ReasonTimeout, event.ReasonRecovered, event.ReasonNothing}[s.rng.IntN(3)]
	}
	o.After = l.Used
	o.Freed = o.Before.Sub(o.After)
	s.flight = nil
	if s.moves {
		s.state.Pass(s.now)
	}
	s.state.Done(o)
	s.b.Event(record.Entry{At: s.now, Name: event.NameOutcome, Value: &o})
}

// look is one full look of the watcher.
func (s *stage) look() {
	if s.flight != nil && s.now-s.began >= s.lasts {
		s.finish()
	}
	limits := slices.Clone(s.limits)
	limits = s.forecasts.Of(s.now, limits)
	s.state.Observe(s.now, limits)
	// As scontrol says, to the nanosecond here.
	left := s.end + 10*time.Minute - s.now
	in := policy.Input{Now: s.now, Limits: limits, Lead: map[event.Ask]rss.Bytes{}, JobEnd: left}
	for r, l := range s.state.Uncrossed(limits) {
		in.Lead[event.Ask{Rule: r, On: l.ID()}] = s.lead(r, l)
	}
	for due := range s.state.Asks(&in) {
		in.Feasible[due.Ask] = s.can(due.Rule, due.Reading)
	}
	res := s.state.Judge(in)
	for _, d := range res.Decisions {
		s.sample(limits, true)
		s.made, s.at = append(s.made, d), append(s.at, s.now)
		s.b.Event(record.Entry{At: s.now, Name: event.NameDecision, Value: &d})
		switch d.Action {
		case event.ActionWarn, event.ActionSignal, event.ActionExec:
			continue
		}
		s.flight, s.began, s.lasts = &d, s.now, time.Duration(s.rng.IntN(3e9))
		s.key = slices.IndexFunc(limits, func(l event.Limit) bool {
			return l.Name == d.Limit && l.Used == d.Used && l.Limit == d.LimitSize
		})
		if s.rng.IntN(4) == 0 {
			s.finish() // within the step
		}
	}
	if s.moves && res.Changed && len(res.Decisions) == 0 {
		s.sample(limits, true)
	}
	if s.now-s.sampleAt >= time.Second {
		s.sample(limits, false)
	}
}

// restart is a watcher that has died and was started again.
func (s *stage) restart(n int) {
	m := s.state.Snapshot(s.now, booted+s.now, 0)
	s.flight = nil
	clear(s.told)
	s.forecasts = policy.Forecasts{}
	s.state = policy.New(s.rules, policy.Options{CoolDown: replay.CoolDown, FirstID: uint64(n+1)<<32 | 1})
	s.now += 3 * time.Second
	s.b.Event(record.Entry{At: s.now - 10*time.Millisecond, Name: event.NameStart, Value: &event.Start{Rules: texts(s.rules), Restarts: n}})
	if !s.hands {
		return
	}
	data, err := m.Encode()
	if err != nil {
		panic(err)
	}
	s.state.Restore(&m, s.now, booted+s.now, nil)
	s.b.Event(record.Entry{At: s.now, Name: event.NameHandover, Value: &event.Handover{Ran: s.now, Clock: booted + s.now, Memory: data}})
}

func (s *stage) run() *record.Run {
	for restarts := 0; s.now < s.end; {
		s.move()
		if s.rng.IntN(8000) == 0 {
			restarts++
			s.restart(restarts)
		}
		s.look()
	}
	return s.b.Run()
}

// TestSame: the ladder decides from a record as it has decided, each time within
// a tick, whatever was between two samples.
func TestSame(t *testing.T) {
	decisions, exact := 0, 0
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		s := newStage(t, seed, true)
		s.hands = seed%2 == 0
		r, err := replay.Replay(s.run(), replay.Options{})
		must(t, err)
		if !*r.Same {
			t.Errorf("seed %d: %d of %d decisions missed, %d made", seed, len(r.Missed), len(s.made), len(r.Decisions))
			for _, d := range r.Missed {
				t.Logf("missed %+v", d)
			}
			for _, d := range r.Decisions {
				if d.Recorded == nil {
					t.Logf("new %+v", d)
				}
			}
			return
		}
		for _, d := range r.Decisions {
			decisions++
			off := d.At - d.Recorded.At
			if off > 1.5 || off < -1.5 { // a sample each second, and what a look is late
				t.Errorf("seed %d: %+v, %v s from %+v", seed, d, off, d.Recorded)
			}
			if off == 0 {
				exact++
			}
		}
	}
	t.Logf("%d decisions, %d at the very sample", decisions, exact)
	if decisions < 200 || exact < decisions*9/10 {
		t.Error("too few")
	}
}

// TestNearlySame: a record without the looks on which the ladder only moved is replayed as
// far as it goes, and the differences are listed.
func TestNearlySame(t *testing.T) {
	made, missed := 0, 0
	for seed := range uint64(4) {
		s := newStage(t, seed, false)
		r, err := replay.Replay(s.run(), replay.Options{})
		must(t, err)
		made, missed = made+len(s.made), missed+len(r.Missed)
	}
	t.Logf("%d of %d decisions missed", missed, made)
	if missed > made/4 {
		t.Error("too many")
	}
}
