package rss

import (
	"math"
	"slices"
	"time"
)

// Never is the time to what may not happen.
const Never = time.Duration(math.MaxInt64)

// Forecast says when a number reaches a limit, or where it flattens below it.
type Forecast struct {
	Reaches bool // the limit, in ETA from the last reading
	// ETA lies between Low and High (90 %). High is Never where the number may flatten
	// before it reaches the limit.
	ETA, Low, High time.Duration
	// Level is where it flattens; 0 where it reaches the limit, or where neither is certain.
	Level Bytes
}

const (
	z90 = 1.64 // standard deviations to each side that hold 90 %

	// clearRise is how many times the spread of the readings a rise must be.
	clearRise = 4
	// plainRise is from which on its curvature is believed: noise bends too.
	plainRise = 8
	// mostWindows are looked at from the first on over which growth has held: the longest
	// is four times as long.
	mostWindows = 5
	// mostWide is how many times ETA the end of its range is at most; beyond it is Never.
	mostWide = 3
	// modelError is how far off the kind of curve may be, of the logarithm of ETA, and
	// farAhead what comes to it for each window that ETA is ahead.
	modelError, farAhead = 0.06, 0.05
	// epochError comes to it where pages of files grow: an epoch ends at once.
	epochError = 0.09
)

// Forecast forecasts by the readings of up to a day when the number reaches limit. ok is
// false unless more than half of the limit is used and growth has held: for the longest
// of three minutes, Hold and a quarter of the forecast, in both halves of that time, and
// until now.
//
// What is mapped of files (see [Trend.AddMapped]) fills them, at a rate that falls with
// what is left to read where they are read at random. The rest grows at a rate that
// changes as it has changed: it may flatten by itself.
//
// Windows from short to long count for as long as each agrees with those before; of these
// the most certain one is taken. So a bend of long ago does not spoil the forecast. One that
// shows growth flattening is taken before shorter ones where it shows it more clearly: noise of
// a few minutes makes no forecast.
func (t *Trend) Forecast(limit Bytes) (best Forecast, ok bool) {
	if !t.seen || limit == 0 || t.last.v <= limit/2 || t.n == 0 || t.last.v >= limit {
		return best, false
	}
	span := t.last.at - t.points[0].at
	var low, high time.Duration
	var clearest float64
	apart, looked := false, 0
	for window := t.hold(); window <= span && looked < mostWindows; {
		if ok {
			looked++
		}
		switch f, clear, held := t.forecastBy(window, float64(limit)); {
		case !held:
		case !ok, !f.Reaches && (best.High == Never || clear > clearest):
			best, ok, low, high, clearest, apart = f, true, f.Low, f.High, clear, false
		case apart || f.Reaches != best.Reaches || f.ETA < low || f.ETA > high:
			apart = true
		default:
			if !f.Reaches || f.wide() < best.wide() {
				best = f
			}
			low, high, clearest = max(low, f.Low), min(high, f.High), max(clearest, clear)
		}
		if window == span {
			break
		}
		window = min(window+window/3, span)
	}
	return best, ok
}

// ETA is [Trend.Forecast] for the time alone: ok is false where the limit is not reached.
func (t *Trend) ETA(limit Bytes) (eta, low, high time.Duration, ok bool) {
	f, ok := t.Forecast(limit)
	return f.ETA, f.Low, f.High, ok && f.Reaches
}

func (f *Forecast) wide() float64 { return float64(f.High) / float64(max(f.Low, 1)) }

// forecastBy forecasts by one window. clear is how many times the spread of the readings
// their rise is; ok is false where growth has not held.
func (t *Trend) forecastBy(window time.Duration, limit float64) (f Forecast, clear float64, ok bool) {
	if !t.gather(window) {
		return f, 0, false
	}
	xs, ys := t.xs[:t.bins], t.ys[:t.bins]
	if jumped(ys) || t.paused(window) {
		return f, 0, false
	}
	var files growth
	if t.most > 0 {
		for i := range ys {
			ys[i] -= t.ms[i]
		}
		files = t.growth(xs, t.ms[:t.bins])
	}
	own := t.growth(xs, ys)
	rate := max(own.rate, 0) + max(files.rate, 0)
	rise := rate * window.Seconds()
	clear = rise / (own.noise + files.noise)
	if clear < clearRise || own.first+files.first < rate/4 || own.second+files.second < rate/4 || !t.lifted(window, rise/4) {
		return f, 0, false
	}
	for i := range ys {
		ys[i] += t.ms[i] * float64(min(t.most, 1))
	}
	slope, low, _ := t.sen(0, t.bins)
	if low <= 0 || rate > 1.4*slope || rate < slope/1.4 {
		return f, 0, false
	}
	for _, g := range [...]*growth{&own, &files} {
		if g.rate < slope/20 {
			g.rate = 0
		}
	}
	switch {
	case t.most > 0:
	case clear < plainRise:
		own.now += (slope - own.rate) * own.window / 2 // a line through the middle
		own.rate, own.bend = slope, 0
	case own.bend < 0:
		// Where the last third is as fast as the one before, it has slowed down at once.
		third := t.bins / 3
		_, _, before := t.sen(third, t.bins-third)
		recent, low, _ := t.sen(t.bins-third, t.bins)
		if c := own.bent(0, 0); low > before*math.Exp(c.bend*own.window/3/2) {
			own.now, own.rate, own.bend = ys[t.bins-1], recent, 0
		}
	}
	f, ok = t.meet(&own, &files, limit, window)
	return f, clear, ok
}

// meet follows both parts until they reach the limit together.
func (t *Trend) meet(own, files *growth, limit float64, window time.Duration) (f Forecast, ok bool) {
	most := float64(t.most)
	curves := func(bend, power, rate float64) (a, b curve) {
		if t.most > 0 {
			b = files.fill(most, power, rate)
		}
		return own.bent(bend, rate), b
	}
	left := limit - own.now - files.now - max(own.peak, files.peak)
	until := func(bend, power, rate float64) float64 {
		a, b := curves(bend, power, rate)
		return meets(&a, &b, left)
	}
	eta := until(0, 0, 0)
	if math.IsInf(eta, 1) {
		if sure := until(z90, 0, z90); math.IsInf(sure, 1) {
			a, b := curves(0, 0, 0)
			f.Level = Bytes(max(own.now+files.now+a.reach()+b.reach(), 0))
		}
		return f, true
	}
	if eta > holdShare*window.Seconds() {
		return f, false
	}
	// What is not certain adds up as squares, in logarithms.
	model := modelError + farAhead*eta/window.Seconds()
	if files.rate > own.rate {
		model += epochError
	}
	up, down := model*model, model*model
	add := func(other float64) {
		if d := math.Log(other / eta); d > 0 {
			up += d * d
		} else if d < 0 {
			down += d * d
		}
	}
	for _, z := range [...]float64{-z90, z90} {
		add(until(z, 0, 0))
		add(until(0, z, 0))
		add(until(0, 0, z))
	}
	f = Forecast{Reaches: true, ETA: seconds(eta), Low: seconds(eta * math.Exp(-math.Sqrt(down))), High: Never}
	if wide := math.Exp(math.Sqrt(up)); wide <= mostWide {
		f.High = seconds(eta * wide)
	}
	return f, true
}

// jumped says that most of a rise came at once.
func jumped(ys []float64) bool {
	low, high, first, second := ys[0], ys[0], 0.0, 0.0
	for i := 1; i < len(ys); i++ {
		low, high = min(low, ys[i]), max(high, ys[i])
		if d := ys[i] - ys[i-1]; d > first {
			first, second = d, first
		} else {
			second = max(second, d)
		}
	}
	return first > 0.4*(high-low) && first > 2.5*second
}

// paused says that growth has stopped, or has only come back: the last new maximum of the
// window is, or was until it came, longer ago than twice what any other took to come. Where
// nothing was read for an eighth of the window it is not known.
func (t *Trend) paused(window time.Duration) bool {
	var top Bytes
	var at, last, longest time.Duration
	began, before := false, time.Duration(0)
	for i := t.since(window); i <= t.n; i++ {
		p := t.point(i)
		if !began {
			began, top, at, before = true, p.v, p.at, p.at
			continue
		}
		if p.at-before > window/8 {
			return true
		}
		before = p.at
		if p.v > top {
			longest, last = max(longest, last), p.at-at
			top, at = p.v, p.at
		}
	}
	return last > 2*longest || t.last.at-at > 2*max(longest, last)
}

// lifted says that the least and the greatest of the last third of a window lie above those
// of the first by so much: a saw that is read now at its top, now at its foot seems to grow.
func (t *Trend) lifted(window time.Duration, by float64) bool {
	low, high := [3]Bytes{math.MaxUint64, math.MaxUint64, math.MaxUint64}, [3]Bytes{}
	for i := t.since(window); i <= t.n; i++ {
		p := t.point(i)
		third := 2 - min(int(3*(t.last.at-p.at)/window), 2)
		low[third], high[third] = min(low[third], p.v), max(high[third], p.v)
	}
	return float64(low[2])-float64(low[0]) >= by && float64(high[2])-float64(high[0]) >= by
}

// growth is how one part of the number has grown over a window. The zero value is nothing.
type growth struct {
	window      float64 // seconds
	now         float64 // bytes, by the curve
	peak, noise float64 // how far readings lie above it at most, and their spread
	rate        float64 // bytes a second, in the middle of the window
	rateDoubt   float64 // standard deviation, as a part of it
	// first and second are the rates in the middle of each half, and from and to the
	// bytes there.
	first, second, from, to float64
	// bend is the logarithm of second over first, and bendDoubt its variance.
	bend, bendDoubt float64
}

// growth fits a parabola by least squares. What lies far off it, a dip while garbage is
// collected, counts less in the second and third fit.
func (t *Trend) growth(xs, ys []float64) (g growth) {
	n, half := len(xs), -xs[0]/2
	g.window = 2 * half
	at := func(i int) float64 { return 1 + xs[i]/half } // -1 to 1
	var a, b, c, spread float64                         // a + b·x + c·x²
	var off [trendBins]float64
	for turn := range 3 {
		var sum [5]float64 // of x to that power
		var dot [3]float64 // … times y
		for i := range n {
			x, w := at(i), 1.0
			if turn > 0 {
				d := off[i] / (6 * spread) // Tukey's weights
				w = max(1-d*d, 0) * max(1-d*d, 0)
			}
			for k := range sum {
				sum[k] += w
				if k < 3 {
					dot[k] += w * ys[i]
				}
				w *= x
			}
		}
		if !solve(&sum, &dot) {
			break
		}
		a, b, c = dot[0], dot[1], dot[2]
		for i := range n {
			off[i] = ys[i] - a - at(i)*(b+c*at(i))
		}
		spread = max(1.4826*mad(append(t.pairs[:0], off[:n]...)), 1e-3*math.Abs(b)+1)
	}
	// Noise that goes on from one reading to the next averages out less well.
	var squares, next, inside float64
	for i := range n {
		if math.Abs(off[i]) > 6*spread {
			continue
		}
		inside++
		squares += off[i] * off[i]
		if i > 0 && math.Abs(off[i-1]) <= 6*spread {
			next += off[i] * off[i-1]
		}
	}
	g.noise = max(1.15*spread, math.Sqrt(squares/max(inside-3, 1)))
	if squares > 0 {
		k := min(max(next/squares, 0), 0.9)
		g.noise *= math.Sqrt((1 + k) / (1 - k))
	}
	sorted := append(t.pairs[:0], off[:n]...)
	slices.Sort(sorted)
	g.peak = max(0, sorted[n-1-n/12])

	g.now, g.from, g.to = a+b+c, a-b/2+c/4, a+b/2+c/4
	g.rate, g.first, g.second = b/half, (b-c)/half, (b+c)/half
	if b <= 0 {
		return g
	}
	// The variances of b and c of a parabola over evenly spaced readings.
	ofB, ofC := math.Sqrt(3/float64(n))*g.noise, math.Sqrt(180/float64(n))/4*g.noise
	g.rateDoubt = ofB / b
	const least = 0.05 // of the rate: a half in which nothing grew has a logarithm too
	g.bend = math.Log(max(g.second, least*g.rate) / max(g.first, least*g.rate))
	g.bendDoubt = 4*ofC*ofC/(b*b) + 0.0005
	return g
}

// solve solves the normal equations of a parabola: sum of the powers 0 to 4, and dot, which
// becomes the coefficients.
func solve(s *[5]float64, d *[3]float64) bool {
	det := s[0]*(s[2]*s[4]-s[3]*s[3]) - s[1]*(s[1]*s[4]-s[3]*s[2]) + s[2]*(s[1]*s[3]-s[2]*s[2])
	if det <= 0 {
		return false
	}
	a := d[0]*(s[2]*s[4]-s[3]*s[3]) - s[1]*(d[1]*s[4]-s[3]*d[2]) + s[2]*(d[1]*s[3]-s[2]*d[2])
	b := s[0]*(d[1]*s[4]-d[2]*s[3]) - d[0]*(s[1]*s[4]-s[3]*s[2]) + s[2]*(s[1]*d[2]-d[1]*s[2])
	c := s[0]*(s[2]*d[2]-s[3]*d[1]) - s[1]*(s[1]*d[2]-s[2]*d[1]) + d[0]*(s[1]*s[3]-s[2]*s[2])
	d[0], d[1], d[2] = a/det, b/det, c/det
	return true
}

// bent is how what nothing bounds goes on: its rate changes as it has. A bend counts less
// the less it is certain, and one upwards must be more so than one downwards: growth that
// slows down is common. bend and rate say how many standard deviations to go to one side.
func (g *growth) bent(bend, rate float64) curve {
	doubt := 8.0
	if g.bend < 0 {
		doubt = 1
	}
	k := min(g.bend*max(0, 1-doubt*g.bendDoubt/max(g.bend*g.bend, 1e-9)), 1.1)
	// By itself growth bends by 0.25 at a guess: what noise allows beyond that is doubtful.
	k += bend * math.Sqrt(g.bendDoubt/(1+g.bendDoubt/(0.25*0.25)))
	return curve{
		rate: max(g.rate*(1+rate*g.rateDoubt)*math.Exp(k), 0), bend: 2 * k / g.window, rises: g.window / 2,
	}
}

// fill is how files of so many bytes fill up. As which power of what is left the rate falls
// shows as soon as much is read; before that 0.8 is the guess, 1 being reads at random.
func (g *growth) fill(most, power, rate float64) curve {
	room := most - g.now
	if room <= 0 || g.rate <= 0 {
		return curve{}
	}
	const guess, doubt, epochs = 0.8, 0.5, 0.005
	weighted, weight := guess/(doubt*doubt), 1/(doubt*doubt)
	if l := math.Log((most - g.to) / (most - g.from)); l < 0 && g.first > 0 {
		variance := g.bendDoubt + epochs
		weighted += g.bend * l / variance
		weight += l * l / variance
	}
	p := min(max(weighted/weight+power/math.Sqrt(weight), 0), 3)
	middle := most - (g.from+g.to)/2
	return curve{rate: max(g.rate*(1+rate*g.rateDoubt)*math.Pow(room/middle, p), 0), room: room, power: p}
}

// curve is how a part goes on from now. The zero value stays as it is.
type curve struct {
	rate  float64 // bytes a second, now
	bend  float64 // by which part of itself the rate changes in a second,
	rises float64 // … and where it rises for how many seconds
	room  float64 // what is left to read of files; 0 where nothing bounds it
	power float64 // as which power of room the rate falls
}

// grown is by how much it has grown after s seconds.
func (c *curve) grown(s float64) float64 {
	switch {
	case c.rate <= 0:
		return 0
	case c.room > 0:
		x := c.rate / c.room * s
		if math.Abs(c.power-1) < 0.01 {
			return c.room * -math.Expm1(-x)
		}
		return c.room * (1 - math.Pow(max(1-(1-c.power)*x, 0), 1/(1-c.power)))
	case c.bend > 0:
		// Between a rate that rises evenly, two parts, and one that rises by itself.
		more := max(0, s-c.rises)
		s -= more
		x := c.bend * s
		return c.rate * (2*s*(1+x/2) + math.Expm1(x)/c.bend + more*(2*(1+x)+math.Exp(x))) / 3
	case c.bend < 0:
		return c.rate * math.Expm1(c.bend*s) / c.bend
	}
	return c.rate * s
}

// reach is by how much it grows at all.
func (c *curve) reach() float64 {
	switch {
	case c.rate <= 0:
		return 0
	case c.room > 0:
		return c.room
	case c.bend < 0:
		return -c.rate / c.bend
	}
	return math.Inf(1)
}

// meets is after how many seconds two curves have grown by so much together, +Inf for never.
func meets(a, b *curve, by float64) float64 {
	const longest = 1e9
	if a.reach()+b.reach() <= by {
		return math.Inf(1)
	}
	high := 1.0
	for a.grown(high)+b.grown(high) < by {
		if high *= 2; high > longest {
			return math.Inf(1)
		}
	}
	low := 0.0
	for range 30 {
		if mid := (low + high) / 2; a.grown(mid)+b.grown(mid) < by {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
