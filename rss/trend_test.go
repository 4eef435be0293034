package rss

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// play feeds f, a share of limit at each second, until end and returns when
// the first forecast below horizon was made, or 0.
func play(t *Trend, limit Bytes, end, horizon time.Duration, f func(at time.Duration) float64) (first time.Duration) {
	for at := time.Duration(0); at <= end; at += time.Second {
		t.Add(at, limit.Scale(f(at)))
		if eta, _, _, ok := t.ETA(limit); ok && eta < horizon && first == 0 {
			first = at
		}
	}
	return first
}

const testLimit = 3000 * MiB

// line rises by perMinute of the limit from start.
func line(start, perMinute float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 { return start + perMinute*at.Minutes() }
}

func TestForecastOfALeak(t *testing.T) {
	var tr Trend
	play(&tr, testLimit, 10*time.Minute, 0, line(0.40, 0.03)) // 70 % by now
	eta, low, high, ok := tr.ETA(testLimit)
	if !ok || (eta-10*time.Minute).Abs() > 5*time.Second {
		t.Fatalf("eta %v, %v; want 10m", eta, ok)
	}
	if low > eta || high < eta || high-low > 3*time.Minute {
		t.Errorf("range %v to %v around %v", low, high, eta)
	}
	perSecond, ok := tr.Slope()
	want := float64(testLimit) * 0.03 / 60
	if !ok || math.Abs(perSecond/want-1) > 0.01 {
		t.Errorf("slope %v, %v; want %v", perSecond, ok, want)
	}
}

// TestFirstForecast: when the first forecast below a horizon is made, if any is.
func TestFirstForecast(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const never, minute = 0, time.Minute
	leak := line(0.4, 0.03)
	for _, c := range []struct {
		what         string
		end, horizon time.Duration
		f            func(at time.Duration) float64
		from, to     time.Duration
	}{
		{"three minutes of growth are needed", 4 * minute, 10 * minute, line(0.55, 0.08), HoldTime, HoldTime + 10*time.Second},
		{"40 minutes ahead, ten of growth", 15 * minute, time.Hour, line(0.55, 0.009), 9 * minute, 12 * minute},
		{"half must be used", 10 * minute, time.Hour, line(0.10, 0.05), 8*minute + time.Second, 10 * minute},
		{"jitter", 18 * minute, 10 * minute, func(at time.Duration) float64 { return leak(at) + 0.01*rng.Float64() }, 9 * minute, 13 * minute},
		{"spikes", 18 * minute, 10 * minute, func(at time.Duration) float64 { return leak(at) - 0.3*b2f(rng.IntN(10) == 0) }, 9 * minute, 13 * minute},
		{"stairs of 20 s", 18 * minute, 10 * minute, func(at time.Duration) float64 { return leak(at.Truncate(20 * time.Second)) }, 9 * minute, 13 * minute},

		{"flat", 40 * minute, 10 * minute, func(time.Duration) float64 { return 0.7 }, never, never},
		{"falling", 40 * minute, 10 * minute, line(0.95, -0.02), never, never},
		{"noise", 40 * minute, 10 * minute, func(time.Duration) float64 { return 0.7 + 0.05*rng.Float64() }, never, never},
		{"at the limit", 40 * minute, 10 * minute, func(time.Duration) float64 { return 1 }, never, never},
		{"a step", 40 * minute, 10 * minute, func(at time.Duration) float64 { return 0.55 + 0.2*b2f(at > 5*minute) }, never, never},
		{"steps up and down", 40 * minute, 10 * minute, func(at time.Duration) float64 { return 0.55 + 0.2*b2f(at%(4*minute) > 2*minute) }, never, never},
		{"epochs of a minute", 40 * minute, 10 * minute, func(at time.Duration) float64 { return 0.55 + 0.25*(at%minute).Minutes() }, never, never},
	} {
		var tr Trend
		if first := play(&tr, testLimit, c.end, c.horizon, c.f); first < c.from || first > c.to {
			t.Errorf("%s: first forecast at %v, want %v to %v", c.what, first, c.from, c.to)
		}
	}
	// Growth that paused is not back because of one jump.
	var tr Trend
	play(&tr, testLimit, 10*minute, 0, func(at time.Duration) float64 {
		return line(0.4, 0.04)(min(at, 570*time.Second)) + 0.02*b2f(at > 595*time.Second)
	})
	if eta, _, _, ok := tr.ETA(testLimit); ok {
		t.Errorf("forecast %v after a pause", eta)
	}
}

// A ramp to 70 % that flattens, however long it takes up to three minutes, and
// whatever its shape, is no leak.
func TestNoForecastOnStartUp(t *testing.T) {
	for _, ramp := range []time.Duration{time.Second, 20 * time.Second, time.Minute, 2 * time.Minute, 150 * time.Second, 170 * time.Second} {
		var tr Trend
		first := play(&tr, testLimit, 30*time.Minute, 10*time.Minute, func(at time.Duration) float64 {
			return 0.7 * min(1, at.Seconds()/ramp.Seconds())
		})
		if first != 0 {
			t.Errorf("straight ramp of %v: forecast at %v", ramp, first)
		}
	}
	for tau := 5 * time.Second; tau < 20*time.Minute; tau = tau * 5 / 4 {
		var tr Trend
		first := play(&tr, testLimit, 60*time.Minute, 10*time.Minute, func(at time.Duration) float64 {
			return 0.7 * (1 - math.Exp(-at.Seconds()/tau.Seconds()))
		})
		if first != 0 {
			t.Errorf("ramp with time constant %v: forecast at %v", tau, first)
		}
	}
}

// A forecast far ahead needs a history that reaches far back, thinned.
func TestForecastOverHours(t *testing.T) {
	var tr Trend
	play(&tr, testLimit, 8*time.Hour, 0, line(0.3, 0.001)) // 78 %
	eta, _, _, ok := tr.ETA(testLimit)
	if want := 220 * time.Minute; !ok || (eta-want).Abs() > 3*time.Minute {
		t.Errorf("eta %v, %v; want %v", eta, ok, want)
	}
}

func TestTrendIsBounded(t *testing.T) {
	var tr Trend
	for at := time.Duration(0); at < 60*time.Hour; at += 700 * time.Millisecond {
		tr.Add(at, Bytes(at))
	}
	if tr.n > trendCap {
		t.Fatalf("%d points", tr.n)
	}
	if age := tr.last.at - tr.points[0].at; age > trendHorizon+time.Hour || age < trendHorizon-3*time.Hour {
		t.Errorf("history reaches back %v, want a day", age)
	}
	for i := 1; i < tr.n; i++ {
		if tr.points[i].at <= tr.points[i-1].at {
			t.Fatalf("points %d and %d out of order", i-1, i)
		}
	}
}

func TestTrendDoesNotAllocate(t *testing.T) {
	var tr Trend
	play(&tr, testLimit, 10*time.Minute, 0, line(0.4, 0.03))
	at := tr.last.at
	if n := testing.AllocsPerRun(1000, func() {
		at += time.Second
		tr.Add(at, testLimit.Scale(line(0.4, 0.03)(10*time.Minute)))
		tr.ETA(testLimit)
		tr.Slope()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A watcher that was suspended has not seen the slope hold.
func TestNoForecastAcrossAGap(t *testing.T) {
	var tr Trend
	f := line(0.5, 0.04)
	for at := time.Duration(0); at <= 10*time.Minute; at += time.Second {
		if at < 7*time.Minute+20*time.Second || at > 9*time.Minute {
			tr.Add(at, testLimit.Scale(f(at)))
		}
	}
	if eta, _, _, ok := tr.ETA(testLimit); ok {
		t.Errorf("forecast %v from two ends", eta)
	}
}

// Whatever the readings, a forecast lies within its range and ahead.
func TestForecastRange(t *testing.T) {
	made := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var tr Trend
		noise, slope := rng.Float64()*0.02, rng.Float64()*0.02
		for at := time.Duration(0); at <= 15*time.Minute; at += time.Second {
			tr.Add(at, testLimit.Scale(line(0.55, slope)(at)+noise*rng.NormFloat64()))
			if perSecond, ok := tr.Slope(); ok && perSecond <= 0 {
				t.Fatalf("seed %d at %v: slope %v", seed, at, perSecond)
			}
			eta, low, high, ok := tr.ETA(testLimit)
			if !ok {
				continue
			}
			made++
			if low < 0 || low > eta || high < eta {
				t.Fatalf("seed %d at %v: %v in [%v, %v]", seed, at, eta, low, high)
			}
		}
	}
	if made == 0 {
		t.Error("no forecast at all")
	}
}

func TestTrendIgnoresTimeGoingBack(t *testing.T) {
	var tr Trend
	if _, ok := tr.Last(); ok {
		t.Error("an empty trend has a last reading")
	}
	if _, _, _, ok := tr.ETA(testLimit); ok {
		t.Error("an empty trend has a forecast")
	}
	tr.Add(time.Minute, 5)
	tr.Add(time.Second, 7)
	if v, ok := tr.Last(); v != 5 || !ok {
		t.Errorf("last = %d, %v; want 5", v, ok)
	}
	if _, ok := tr.Slope(); ok {
		t.Error("one reading has a slope")
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func TestRate(t *testing.T) {
	var r Rate
	if got := r.PerSecond(time.Hour); got != 0 {
		t.Errorf("nothing seen: %v", got)
	}
	r.Add(0, GiB)
	r.Add(10*time.Millisecond, 2*GiB) // too soon to tell
	if got := r.PerSecond(10 * time.Millisecond); got != 0 {
		t.Errorf("after 10 ms: %v", got)
	}
	r.Add(time.Second, GiB+100*MiB)
	if got := r.PerSecond(time.Second); got != float64(100*MiB) {
		t.Errorf("rate %v, want 100 MiB/s", Bytes(got))
	}
	r.Add(2*time.Second, GiB) // falling is no filling
	r.Add(3*time.Second, GiB+50*MiB)
	if got, want := r.PerSecond(61*time.Second), float64(50*MiB); got != want {
		t.Errorf("a minute later %v, want half", Bytes(got))
	}
	r.Add(2*time.Second, 100*GiB) // time going back
	r.Add(123*time.Second, GiB+50*MiB+120*40*MiB)
	if got, want := Bytes(r.PerSecond(123*time.Second)), 40*MiB; got != want {
		t.Errorf("rate %v, want the newer and now faster %v", got, want)
	}
	r.Skip()
	r.Add(183*time.Second, 500*GiB) // grew while not read
	if got, want := Bytes(r.PerSecond(183*time.Second)), 20*MiB; got != want {
		t.Errorf("rate %v after a gap, want %v: half of what it was a minute before", got, want)
	}
}

// shape is one way in which memory grows. start returns what is read at each time; it is
// called in the order of time, about once a second. Shares are of the limit.
type shape struct {
	name    string
	reaches bool // its limit, in less than shapeEnd
	wild    bool // nothing that has been says how it goes on
	start   func(rng *rand.Rand) func(at time.Duration) shapeReading
}

type shapeReading struct{ used, mapped, most float64 }

// shapeEnd is when a shape that has not reached its limit is over.
const shapeEnd = 60 * time.Minute

// anon is a shape of memory that no file bounds.
func anon(f func(rng *rand.Rand, m float64) float64) func(*rand.Rand) func(time.Duration) shapeReading {
	return func(rng *rand.Rand) func(time.Duration) shapeReading {
		return func(at time.Duration) shapeReading { return shapeReading{used: f(rng, at.Minutes())} }
	}
}

// reader is a number of processes that read the records of one mapped file, which is this
// share of the limit: perMinute records together, in the order of next.
func reader(processes int, file, base, leak float64, perMinute float64, next func(rng *rand.Rand, process, n int) int) func(*rand.Rand) func(time.Duration) shapeReading {
	const records = shapeRecords
	return func(rng *rand.Rand) func(time.Duration) shapeReading {
		seen := make([][]bool, processes)
		count := make([]int, processes)
		for i := range seen {
			seen[i] = make([]bool, records)
		}
		covered, read := 0, 0
		return func(at time.Duration) shapeReading {
			for ; float64(read) < perMinute*at.Minutes(); read++ {
				p := read % processes
				r := next(rng, p, count[p])
				count[p]++
				if !seen[p][r] {
					seen[p][r] = true
					covered++
				}
			}
			mapped := file * float64(covered) / records
			return shapeReading{base + leak*at.Minutes() + mapped, mapped + base/10, file*float64(processes) + base/10}
		}
	}
}

const shapeRecords = 1000

// shuffled hands each process its part of a new order in every epoch.
func shuffled(processes int) func(rng *rand.Rand, process, n int) int {
	var order []int
	epoch := -1
	return func(rng *rand.Rand, process, n int) int {
		i := n*processes + process
		if e := i / shapeRecords; e != epoch {
			order, epoch = rng.Perm(shapeRecords), e
		}
		return order[i%shapeRecords]
	}
}

func atRandom(rng *rand.Rand, _, _ int) int { return rng.IntN(shapeRecords) }

func inOrder(_ *rand.Rand, _, n int) int { return n % shapeRecords }

func shapes() []shape {
	saturating := func(level, minutes float64) func(*rand.Rand, float64) float64 {
		return func(rng *rand.Rand, m float64) float64 {
			return 0.05 + (level-0.05)*(1-math.Exp(-m/minutes)) + 0.002*rng.NormFloat64()
		}
	}
	return []shape{
		{"steady", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.1 + 0.07*m })},
		{"slow and steady", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.1 + 0.025*m })},
		{"noisy", true, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.1 + 0.06*m + 0.015*rng.NormFloat64() })},
		{"steps of 45 s", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.1 + 0.06*0.75*math.Floor(m/0.75) })},
		{"steps of 100 s", true, false, anon(func(rng *rand.Rand, m float64) float64 {
			return 0.1 + 0.075*math.Floor(m/1.667) + 0.003*rng.NormFloat64()
		})},
		{"epochs that ramp and rest", true, false, anon(func(_ *rand.Rand, m float64) float64 {
			e := math.Floor(m / 1.5)
			return 0.1 + 0.08*(e+min(1, (m-1.5*e)/0.5))
		})},
		{"accelerating, square", true, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.1 + 0.9*m*m/196 + 0.001*rng.NormFloat64() })},
		{"accelerating, exponential", true, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.12*math.Exp(m/6.6) + 0.001*rng.NormFloat64() })},
		{"burst, then steady", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.4*min(1, m*3) + 0.045*m })},
		{"slow, then fast", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.1 + 0.03*m + 0.05*max(0, m-6) })},
		{"fast, then slow", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.05 + 0.09*min(m, 4) + 0.04*max(0, m-4) })},
		{"garbage collected, with a leak", true, false, anon(func(rng *rand.Rand, m float64) float64 {
			return 0.1 + 0.055*m + 0.08*math.Mod(m, 0.7)/0.7
		})},
		{"random walk upwards", true, true, func(rng *rand.Rand) func(time.Duration) shapeReading {
			v, last := 0.1, time.Duration(0)
			return func(at time.Duration) shapeReading {
				d := (at - last).Minutes()
				last = at
				v += 0.06*d + 0.02*math.Sqrt(d)*rng.NormFloat64()
				return shapeReading{used: v}
			}
		}},
		{"cache that slows down above", true, false, anon(saturating(1.35, 8))},
		{"LMDB at random, above", true, false, reader(4, 0.35, 0.08, 0, 480, atRandom)},
		{"LMDB in epochs, above", true, false, reader(4, 0.40, 0.08, 0, 450, shuffled(4))},
		{"LMDB in order, above", true, false, reader(4, 0.40, 0.08, 0, 230, inOrder)},
		{"LMDB at random, with a leak", true, false, reader(4, 0.15, 0.05, 0.025, 450, atRandom)},

		{"very noisy", true, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.1 + 0.06*m + 0.04*rng.NormFloat64() })},
		{"cache that slows down far above", true, false, anon(saturating(2, 12))},
		{"LMDB at random, far above", true, false, reader(8, 0.5, 0.08, 0, 250, atRandom)},
		{"LMDB in epochs, far above", true, false, reader(8, 0.5, 0.08, 0, 250, shuffled(8))},
		{"one jump, then steady", true, false, anon(func(_ *rand.Rand, m float64) float64 { return 0.1 + 0.04*m + 0.2*math.Floor(min(m/3, 1)) })},
		{"steady, with dips", true, false, anon(func(rng *rand.Rand, m float64) float64 {
			v := 0.1 + 0.05*m
			if rng.IntN(12) == 0 {
				v -= 0.1
			}
			return v
		})},
		{"cache that fills just below", false, false, anon(saturating(0.9, 4))},
		{"cache that fills below, noise", false, false, anon(func(rng *rand.Rand, m float64) float64 { return saturating(0.75, 5)(rng, m) + 0.007*rng.NormFloat64() })},
		{"noise", false, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.7 + 0.02*rng.NormFloat64() })},
		{"cache that fills below", false, false, anon(saturating(0.8, 5))},
		{"burst, then flat", false, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.7*min(1, m*2) + 0.003*rng.NormFloat64() })},
		{"LMDB at random, below", false, false, reader(4, 0.18, 0.08, 0, 450, atRandom)},
		{"LMDB at random, just below", false, false, reader(4, 0.215, 0.08, 0, 300, atRandom)},
		{"LMDB in epochs, below", false, false, reader(4, 0.19, 0.08, 0, 450, shuffled(4))},
		{"LMDB in order, below", false, false, reader(4, 0.2, 0.05, 0, 300, inOrder)},
		{"LMDB of one process, in order, below", false, false, reader(1, 0.85, 0.05, 0, 80, inOrder)},
		{"garbage collected, no leak", false, false, anon(func(rng *rand.Rand, m float64) float64 { return 0.55 + 0.25*math.Mod(m, 0.9)/0.9 })},
	}
}

// outcome is what was forecast in one run of a shape.
type outcome struct {
	half    time.Duration // when half of the limit was used
	first   time.Duration // when the first forecast after it was made, 0 for none
	by      Forecast      // that one
	truth   time.Duration // from then on, 0 where the limit was not reached
	warned  bool          // sure to reach the limit within ten minutes
	level   Bytes         // where it was first said to flatten
	highest Bytes
}

// off is how far off the first forecast was, as a part of the truth.
func (o *outcome) off() float64 { return float64(o.by.ETA)/float64(o.truth) - 1 }

func (o *outcome) inRange() bool { return o.by.Low <= o.truth && o.truth <= o.by.High }

func runShape(sh *shape, seed uint64) (o outcome) {
	rng := rand.New(rand.NewPCG(seed, 27))
	next, speed := sh.start(rng), 0.7+0.6*rng.Float64()
	var tr Trend
	made := -time.Hour
	for at := time.Duration(0); at < shapeEnd; at += time.Second + time.Duration(rng.IntN(40))*time.Millisecond {
		r := next(time.Duration(speed * float64(at)))
		used := testLimit.Scale(r.used)
		if used >= testLimit {
			o.truth = at - o.first
			return o
		}
		o.highest = max(o.highest, used)
		tr.AddMapped(at, used, testLimit.Scale(r.mapped), testLimit.Scale(r.most))
		if used <= testLimit/2 || at-made < 5*time.Second {
			continue
		}
		if o.half == 0 {
			o.half = at
		}
		made = at
		f, ok := tr.Forecast(testLimit)
		switch {
		case !ok:
		case !f.Reaches && o.level == 0:
			o.level = f.Level
		case f.Reaches:
			if o.first == 0 {
				o.first, o.by = at, f
			}
			o.warned = o.warned || f.ETA < 10*time.Minute && f.High < Never
		}
	}
	return o
}

// TestForecastOfShapes holds how good forecasts are, shape by shape. -v prints it.
func TestForecastOfShapes(t *testing.T) {
	const seeds = 3
	var offs []float64
	runs, within, flattened := 0, 0, 0
	for _, sh := range shapes() {
		for seed := range uint64(seeds) {
			o := runShape(&sh, seed)
			if !sh.reaches {
				t.Logf("%-36s flattens at %.2f, forecast %.2f", sh.name, o.highest.Of(testLimit), o.level.Of(testLimit))
				if o.warned {
					t.Errorf("%s, seed %d: warned at %v of %v in %v", sh.name, seed, o.by, testLimit, o.first)
				}
				if off := o.level.Of(testLimit) - o.highest.Of(testLimit); o.level > 0 && math.Abs(off) > 0.15 {
					t.Errorf("%s, seed %d: flattens at %v, forecast %v", sh.name, seed, o.highest, o.level)
				}
				continue
			}
			if o.first == 0 || o.first-o.half > 5*time.Minute {
				t.Errorf("%s, seed %d: half is used at %v, first forecast at %v", sh.name, seed, o.half, o.first)
				continue
			}
			t.Logf("%-36s %+4.0f %%: %v, %v to %v; it took %v", sh.name, 100*o.off(), o.by.ETA.Round(time.Second), o.by.Low.Round(time.Second), o.by.High.Round(time.Second), o.truth.Round(time.Second))
			runs++
			if o.level > 0 {
				t.Logf("%-36s was said to flatten at %v", sh.name, o.level)
				flattened++
			}
			if o.inRange() {
				within++
			}
			offs = append(offs, math.Abs(o.off()))
			if !sh.wild && math.Abs(o.off()) > 0.35 {
				t.Errorf("%s, seed %d: forecast %+v, it took %v", sh.name, seed, o.by, o.truth)
			}
			if !o.warned {
				t.Errorf("%s, seed %d: never warned", sh.name, seed)
			}
		}
	}
	slices.Sort(offs)
	median := offs[len(offs)/2]
	t.Logf("median %.1f %%, range holds %d of %d", 100*median, within, runs)
	if flattened*10 > runs {
		t.Errorf("%d of %d were said to flatten for a while", flattened, runs)
	}
	if median > 0.10 || within*100 < runs*90 {
		t.Errorf("median %.1f %% off, want at most 10 %%; %d of %d within their range, want 90 %%", 100*median, within, runs)
	}
}
