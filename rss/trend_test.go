package rss

import (
	"math"
	"math/rand/v2"
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
