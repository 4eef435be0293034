package analysis

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a band of the stack, in KiB but for BandCount.
const (
	BandAnon = iota
	BandFile
	BandShmem
	BandCount
	bandColumns
)

// The columns of a limit, in KiB: LimitLow and LimitSize are the least of a point, the others the most.
const (
	LimitUsed = iota
	LimitLow
	LimitMost // Limit.UsedMax
	LimitCharged
	LimitWorking
	LimitSize
	limitColumns
	limitsFrom = len(layerRoles) * bandColumns // in a row, which has the bands first
)

// point is what is kept of the samples of one stretch of time: the bands of the one with the
// greatest sum, and of each limit what a point tells. row is nil where there is none.
type point struct {
	row []int64
	sum int64
}

// join takes in a row, of a sample or of several.
func (p *point) join(row []int64) {
	sum := int64(0)
	for i := 0; i < limitsFrom; i += bandColumns {
		sum += row[i+BandAnon] + row[i+BandFile] + row[i+BandShmem]
	}
	if p.row == nil {
		p.row, p.sum = slices.Clone(row), sum
		return
	}
	if sum > p.sum {
		p.sum = sum
		copy(p.row[:limitsFrom], row)
	}
	for i := limitsFrom; i < len(row); i++ {
		p.row[i] = JoinReadings((i-limitsFrom)%limitColumns, p.row[i], row[i])
	}
}

// JoinReadings keeps of two readings in a column of a limit the one that a point tells;
// negative is for no reading.
func JoinReadings(column int, was, now int64) int64 {
	switch {
	case was < 0:
		return now
	case now < 0:
		return was
	case column == LimitLow, column == LimitSize:
		return min(was, now)
	}
	return max(was, now)
}

// buckets keeps samples, by time: those that follow each other within width are one.
type buckets struct {
	width time.Duration
	list  []bucket
}

type bucket struct {
	point
	first, last time.Duration
	held        []int64 // the last sample
}

func (c *buckets) add(at time.Duration, row []int64) {
	n := len(c.list) - 1
	if n < 0 || c.list[n].first/c.width != at/c.width {
		c.list = append(c.list, bucket{first: at, last: at})
		n++
		c.list[n].join(row)
		c.list[n].held = c.list[n].row
		return
	}
	l := &c.list[n]
	if l.last == l.first {
		l.held = slices.Clone(row) // the first is held no more
	}
	l.last = at
	copy(l.held, row)
	l.join(row)
}

// folding puts buckets into points of equal length.
type folding struct {
	from, step time.Duration
	points     []point
}

// fold puts each bucket into its point, and the last sample before it into the points
// between, where the two are at most gap apart.
func fold(c *buckets, from, to, step, gap time.Duration) *folding {
	f := &folding{from: from / step * step, step: step}
	f.points = make([]point, int((to-f.from)/step)+1)
	for n := range c.list {
		l := &c.list[n]
		at := int((l.first - f.from) / f.step)
		if n > 0 && l.first-c.list[n-1].last <= gap {
			before := &c.list[n-1]
			for i := max(0, int((before.last-f.from)/f.step)+1); i < min(at, len(f.points)); i++ {
				f.points[i].join(before.held)
			}
		}
		if l.first >= f.from && at < len(f.points) {
			f.points[at].join(l.row)
		}
	}
	return f
}

// halve joins each two points to one.
func (f *folding) halve() {
	half := (len(f.points) + 1) / 2
	for i := range half {
		p := f.points[2*i]
		if 2*i+1 < len(f.points) && f.points[2*i+1].row != nil {
			p.join(f.points[2*i+1].row)
		}
		f.points[i] = p
	}
	f.points, f.step = f.points[:half], f.step*2
}

// level returns the points, with the columns of a row from each of bands and limits on,
// made fewer until their JSON takes at most budget bytes.
func (f *folding) level(bands, limits []int, offset time.Duration, budget int) *Level {
	for {
		l := &Level{From: offset + f.from, Step: f.step}
		var kept [][]int64
		for i, p := range f.points {
			if p.row == nil {
				continue
			}
			if n := len(l.Stretches) - 1; n >= 0 && l.Stretches[n].First+l.Stretches[n].Count == i {
				l.Stretches[n].Count++
			} else {
				l.Stretches = append(l.Stretches, Segment{i, 1})
			}
			kept, l.Sum = append(kept, p.row), append(l.Sum, p.sum)
		}
		l.Bands, l.Limits = columns(kept, bands, bandColumns), columns(kept, limits, limitColumns)
		if asJSON, err := json.Marshal(l); len(f.points) < 512 || err != nil || len(asJSON) <= budget {
			return l
		}
		f.halve()
	}
}

// columns are n columns from each of some places of rows on.
func columns(rows [][]int64, from []int, n int) (all [][]Column) {
	for _, at := range from {
		table := make([]Column, n)
		for c := range table {
			table[c] = make(Column, len(rows))
			for k, row := range rows {
				table[c][k] = row[at+c]
			}
		}
		all = append(all, table)
	}
	return all
}

// MarshalJSON writes a level as the script of a page reads it. The points of a page are made
// few enough for it.
func (l Level) MarshalJSON() ([]byte, error) {
	type columns map[string]Column
	out := struct {
		From      int64     `json:"from"`
		Step      int64     `json:"step"`
		Stretches []int     `json:"stretches"`
		Bands     []columns `json:"bands"`
		Limits    []columns `json:"limits"`
	}{l.From.Milliseconds(), l.Step.Milliseconds(), []int{}, []columns{}, []columns{}}
	for _, s := range l.Stretches {
		out.Stretches = append(out.Stretches, s.First, s.Count)
	}
	for _, x := range l.Bands {
		out.Bands = append(out.Bands, columns{"anon": x[BandAnon], "file": x[BandFile], "shmem": x[BandShmem], "count": x[BandCount]})
	}
	for _, x := range l.Limits {
		out.Limits = append(out.Limits, columns{
			"used": x[LimitUsed], "low": below(x[LimitUsed], x[LimitLow]), "most": below(x[LimitMost], x[LimitUsed]), "charged": x[LimitCharged], "working": x[LimitWorking], "size": x[LimitSize],
		})
	}
	return json.Marshal(out)
}

// below returns by how much low is below high. Low and the upper bound are told
// that way: mostly they are what "used" is, and nothing but that repeats.
func below(high, low Column) Column {
	out := make(Column, len(high))
	for i := range high {
		out[i] = max(0, high[i]-low[i])
	}
	return out
}

// Column is a column of a level or trace. Its JSON begins with its unit, the largest that
// still tells 65,000 steps: three digits are shown. What follows is the difference of each
// value from the one before it; null and a number stand for so many values that do not differ.
type Column []int64

// MarshalJSON writes it.
func (c Column) MarshalJSON() ([]byte, error) {
	top, unit := int64(0), int64(1)
	for _, v := range c {
		top = max(top, v)
	}
	for top/unit > 1<<17 {
		unit *= 2
	}
	b := strconv.AppendInt([]byte{'['}, unit, 10)
	last, same := int64(0), 0
	flush := func() {
		if same < 4 {
			b = append(b, strings.Repeat(",0", same)...)
		} else {
			b = strconv.AppendInt(append(b, ",null,"...), int64(same), 10)
		}
		same = 0
	}
	for _, v := range c {
		if v >= 0 {
			v = (v + unit/2) / unit
		}
		if v == last {
			same++
			continue
		}
		flush()
		b = strconv.AppendInt(append(b, ','), v-last, 10)
		last = v
	}
	flush()
	return append(b, ']'), nil
}
