package analysis

import (
	"strconv"
	"time"
)

// A row has four columns for each band, then six for each limit.
const (
	bandColumns  = 4 // anon, file, shmem, count
	limitColumns = 6 // used, low, most, charged, working set, size
	limitsFrom   = len(layerRoles) * bandColumns
)

// bucket is what is kept of samples that follow each other in one stretch of time: the
// bands of the sample with the greatest sum, and of each limit what a point tells.
type bucket struct {
	first, last time.Duration
	sum         int64
	row         []int64
	held        []int64 // the last sample
}

// buckets keeps samples, by time.
type buckets struct {
	width time.Duration
	list  []bucket
	arena []int64
}

func (c *buckets) clone(row []int64) []int64 {
	if len(c.arena) < len(row) {
		c.arena = make([]int64, 256*len(row))
	}
	out := c.arena[:len(row):len(row)]
	c.arena = c.arena[len(row):]
	copy(out, row)
	return out
}

func (c *buckets) add(at time.Duration, row []int64) {
	sum := int64(0)
	for i := 0; i < limitsFrom; i += bandColumns {
		sum += row[i] + row[i+1] + row[i+2]
	}
	n := len(c.list) - 1
	if n < 0 || c.list[n].first/c.width != at/c.width {
		own := c.clone(row)
		c.list = append(c.list, bucket{at, at, sum, own, own})
		return
	}
	l := &c.list[n]
	if &l.held[0] == &l.row[0] {
		l.held = c.clone(row)
	} else {
		copy(l.held, row)
	}
	l.last = at
	if sum > l.sum {
		l.sum = sum
		copy(l.row[:limitsFrom], row)
	}
	for i := limitsFrom; i < len(row); i++ {
		l.row[i] = joinReadings(i-limitsFrom, l.row[i], row[i])
	}
}

// folding puts buckets into points of equal length.
type folding struct {
	bands int   // columns of bands, before those of limits
	pick  []int // the column of a row that each column here is
	from  time.Duration
	step  time.Duration
	n     int
	sum   []int64   // the RSS of the sample that a point keeps, -1 for no point
	cols  [][]int64 // one value a point each
}

func newFolding(bands int, pick []int, from, to, step time.Duration) *folding {
	f := &folding{bands: bands, pick: pick, from: from / step * step, step: step}
	f.n = int((to-f.from)/step) + 1
	f.sum = make([]int64, f.n)
	f.cols = make([][]int64, len(pick))
	all := make([]int64, f.n*len(pick))
	for i := range f.cols {
		f.cols[i] = all[i*f.n : (i+1)*f.n]
	}
	for i := range f.sum {
		f.sum[i] = -1
	}
	return f
}

// fold puts each bucket into its point, and the last sample before it into the points
// between, where the two are at most gap apart.
func (f *folding) fold(c *buckets, gap time.Duration) {
	for n := range c.list {
		l := &c.list[n]
		at := int((l.first - f.from) / f.step)
		if n > 0 && l.first-c.list[n-1].last <= gap {
			before := &c.list[n-1]
			held := int64(0)
			for i := 0; i < limitsFrom; i += bandColumns {
				held += before.held[i] + before.held[i+1] + before.held[i+2]
			}
			for i := max(0, int((before.last-f.from)/f.step)+1); i < min(at, f.n); i++ {
				f.put(i, before.held, held)
			}
		}
		if l.first >= f.from && at < f.n {
			f.put(at, l.row, l.sum)
		}
	}
}

// put joins a row to a point.
func (f *folding) put(i int, row []int64, sum int64) {
	first := f.sum[i] < 0
	more := first || sum > f.sum[i]
	if more {
		f.sum[i] = sum
	}
	for c := range f.cols {
		was, now := f.cols[c][i], row[f.pick[c]]
		switch {
		case first:
		case c < f.bands:
			if !more {
				continue
			}
		default:
			now = joinReadings(c-f.bands, was, now)
		}
		f.cols[c][i] = now
	}
}

// joinReadings keeps of two readings in a column of limits the one that a point tells.
func joinReadings(c int, was, now int64) int64 {
	switch kind := c % limitColumns; {
	case was < 0:
		return now
	case now < 0:
		return was
	case kind == 1, kind == 5: // low, size
		return min(was, now)
	}
	return max(was, now)
}

// halve joins each two points to one.
func (f *folding) halve() {
	half := (f.n + 1) / 2
	for i := range half {
		a, b := 2*i, 2*i+1
		if b == f.n || f.sum[a] < 0 || f.sum[b] < 0 {
			if b < f.n && f.sum[a] < 0 {
				a = b
			}
			f.sum[i] = f.sum[a]
			for c := range f.cols {
				f.cols[c][i] = f.cols[c][a]
			}
			continue
		}
		fuller := a
		if f.sum[b] > f.sum[a] {
			fuller = b
		}
		f.sum[i] = f.sum[fuller]
		for c, col := range f.cols {
			switch {
			case c < f.bands:
				col[i] = col[fuller]
			default:
				col[i] = joinReadings(c-f.bands, col[a], col[b])
			}
		}
	}
	f.n, f.step = half, f.step*2
	f.sum = f.sum[:half]
	for c := range f.cols {
		f.cols[c] = f.cols[c][:half]
	}
}

// level returns the points, made fewer until their JSON takes at most budget
// bytes.
func (f *folding) level(offset time.Duration, budget int) *Level {
	for {
		l := f.points(offset)
		if f.n < 512 || len(AppendLevel(nil, l)) <= budget {
			return l
		}
		f.halve()
	}
}

// points takes what is no point out of the columns.
func (f *folding) points(offset time.Duration) *Level {
	l := &Level{From: offset + f.from, Step: f.step}
	keep := make([]int, 0, f.n)
	for i, sum := range f.sum {
		if sum < 0 {
			continue
		}
		if k := len(keep); k > 0 && keep[k-1] == i-1 {
			l.Stretches[len(l.Stretches)-1].Count++
		} else {
			l.Stretches = append(l.Stretches, Segment{i, 1})
		}
		keep = append(keep, i)
	}
	column := func(c int) []int64 {
		out := make([]int64, len(keep))
		for k, i := range keep {
			out[k] = f.cols[c][i]
		}
		return out
	}
	for _, i := range keep {
		l.Sum = append(l.Sum, f.sum[i])
	}
	for c := 0; c < f.bands; c += bandColumns {
		l.Bands = append(l.Bands, BandPoints{column(c), column(c + 1), column(c + 2), column(c + 3)})
	}
	for c := f.bands; c < len(f.cols); c += limitColumns {
		l.Limits = append(l.Limits, LimitPoints{
			column(c), column(c + 1), column(c + 2), column(c + 3), column(c + 4), column(c + 5),
		})
	}
	return l
}

// AppendLevel puts the JSON of a level: the points of a page are made few enough for it.
func AppendLevel(b []byte, l *Level) []byte {
	b = append(b, `{"from":`...)
	b = strconv.AppendInt(b, l.From.Milliseconds(), 10)
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, l.Step.Milliseconds(), 10)
	b = append(b, `,"stretches":[`...)
	for i, s := range l.Stretches {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s.First), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(s.Count), 10)
	}
	b = append(b, `],"bands":[`...)
	for i := range l.Bands {
		x := &l.Bands[i]
		b = appendTable(b, i, []string{"anon", "file", "shmem", "count"}, x.Anon, x.File, x.Shmem, x.Count)
	}
	b = append(b, `],"limits":[`...)
	for i := range l.Limits {
		x := &l.Limits[i]
		b = appendTable(b, i, []string{"used", "low", "most", "charged", "working", "size"},
			x.Used, below(x.Used, x.Low), below(x.Most, x.Used), x.Charged, x.Working, x.Size)
	}
	return append(b, "]}"...)
}

// below returns by how much low is below high. Low and the upper bound are told
// that way: mostly they are what "used" is, and nothing but that repeats.
func below(high, low []int64) []int64 {
	out := make([]int64, len(high))
	for i := range high {
		out[i] = max(0, high[i]-low[i])
	}
	return out
}

// appendTable puts named columns.
func appendTable(b []byte, i int, names []string, columns ...[]int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = append(b, '{')
	for k, name := range names {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = AppendColumn(b, columns[k], name != "count")
	}
	return append(b, '}')
}

// AppendColumn puts one column. Where it is coarse, as sizes are, its unit is the
// largest that still tells 65,000 steps: three digits are shown.
func AppendColumn(b []byte, column []int64, coarse bool) []byte {
	b = append(b, '[')
	unit := int64(1)
	if coarse {
		top := int64(0)
		for _, v := range column {
			top = max(top, v)
		}
		for top/unit > 1<<17 {
			unit *= 2
		}
	}
	b = strconv.AppendInt(b, unit, 10) // first the unit
	last, same := int64(0), 0
	flush := func() {
		switch {
		case same == 0:
		case same < 4:
			for range same {
				b = append(b, ",0"...)
			}
		default:
			b = append(b, ",null,"...)
			b = strconv.AppendInt(b, int64(same), 10)
		}
		same = 0
	}
	for _, v := range column {
		if v >= 0 {
			v = (v + unit/2) / unit
		}
		if v == last {
			same++
			continue
		}
		flush()
		b = append(b, ',')
		b = strconv.AppendInt(b, v-last, 10)
		last = v
	}
	flush()
	return append(b, ']')
}
