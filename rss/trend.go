package rss

import (
	"math"
	"slices"
	"time"
)

const (
	trendCap     = 384            // points kept at most
	trendSpacing = time.Second    // least distance between two of them
	trendThin    = 36             // older points: their age over this
	trendHorizon = 24 * time.Hour // nothing older is kept

	// HoldTime is the least time a slope must have held before it counts.
	HoldTime = 3 * time.Minute
	// holdShare is the part of a forecast over which its slope must have held.
	holdShare = 4

	trendBins   = 24   // points of one window that enter a slope
	trendFilled = 18   // … of which so many must be there
	senZ        = 1.64 // of Sen's confidence interval: 90 %
)

type point struct {
	at time.Duration
	v  Bytes
}

// Trend follows one number over time and says how fast it grows, and when it
// reaches a limit. It keeps a history that is dense near now and thin far back
// (one point a second, later one per 36th of its age, up to a day), so memory
// and work are bounded: 384 points, a slope over at most 24 of them. Neither
// adding nor asking allocates. The zero value is empty.
//
// A slope is the median of the slopes between all pairs of points (Theil-Sen):
// a third of the points may be off without moving it. It counts only where it
// has held, see [Trend.ETA].
type Trend struct {
	// Hold is the least time a slope must have held where that is longer than
	// [HoldTime]: whoever adds a reading less often than each 10 s wants 20 of
	// them in it.
	Hold time.Duration

	points [trendCap]point
	n      int
	last   point
	seen   bool

	xs, ys [trendBins]float64 // seconds before now (negative), bytes
	bins   int
	pairs  [trendBins * (trendBins - 1) / 2]float64
}

// Add takes a reading at that time on a monotonic clock. One that goes back in
// time is ignored. Readings closer than a second to the last kept one stand for
// now only until the next.
func (t *Trend) Add(at time.Duration, v Bytes) {
	if t.seen && at < t.last.at {
		return
	}
	t.seen, t.last = true, point{at, v}
	if t.n > 0 && at-t.points[t.n-1].at < trendSpacing {
		return
	}
	if t.n == trendCap {
		t.thin(at)
	}
	t.points[t.n] = t.last
	t.n++
}

// thin drops points from new to old until each is as far from the next as its
// age asks for. That leaves at most 36 + 36·ln(24 h / 36 s) = 317 and the
// newest, so room is always made.
func (t *Trend) thin(now time.Duration) {
	w := trendCap // kept points stand at the end while this runs
	for i := trendCap - 1; i >= 0; i-- {
		p := t.points[i]
		age := now - p.at
		if age > trendHorizon {
			break
		}
		if w < trendCap && t.points[w].at-p.at < age/trendThin {
			continue
		}
		w--
		t.points[w] = p
	}
	t.n = copy(t.points[:], t.points[w:])
}

// Last returns the latest reading; ok is false where there is none.
func (t *Trend) Last() (v Bytes, ok bool) { return t.last.v, t.seen }

// Slope returns how fast the number has grown over the last [HoldTime] or Hold, in
// bytes a second, and the range in which that rate lies (90 %, and whatever
// the last quarter of the time says). ok is false where it has not held: too
// short a history, a step, a fall, growth that has stopped.
func (t *Trend) Slope() (perSecond, low, high float64, ok bool) {
	f, ok := t.fit(t.hold())
	return f.slope, f.low, f.high, ok
}

// ETA forecasts when the number reaches limit, with the earliest and latest
// time the readings allow.
//
// ok is false unless more than half of the limit is used and the slope has held
// for the longest of three minutes, Hold and a quarter of the forecast. Held means:
// the middle and the last third of that time both rose, the last quarter and
// the last twelfth no less than half as fast as the whole; and if growth slows
// down as it has slowed over that time, it still gets there. So a ramp at
// start-up that flattens has no forecast, and neither has a saw-tooth.
func (t *Trend) ETA(limit Bytes) (eta, low, high time.Duration, ok bool) {
	if !t.seen || limit == 0 || t.last.v <= limit/2 || t.n == 0 {
		return 0, 0, 0, false
	}
	if t.last.v >= limit {
		return 0, 0, 0, false
	}
	left := float64(limit - t.last.v)
	span := t.last.at - t.points[0].at
	for window := t.hold(); window <= span; {
		f, held := t.fit(window)
		if !held {
			return 0, 0, 0, false
		}
		need := seconds(left / f.slope / holdShare)
		if need <= window {
			if f.reach <= left {
				return 0, 0, 0, false
			}
			eta = seconds(left / f.slope)
			low = min(eta, seconds(max(left-f.noise, 0)/f.high))
			high = max(eta, seconds((left+f.noise)/f.low))
			return eta, low, high, true
		}
		window = max(need, window+window/4)
	}
	return 0, 0, 0, false
}

func (t *Trend) hold() time.Duration { return max(HoldTime, t.Hold) }

// fit is what one window of the history says.
type fit struct {
	slope, low, high float64 // bytes a second
	noise            float64 // spread of the readings around the slope, bytes
	reach            float64 // how far growth still goes, slowing as it has; +Inf if it does not slow
}

// fit looks at the last window. ok is false where growth has not held over it.
func (t *Trend) fit(window time.Duration) (f fit, ok bool) {
	if !t.gather(window) {
		return f, false
	}
	xs, ys := t.xs[:t.bins], t.ys[:t.bins]
	f.slope, f.low, f.high = t.sen(0)
	if f.slope <= 0 || f.low <= 0 {
		return f, false
	}
	// Three medians: the first and the second half of the rise.
	a, b := t.bins/3, t.bins-t.bins/3
	xa, ya := middle(xs[:a], ys[:a])
	xb, yb := middle(xs[a:b], ys[a:b])
	xc, yc := middle(xs[b:], ys[b:])
	first, second := (yb-ya)/(xb-xa), (yc-yb)/(xc-xb)
	if first < f.slope/3 || second < f.slope/3 {
		return f, false
	}
	recent, _, _ := t.sen(t.bins - t.bins/4)
	if recent < f.slope/2 {
		return f, false
	}
	tail := t.bins - 1 - t.bins/12
	if ys[t.bins-1]-ys[tail] < f.slope/2*(xs[t.bins-1]-xs[tail]) {
		return f, false
	}
	f.low, f.high = min(f.low, recent), max(f.high, recent)
	f.reach = math.Inf(1)
	if q := second / first; q < 1 {
		// An exponential approach: what is still to come is rate × time constant.
		f.reach = second * (xc - xa) / 2 / -math.Log(q)
	}
	f.noise = t.residual(f.slope)
	return f, true
}

// gather fills xs and ys with one reading per bin of the window, the last of
// each. ok is false where too many bins are empty: the window was not watched.
func (t *Trend) gather(window time.Duration) (ok bool) {
	now := t.last.at
	bin := window / trendBins
	t.bins = 0
	t.push(t.last)
	end := now - bin // bins end here and before; the first is now itself
	for i := t.n - 1; i >= 0; i-- {
		p := t.points[i]
		if now-p.at > window {
			break
		}
		if p.at > end {
			continue
		}
		if t.bins == trendBins {
			break
		}
		t.push(p)
		end -= ((end - p.at) / bin) * bin
		end -= bin
	}
	if t.bins < trendFilled || now-t.oldest() < window-window/8 {
		return false
	}
	slices.Reverse(t.xs[:t.bins])
	slices.Reverse(t.ys[:t.bins])
	return true
}

func (t *Trend) push(p point) {
	t.xs[t.bins] = (p.at - t.last.at).Seconds()
	t.ys[t.bins] = float64(p.v)
	t.bins++
}

// oldest is the time of the last point pushed.
func (t *Trend) oldest() time.Duration {
	return t.last.at + seconds(t.xs[t.bins-1])
}

// sen returns the Theil-Sen slope over the gathered points from index from on,
// with Sen's (1968) confidence interval from the ranks of the pairs.
func (t *Trend) sen(from int) (slope, low, high float64) {
	pairs := t.pairs[:0]
	for i := from; i < t.bins; i++ {
		for j := i + 1; j < t.bins; j++ {
			if dx := t.xs[j] - t.xs[i]; dx > 0 {
				pairs = append(pairs, (t.ys[j]-t.ys[i])/dx)
			}
		}
	}
	if len(pairs) == 0 {
		return 0, 0, 0
	}
	slices.Sort(pairs)
	n := float64(t.bins - from)
	c := senZ * math.Sqrt(n*(n-1)*(2*n+5)/18)
	lo := int((float64(len(pairs)) - c) / 2)
	hi := int((float64(len(pairs))+c)/2) + 1
	return sortedMedian(pairs), pairs[max(lo, 0)], pairs[min(hi, len(pairs)-1)]
}

// residual is the median absolute deviation of the gathered readings from the
// line through now with that slope, scaled to a standard deviation.
func (t *Trend) residual(slope float64) float64 {
	r := t.pairs[:t.bins]
	for i := range r {
		r[i] = t.ys[i] - slope*t.xs[i]
	}
	return 1.4826 * mad(r)
}

// middle is the point of medians of a stretch.
func middle(xs, ys []float64) (x, y float64) {
	var buf [trendBins]float64
	x = sortedMedian(xs) // they stand in order of time
	s := buf[:copy(buf[:], ys)]
	slices.Sort(s)
	return x, sortedMedian(s)
}

// mad is the median absolute deviation of xs from their median, a measure of spread
// that half of the values cannot move far. It reorders xs.
func mad(xs []float64) float64 {
	slices.Sort(xs)
	m := sortedMedian(xs)
	for i, x := range xs {
		xs[i] = math.Abs(x - m)
	}
	slices.Sort(xs)
	return sortedMedian(xs)
}

func sortedMedian(s []float64) float64 {
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// seconds turns a number of seconds into a Duration, the greatest for what is
// longer.
func seconds(s float64) time.Duration {
	if s >= float64(math.MaxInt64)/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
