package rss

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

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
