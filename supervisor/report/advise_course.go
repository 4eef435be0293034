package report

import (
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

// growth is how the highest of a course rose from third to third: what a loader
// takes at its start lies in the first, and an epoch's ups and downs in each.
type growth struct {
	thirds [3]rss.Bytes
	third  time.Duration // the length of the last
	// still says that the last third rose above the one before in more than one
	// jump, so that more is to be expected.
	still bool
	// slowing says that it rose by much less than the one before did.
	slowing bool
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

// growth returns the thirds, false where there are too few readings for it.
func (c *course) growth() (g growth, ok bool) {
	var parts [3]int
	var jump, top rss.Bytes
	for i, v := range c.most {
		if v < 0 {
			continue
		}
		k, most := 3*i/len(c.most), rss.Bytes(v)
		parts[k]++
		g.thirds[k] = max(g.thirds[k], most)
		if k > 0 {
			jump = max(jump, most.Sub(max(top, g.thirds[0])))
		}
		top = max(top, most)
	}
	if min(parts[0], parts[1], parts[2]) < filled {
		return growth{}, false
	}
	g.third = c.last - c.from - time.Duration((2*len(c.most)+2)/3)*c.width
	rise, before := g.rise(), g.thirds[1].Sub(g.thirds[0])
	all := top.Sub(g.thirds[0])
	g.still = rise >= max(stillLeast, g.thirds[2].Scale(stillShare)) && jump <= all.Scale(jumpShare)
	g.slowing = g.still && float64(rise) <= slowShare*float64(before)
	return g, true
}

// rise is by how much the last third is above the one before.
func (g *growth) rise() rss.Bytes { return g.thirds[2].Sub(g.thirds[1]) }

// all is by how much the last third is above the first.
func (g *growth) all() rss.Bytes { return g.thirds[2].Sub(g.thirds[0]) }

// perHour is the rise of the last third in an hour.
func (g *growth) perHour() rss.Bytes {
	if g.third <= 0 {
		return 0
	}
	return g.rise().Scale(float64(time.Hour) / float64(g.third))
}

// rest is what a growth that slows down as it did will come to in the end, from
// the last third on.
func (g *growth) rest() rss.Bytes {
	before := g.thirds[1].Sub(g.thirds[0])
	q := g.rise().Of(before)
	if !g.slowing || q >= 1 {
		return 0
	}
	return g.rise().Scale(q / (1 - q))
}

const (
	// leastSaved and leastPart are what a growth, or what could be saved, must come to:
	// so much, and such a part of what there is.
	leastSaved = 64 * rss.MiB
	leastPart  = 0.1
)

// grows says that what workers had rose by much and goes on to.
func (g *growth) grows() bool {
	return g.still && g.all() >= max(leastSaved, g.thirds[0].Scale(leastPart))
}
