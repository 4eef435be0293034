package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

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
	opts := Options{}.withDefaults()
	s := New(ladder, Options{})
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
	can := func(event.Rule, *event.Limit) Help {
		return Help{OK: rng.IntN(4) > 0, Gain: rss.Bytes(rng.IntN(500)) * rss.MiB}
	}
	for range 3000 {
		now += time.Duration(rng.IntN(3000)) * time.Millisecond
		limits := []event.Limit{slurm(used[0]), slurm(used[1])}
		limits[1].Name = event.LimitUser
		if settled {
			settled = false
			coolTill = now + opts.CoolDown
		}
		res := s.Step(Input{Now: now, Limits: limits, Can: can})
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
			} else if d.Used < d.Threshold || d.Threshold == 0 {
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
				case !h.helped && now-h.at < opts.Repeat:
					t.Errorf("seed %d: %s again %v after it had freed nothing", seed, d.Rule, now-h.at)
				}
			}
			if r.Action == event.ActionWarn && h.fired && now-h.at < opts.WarnEvery {
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

// TestCarriesAJob plays a job that a summed-RSS limit kills: workers fault in
// mapped pages faster and faster, and leak; trim and recycle give them back.
func TestCarriesAJob(t *testing.T) {
	const (
		limit   = 3000 * rss.MiB
		trainer = 226 * rss.MiB
		fresh   = 130 * rss.MiB
	)
	type worker struct {
		anon, file rss.Bytes
		recycled   time.Duration
	}
	all := [4]worker{}
	for i := range all {
		all[i].anon = fresh
	}
	sum := func() rss.Bytes {
		b := trainer
		for _, w := range all {
			b += w.anon + w.file
		}
		return b
	}
	view := func(now time.Duration) []workers.Usage {
		out := make([]workers.Usage, len(all))
		for i, w := range all {
			out[i] = workers.Usage{Mapped: w.file, CountedMapped: w.file, Counted: (w.anon + w.file).Sub(fresh)}
			if w.recycled > 0 {
				out[i].RecycledAgo = now - w.recycled
			}
		}
		return out
	}
	s := New(Default(), Options{})
	count := map[event.Action]int{}
	var peak rss.Bytes
	for now := time.Second; now < 20*time.Minute; now += 100 * time.Millisecond {
		for i := range all {
			all[i].anon += 300 * rss.KiB
			all[i].file = min(all[i].file+3*rss.MiB, 1475*rss.MiB)
		}
		peak = max(peak, sum())
		l := event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: sum(), Limit: limit}
		in := Input{Now: now, Limits: []event.Limit{l}, Can: func(r event.Rule, l *event.Limit) Help {
			if r.Action == event.ActionTrim {
				var gain rss.Bytes
				for _, w := range all {
					gain += w.file
				}
				return Help{OK: gain > 0, Gain: gain}
			}
			i, gain, reason := workers.Pick(view(now), event.MinRecycle(&event.Limit{Limit: limit}))
			return Help{OK: i >= 0, Gain: gain, Reason: reason}
		}}
		for _, d := range s.Step(in).Decisions {
			count[d.Action]++
			o := event.Outcome{Decision: d.ID, OK: true, Before: sum()}
			switch d.Action {
			case event.ActionTrim:
				for i := range all {
					all[i].file = 0
				}
			case event.ActionRecycle:
				i, _, _ := workers.Pick(view(now), event.MinRecycle(&event.Limit{Limit: limit}))
				all[i] = worker{anon: fresh, recycled: now}
			}
			o.After = sum()
			o.Freed = o.Before.Sub(o.After)
			s.Done(o)
		}
	}
	if peak >= limit {
		t.Errorf("peak %v: the job is dead", peak)
	}
	if count[event.ActionTrim] == 0 || count[event.ActionRecycle] == 0 {
		t.Errorf("trim and recycle were both needed: %v", count)
	}
	if count[event.ActionWarn] > 6 {
		t.Errorf("%d warnings in 20 minutes", count[event.ActionWarn])
	}
	t.Logf("peak %v of %v; %v", peak, limit, count)
}
