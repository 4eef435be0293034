package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// run steps a State through f, percent of the limit at each second, and
// returns when each rule fired first.
func run(t *testing.T, ladder []event.Rule, end, jobEnd time.Duration, f func(time.Duration) float64) map[string]time.Duration {
	t.Helper()
	s := New(ladder, 1)
	fired := map[string]time.Duration{}
	for now := time.Duration(0); now <= end; now += time.Second {
		in := reading{Now: now, Limits: []event.Limit{slurm(f(now))}, Can: canAll}
		if jobEnd > 0 {
			in.JobEnd = jobEnd - now
		}
		for _, d := range step(s, in).Decisions {
			if _, ok := fired[d.Rule]; !ok {
				fired[d.Rule] = now
			}
		}
	}
	return fired
}

func TestForecastWarns(t *testing.T) {
	leak := func(at time.Duration) float64 { return 30 + 2*at.Minutes() } // full after 35 minutes
	fired := run(t, Default(), 30*time.Minute, 0, leak)
	if at, ok := fired["eta<10m:warn"]; !ok || at < 24*time.Minute || at > 26*time.Minute {
		t.Errorf("eta<10m:warn at %v, %v; want 25m", at, ok)
	}
	if at, ok := fired["80%:warn"]; !ok || at != 25*time.Minute {
		t.Errorf("80%%:warn at %v, %v; want 25m", at, ok)
	}
	// The job ends before its memory does.
	if fired := run(t, Default(), 24*time.Minute, 26*time.Minute, func(at time.Duration) float64 { return 30 + 1.9*at.Minutes() }); len(fired) != 0 {
		t.Errorf("decisions %v although the job's own end comes first", fired)
	}
}

func TestNothingFiresOnStartUp(t *testing.T) {
	for _, ramp := range []time.Duration{second, 30 * time.Second, 90 * time.Second, 170 * time.Second} {
		fired := run(t, Default(), 20*time.Minute, 0, func(at time.Duration) float64 {
			return 70 * min(1, at.Seconds()/ramp.Seconds())
		})
		if len(fired) != 0 {
			t.Errorf("ramp of %v to 70 %%: %v", ramp, fired)
		}
	}
	fired := run(t, Default(), 20*time.Minute, 0, func(at time.Duration) float64 {
		return 70 * (1 - math.Exp(-at.Minutes()/2))
	})
	if len(fired) != 0 {
		t.Errorf("saturating ramp: %v", fired)
	}
}

// Page cache fills the cgroup to its limit; only 20 % cannot be reclaimed.
func TestNothingFiresOnPageCache(t *testing.T) {
	s := New(Default(), 1)
	for now := time.Duration(0); now < 20*time.Minute; now += second {
		charged := min(3000*rss.MiB, rss.Bytes(now.Seconds()*10)*rss.MiB)
		res := step(s, reading{Now: now, Can: canAll, Limits: []event.Limit{{
			Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup,
			Used: charged / 5, Limit: 3000 * rss.MiB, Charged: charged, WorkingSet: charged,
		}}})
		if len(res.Decisions)+len(res.Skipped) != 0 {
			t.Fatalf("at %v: %+v", now, res)
		}
	}
}

func TestForecastRuleArmsAgain(t *testing.T) {
	fired := 0
	s := New(rules(t, "eta<10m:warn"), 1)
	used := 40.0
	for now := time.Duration(0); now < 60*time.Minute; now += second {
		switch m := now % (20 * time.Minute); {
		case m == 0:
			used = 40
		case m < 9*time.Minute:
			used += 5.0 / 60
		}
		// 9 minutes of growth to 85 %, 11 minutes flat, and back
		fired += len(step(s, reading{Now: now, Limits: []event.Limit{slurm(used)}}).Decisions)
	}
	if fired != 3 {
		t.Errorf("fired %d times in three leaks, want once each", fired)
	}
}

// Growth in stairs is one growth.
func TestForecastRuleFiresOnceOnStairs(t *testing.T) {
	fired := 0
	s := New(rules(t, "eta<10m:warn"), 1)
	for now := time.Duration(0); now < 15*time.Minute; now += second {
		used := 40 + 4*now.Truncate(40*time.Second).Minutes()
		res := step(s, reading{Now: now, Limits: []event.Limit{slurm(used)}})
		fired += len(res.Decisions)
	}
	if fired != 1 {
		t.Errorf("fired %d times, want once", fired)
	}
}

func TestDecisionCarriesItsForecast(t *testing.T) {
	c := newScript(t, "eta<10m:warn")
	for i := range 600 {
		if said := c.at(second, slurm(50+float64(i)*4/60)); len(said) > 0 {
			break
		}
	}
	d := c.last
	if d.ETA == nil || d.ETALow == nil || d.ETAHigh == nil {
		t.Fatalf("decision without forecast: %+v", d)
	}
	if *d.ETA >= 600 || *d.ETALow > *d.ETA || *d.ETAHigh < *d.ETA {
		t.Errorf("eta %v in [%v, %v]", *d.ETA, *d.ETALow, *d.ETAHigh)
	}
	if d.Threshold != 0 {
		t.Errorf("threshold %v: a forecast has none", d.Threshold)
	}
}

func TestStepLeavesItsInputAlone(t *testing.T) {
	s := New(nil, 1)
	in := []event.Limit{slurm(50), slurm(90)}
	in[1].Name, in[0].Binding = event.LimitUser, true
	res := step(s, reading{Now: second, Limits: in})
	if !in[0].Binding || in[1].Binding {
		t.Error("the input was changed")
	}
	if res.Limits[0].Binding || !res.Limits[1].Binding {
		t.Error("the fuller limit is not marked as binding")
	}
}

// The job's end is no forecast of ours and goes through as it came.
func TestStepKeepsTheJobsEnd(t *testing.T) {
	left := 90.0
	in := []event.Limit{slurm(50), {Name: event.LimitTime, ETA: &left}}
	res := step(New(Default(), 1), reading{Now: second, JobEnd: 90 * second, Limits: in})
	if got := res.Limits[1].ETA; got == nil || *got != left {
		t.Errorf("time left %v, want %v", got, left)
	}
	if res.Limits[1].Binding || len(res.Decisions) != 0 {
		t.Errorf("%+v", res)
	}
}

func TestBinding(t *testing.T) {
	eta := func(l event.Limit, s float64) event.Limit { l.ETA = &s; return l }
	named := func(n event.LimitName, percent float64) event.Limit {
		l := slurm(percent)
		l.Name = n
		return l
	}
	for _, c := range []struct {
		what   string
		limits []event.Limit
		want   int
	}{
		{"none", nil, -1},
		{"no size", []event.Limit{{Name: event.LimitUser}}, -1},
		{"the fullest", []event.Limit{slurm(50), named(event.LimitUser, 60)}, 1},
		{"the first of equals", []event.Limit{slurm(60), named(event.LimitUser, 60)}, 0},
		{"a forecast before a fuller one", []event.Limit{eta(slurm(60), 100), named(event.LimitUser, 90)}, 0},
		{"the shorter forecast", []event.Limit{eta(slurm(90), 100), eta(named(event.LimitUser, 60), 50)}, 1},
		{"a throttle ends nothing", []event.Limit{named(event.LimitThrottle, 99), slurm(10)}, 1},
	} {
		if got := Binding(c.limits); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	if d := seconds(math.MaxFloat64); d != never {
		t.Errorf("an endless forecast is %v", d)
	}
}

// TestFlatteningRaisesNone: of 20 runs that flatten below the limit, by themselves or as all
// of a file is read, none raises a rule on the forecast, and each says where it flattens.
func TestFlatteningRaisesNone(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 27))
		level, minutes := 70+20*rng.Float64(), 3+3*rng.Float64()
		s := New(Default(), 1)
		said, late := rss.Bytes(0), 0.0
		for now := time.Duration(0); now < 30*time.Minute; now += second {
			x := now.Minutes() / minutes
			used := level * (1 - math.Exp(-x)) // a cache, or an LMDB that is read at random
			if seed%2 == 1 {
				used = level * min(x/2, 1) // an LMDB that is read in order
			}
			l := slurm(used + 0.2*rng.NormFloat64())
			if seed%2 == 1 || seed%4 == 0 {
				l.Files = event.FilePages{Now: l.Limit.Scale(used / 100), Most: l.Limit.Scale(level / 100)}
			}
			res := step(s, reading{Now: now, Limits: []event.Limit{l}})
			for _, d := range res.Decisions {
				if d.Rung.Cond.Kind == event.KindETA {
					t.Errorf("seed %d: %s at %.1f %%, flattening at %.0f %%", seed, d.Rule, used, level)
				}
			}
			if got := res.Limits[0].Flattens; got > 0 && said == 0 {
				said, late = got, used
			}
		}
		if off := 100*said.Of(slurm(0).Limit) - level; math.Abs(off) > 10 {
			t.Errorf("seed %d: it flattens at %.1f %% and is said to flatten at %v, from %.1f %% on", seed, level, said, late)
		}
	}
}

// TestForecastWithoutEnd: where growth may flatten before the limit, no rule fires yet.
func TestForecastWithoutEnd(t *testing.T) {
	rule := rules(t, "eta<10m:warn")[0]
	l, eta := slurm(70), 60.0
	if l.ETA = &eta; crossed(rule, &l, 0) {
		t.Error("it fires without an end")
	}
	if l.ETAHigh = &eta; !crossed(rule, &l, 0) {
		t.Error("it does not fire")
	}
}
