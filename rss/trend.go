package rss

import (
	"math"
	"slices"
	"sort"
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
	at        time.Duration
	v, mapped Bytes
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
	// [HoldTime]: with readings less often than each 10 s it should hold 20 of them.
	Hold time.Duration

	points [trendCap]point
	n      int
	last   point
	seen   bool

	most Bytes // of mapped; 0 where it is not known

	xs, ys, ms [trendBins]float64 // seconds before now (negative), bytes, bytes that are mapped
	bins       int
	pairs      [trendBins * (trendBins - 1) / 2]float64
}

// Add takes a reading at that time on a monotonic clock. One that goes back in
// time is ignored. Readings closer than a second to the last kept one stand for
// now only until the next.
func (t *Trend) Add(at time.Duration, v Bytes) { t.AddMapped(at, v, 0, 0) }

// AddMapped is [Trend.Add] of a number that in part is pages of mapped files: mapped
// of v is, and it can be most where all of these files is read; 0 where that is not known.
func (t *Trend) AddMapped(at time.Duration, v, mapped, most Bytes) {
	if t.seen && at < t.last.at {
		return
	}
	t.seen, t.last, t.most = true, point{at, v, min(mapped, v)}, most
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
	w := trendCap // kept points are at the end while this runs
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
// bytes a second. ok is false where it has not held: the middle and
// the last third of that time both rose, the last quarter and the last twelfth no less
// than half as fast as the whole.
func (t *Trend) Slope() (perSecond float64, ok bool) {
	if !t.gather(t.hold()) {
		return 0, false
	}
	xs, ys := t.xs[:t.bins], t.ys[:t.bins]
	slope, low, _ := t.sen(0, t.bins)
	if slope <= 0 || low <= 0 {
		return slope, false
	}
	a, b := t.bins/3, t.bins-t.bins/3
	xa, ya := middle(xs[:a], ys[:a])
	xb, yb := middle(xs[a:b], ys[a:b])
	xc, yc := middle(xs[b:], ys[b:])
	if (yb-ya)/(xb-xa) < slope/3 || (yc-yb)/(xc-xb) < slope/3 {
		return slope, false
	}
	recent, _, _ := t.sen(t.bins-t.bins/4, t.bins)
	tail := t.bins - 1 - t.bins/12
	return slope, recent >= slope/2 && ys[t.bins-1]-ys[tail] >= slope/2*(xs[t.bins-1]-xs[tail])
}

func (t *Trend) hold() time.Duration { return max(HoldTime, t.Hold) }

// since returns the first point of the last window; see [Trend.point].
func (t *Trend) since(window time.Duration) int {
	return sort.Search(t.n, func(i int) bool { return t.last.at-t.points[i].at <= window })
}

// point returns a point, the last reading for one more than there are.
func (t *Trend) point(i int) *point {
	if i == t.n {
		return &t.last
	}
	return &t.points[i]
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
	slices.Reverse(t.ms[:t.bins])
	return true
}

func (t *Trend) push(p point) {
	t.xs[t.bins] = (p.at - t.last.at).Seconds()
	t.ys[t.bins], t.ms[t.bins] = float64(p.v), float64(p.mapped)
	t.bins++
}

// oldest is the time of the last point pushed.
func (t *Trend) oldest() time.Duration {
	return t.last.at + seconds(t.xs[t.bins-1])
}

// sen returns the Theil-Sen slope over the gathered points from index from to before to,
// with Sen's (1968) confidence interval from the ranks of the pairs.
func (t *Trend) sen(from, to int) (slope, low, high float64) {
	pairs := t.pairs[:0]
	for i := from; i < to; i++ {
		for j := i + 1; j < to; j++ {
			if dx := t.xs[j] - t.xs[i]; dx > 0 {
				pairs = append(pairs, (t.ys[j]-t.ys[i])/dx)
			}
		}
	}
	if len(pairs) == 0 {
		return 0, 0, 0
	}
	slices.Sort(pairs)
	n := float64(to - from)
	c := senZ * math.Sqrt(n*(n-1)*(2*n+5)/18)
	lo := int((float64(len(pairs)) - c) / 2)
	hi := int((float64(len(pairs))+c)/2) + 1
	return sortedMedian(pairs), pairs[max(lo, 0)], pairs[min(hi, len(pairs)-1)]
}

// middle is the point of medians of a stretch.
func middle(xs, ys []float64) (x, y float64) {
	var buf [trendBins]float64
	x = sortedMedian(xs) // they are in order of time
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

const (
	// rateSpan is the least time over which a rate is measured. One fault may
	// map 2 MiB at once; over 2 ms that is no rate.
	rateSpan = 20 * time.Millisecond
	// rateHalfLife is the time in which a rate that is not seen again counts half.
	rateHalfLife = time.Minute
)

// Rate keeps the fastest fill rate of one limit, decaying slowly. The zero
// value has seen nothing.
type Rate struct {
	seen    bool
	from    time.Duration
	used    Bytes
	fastest float64
	latest  float64
	at      time.Duration // when fastest was exact
}

// Add takes a reading. Times must not go back; a reading that does is ignored.
func (r *Rate) Add(at time.Duration, used Bytes) {
	if !r.seen {
		r.seen, r.from, r.used = true, at, used
		if r.fastest == 0 {
			r.at = at
		}
		return
	}
	span := at - r.from
	if span < rateSpan {
		return
	}
	now := float64(used.Sub(r.used)) / span.Seconds()
	r.latest = now
	if now >= r.PerSecond(at) {
		r.fastest, r.at = now, at
	}
	r.from, r.used = at, used
}

// Skip makes the next reading the first of a new stretch: the time since the last
// one is not known.
func (r *Rate) Skip() { r.seen = false }

// PerSecond returns the fastest rate in bytes a second, as it counts at that
// time; 0 where nothing has grown yet.
func (r *Rate) PerSecond(at time.Duration) float64 {
	age := max(at-r.at, 0)
	return r.fastest * math.Exp2(-float64(age)/float64(rateHalfLife))
}

// Latest returns the rate of the last stretch, 0 where nothing grew in it or it
// is long ago: what grows now, not what has grown once.
func (r *Rate) Latest(at time.Duration) float64 {
	if at-r.from > time.Second {
		return 0
	}
	return r.latest
}
