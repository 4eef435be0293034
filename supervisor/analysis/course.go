package analysis

import (
	"cmp"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// courseParts is into how many parts of equal length a course is cut at most,
// and half of it at least.
const courseParts = 24

// course is how one number went over time, as the most of each part, in the
// memory of one part whatever the length. The zero value is empty.
type course struct {
	from, width time.Duration
	last        time.Duration // when the last came
	most        []int64       // of each part that is begun, in bytes
}

// add takes in a reading. One that is earlier than the last, of a journal that
// was written by two watchers, counts as if it came with that.
func (c *course) add(at time.Duration, v rss.Bytes) {
	if c.most == nil {
		c.from, c.width, c.last = at, time.Second, at
	}
	at = max(at, c.last)
	c.most, c.width = raiseCell(c.most, c.width, at-c.from, courseParts, int64(v))
	c.last = at
}

func (c *course) span() time.Duration { return c.last - c.from }

// Growth is how the highest of a course rose from third to third: what a loader
// takes at its start lies in the first, and an epoch's ups and downs in each.
type Growth struct {
	Thirds [3]rss.Bytes
	Third  time.Duration // the length of the last
	// still says that the last third rose above the one before in more than one
	// jump, so that more is to be expected.
	Still bool
	// slowing says that it rose by much less than the one before did.
	Slowing bool
	// Creeps says that it rose since the first third, part by part, however little.
	Creeps bool
}

const (
	// stillShare and stillLeast are by how much the last third must have risen
	// at least.
	stillShare = 0.015
	stillLeast = 8 * rss.MiB
	// jumpShare is what part of a rise comes at once at most where it is not a
	// jump: a validation at the end is no growth.
	jumpShare = 0.75
	// slowShare is the part of the rise before that counts as much less.
	slowShare = 0.6
	// filled is how many parts of each third must have been seen.
	filled = 2
)

// Growth returns the thirds, false where there are too few readings for it.
func (c *course) Growth() (g Growth, ok bool) {
	var parts [3]int
	var jump, top rss.Bytes
	for i, v := range c.most {
		if v < 0 {
			continue
		}
		k, most := 3*i/len(c.most), rss.Bytes(v)
		parts[k]++
		g.Thirds[k] = max(g.Thirds[k], most)
		if k > 0 {
			jump = max(jump, most.Sub(max(top, g.Thirds[0])))
		}
		top = max(top, most)
	}
	if min(parts[0], parts[1], parts[2]) < filled {
		return Growth{}, false
	}
	g.Third = c.last - c.from - time.Duration((2*len(c.most)+2)/3)*c.width
	rise, before := g.Rise(), g.Thirds[1].Sub(g.Thirds[0])
	all := top.Sub(g.Thirds[0])
	g.Still = rise >= max(stillLeast, g.Thirds[2].Scale(stillShare)) && jump <= all.Scale(jumpShare)
	g.Creeps = c.creeps()
	g.Slowing = g.Still && float64(rise) <= slowShare*float64(before)
	return g, true
}

// creepOrder is how much more often a later part is above an earlier one than below it, as a
// share of all pairs (Kendall's tau). Noise of 16 parts comes to 0.6 once in 1,000.
const creepOrder = 0.6

func (c *course) creeps() bool {
	var parts []int64
	for _, v := range c.most[len(c.most)/3:] {
		if v >= 0 {
			parts = append(parts, v)
		}
	}
	up, pairs := 0, 0
	for i := range parts {
		for _, v := range parts[i+1:] {
			up += cmp.Compare(v, parts[i])
			pairs++
		}
	}
	return pairs > 0 && float64(up) > creepOrder*float64(pairs) && parts[len(parts)-1]-parts[0] >= int64(stillLeast)
}

// Rise is by how much the last third is above the one before.
func (g *Growth) Rise() rss.Bytes { return g.Thirds[2].Sub(g.Thirds[1]) }

// All is by how much the last third is above the first.
func (g *Growth) All() rss.Bytes { return g.Thirds[2].Sub(g.Thirds[0]) }

// PerHour is the rise of the last third in an hour.
func (g *Growth) PerHour() rss.Bytes {
	if g.Third <= 0 {
		return 0
	}
	return g.Rise().Scale(float64(time.Hour) / float64(g.Third))
}

// Rest is what a growth that slows down as it did will come to in the end, from
// the last third on.
func (g *Growth) Rest() rss.Bytes {
	before := g.Thirds[1].Sub(g.Thirds[0])
	q := g.Rise().Of(before)
	if !g.Slowing || q >= 1 {
		return 0
	}
	return g.Rise().Scale(q / (1 - q))
}

const (
	// leastSaved and leastPart are what a growth, or what could be saved, must come to:
	// so much, and such a part of what there is.
	LeastSaved = 64 * rss.MiB
	LeastPart  = 0.1
)

// Grows says that what workers had rose by much and goes on to.
func (g *Growth) Grows() bool {
	return g.Still && g.All() >= max(LeastSaved, g.Thirds[0].Scale(LeastPart))
}

const (
	sparkStretches = 40
	// sparkBare is for how many stretches without a sample the one before stands.
	sparkBare = 3
	// sparkCells are kept while the length of the run is not known yet: when
	// they are used up two become one. At least half of them are in use then, so
	// that a stretch is some eight cells or more.
	sparkCells = 16 * sparkStretches
)

// spark takes in shares of a limit over a run whose length is not known yet.
type spark struct {
	cell  time.Duration // how long one is; 0 before the first
	share []float32     // the greatest of each cell, negative for none
}

func (s *spark) add(at time.Duration, share float64) {
	if s.share == nil {
		s.cell = 100 * time.Millisecond
	}
	s.share, s.cell = raiseCell(s.share, s.cell, max(at, 0), sparkCells, float32(share))
}

// late is how late a sample may be before its absence is shown: under pressure a reading
// takes long.
const late = 30 * time.Second

// stretches returns the greatest share of each of sparkStretches stretches from 0 to
// end; negative where nothing was seen.
func (s *spark) stretches(end time.Duration) []float64 {
	out := make([]float64, sparkStretches)
	for i := range out {
		out[i] = -1
	}
	if s.share == nil {
		return out
	}
	end = max(end, 1)
	for i, v := range s.share {
		if v < 0 {
			continue
		}
		n := min(int(time.Duration(i)*s.cell*sparkStretches/end), sparkStretches-1)
		out[n] = max(out[n], float64(v))
	}
	// Of a short run a stretch is shorter than from one sample to the next.
	most := max(sparkBare, int(late*sparkStretches/end))
	for i, bare := 1, 0; i < len(out); i++ {
		if out[i] >= 0 {
			bare = 0
		} else if bare++; bare <= most {
			out[i] = out[i-1]
		}
	}
	return out
}

// raiseCell puts a value into the cell of its time since the first cell began: a cell
// holds the highest value of one step of time, or -1 for none. There are at most so many;
// for a later one each two become one, and a step is twice as long. So a run whose length
// is not known before takes a bounded memory.
func raiseCell[T int64 | float32](cells []T, step, since time.Duration, most int, v T) ([]T, time.Duration) {
	for int(since/step) >= most {
		half := (len(cells) + 1) / 2
		for i := range half {
			cells[i] = max(cells[2*i], cells[min(2*i+1, len(cells)-1)])
		}
		cells, step = cells[:half], 2*step
	}
	at := int(since / step)
	for len(cells) <= at {
		cells = append(cells, -1)
	}
	cells[at] = max(cells[at], v)
	return cells, step
}
