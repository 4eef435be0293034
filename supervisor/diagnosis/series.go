package diagnosis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// What a series holds of a process.
const (
	anon = iota
	file
	shmem
	pinned
	locked
	measures
)

// used is what a series holds of a /dev/shm.
const used = 0

type point struct {
	at time.Duration
	v  [measures]rss.Bytes
}

const (
	// points is what a series keeps at most; after the first minute it has half as
	// many or more, evenly spread over all its time.
	points = 48
	// spacing is the distance of points at first.
	spacing = 500 * time.Millisecond
	// fewest is with how many points a slope is judged: a quarter of the life has
	// as many at least.
	fewest = 6
)

// series is the course of some numbers over the whole life of a process, in
// bounded memory: where it is full every other point goes, and the next come half
// as often.
type series struct {
	points [points]point
	n      int
	every  time.Duration
	last   point
}

func (s *series) add(at time.Duration, v [measures]rss.Bytes) {
	if s.n > 0 && at < s.last.at {
		return
	}
	s.last = point{at, v}
	if s.every == 0 {
		s.every = spacing
	}
	if s.n > 0 && at-s.points[s.n-1].at < s.every {
		return
	}
	if s.n == points {
		for i := range points / 2 {
			s.points[i] = s.points[2*i]
		}
		s.n = points / 2
		s.every *= 2
		if at-s.points[s.n-1].at < s.every {
			return
		}
	}
	s.points[s.n] = s.last
	s.n++
}

// settled returns the least of the last time, or of the last points where these lie
// further apart: what came and went is not in it.
func (s *series) settled(m int, time time.Duration) rss.Bytes {
	least := s.last.v[m]
	time = max(time, 2*s.every)
	for i := s.n - 1; i >= 0 && s.last.at-s.points[i].at <= time; i-- {
		least = min(least, s.points[i].v[m])
	}
	return least
}

// most returns the most that stood there from one time on and before another.
func (s *series) most(m int, from, before time.Duration) (most rss.Bytes) {
	for _, p := range s.points[:s.n] {
		if p.at >= from && p.at < before {
			most = max(most, p.v[m])
		}
	}
	return most
}

// growth is how something grew.
type growth struct {
	gain rss.Bytes
	over time.Duration
	end  rss.Bytes // where it stood in the last quarter
}

// perMinute is the rate.
func (g growth) perMinute() rss.Bytes {
	if g.over <= 0 {
		return 0
	}
	return g.gain.Scale(float64(time.Minute) / float64(g.over))
}

// steady says how something has grown since that time, where each part of the
// time has its share of it. Where lax it is what was steady before, and may go
// on more slowly: a finding does not come and go with each reading.
//
// Medians of quarters are what is compared: garbage that is collected now and then
// makes teeth that do not move them far. But quarters and teeth of about the same
// length beat, and that looks like growth too: so no fall may be more than a third of
// what was gained. What has ended shows in the last eighth first.
func (s *series) steady(m int, from time.Duration, lax bool) (growth, bool) {
	first := 0
	for first < s.n && s.points[first].at < from {
		first++
	}
	ps := s.points[first:s.n]
	n := len(ps)
	if n < fewest {
		return growth{}, false
	}
	var xs, ys [4]float64
	var buf [points]float64
	for q := range 4 {
		part := ps[n*q/4 : n*(q+1)/4]
		for i, p := range part {
			buf[i] = p.at.Seconds()
		}
		xs[q] = median(buf[:len(part)])
		for i, p := range part {
			buf[i] = float64(p.v[m])
		}
		ys[q] = median(buf[:len(part)])
	}
	all := (ys[3] - ys[0]) / (xs[3] - xs[0])
	if all <= 0 {
		return growth{}, false
	}
	each, late := all/3, all/2
	if lax {
		each, late = all/8, all/5
	}
	for q := range 3 {
		need := each
		if q == 2 {
			need = late
		}
		if (ys[q+1]-ys[q])/(xs[q+1]-xs[q]) < need {
			return growth{}, false
		}
	}
	over := s.last.at - ps[0].at
	gain := all * over.Seconds()
	back := gain / 3
	if lax {
		back = gain / 2
	}
	if float64(fall(ps, m)) > back {
		return growth{}, false
	}
	if !lax {
		// A phase that is not quite as long as the window has stood still before or
		// after.
		head := s.last.at - over + over/8
		tail := s.last.at - over/8
		x, y := s.last, ps[0]
		for _, p := range ps {
			if p.at <= tail {
				y = p
			}
			if p.at >= head && p.at < x.at {
				x = p
			}
		}
		if rate(ps[0], x, m) < each/2 || rate(y, s.last, m) < late {
			return growth{}, false
		}
	}
	return growth{gain: rss.Bytes(gain), over: over, end: rss.Bytes(ys[3])}, true
}

// rate is how fast a number grew between two points, in bytes a second; 0 where it
// fell.
func rate(a, b point, m int) float64 {
	if b.at <= a.at {
		return 0
	}
	return float64(b.v[m].Sub(a.v[m])) / (b.at - a.at).Seconds()
}

// fall is the most by which a number fell below what it was before.
func fall(ps []point, m int) (deepest rss.Bytes) {
	var top rss.Bytes
	for _, p := range ps {
		top = max(top, p.v[m])
		deepest = max(deepest, top-p.v[m])
	}
	return deepest
}

// median reorders xs.
func median(xs []float64) float64 {
	slices.Sort(xs)
	n := len(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2
}
