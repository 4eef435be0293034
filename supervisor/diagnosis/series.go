package diagnosis

import (
	"fmt"
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

// series is the course of some numbers over the whole life of a process, in bounded memory:
// where it is full every other point goes, and the next come half as often.
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

// most returns the largest value from one time on and before another.
func (s *series) most(m int, from, before time.Duration) (most rss.Bytes) {
	for _, p := range s.points[:s.n] {
		if p.at >= from && p.at < before {
			most = max(most, p.v[m])
		}
	}
	return most
}

type growth struct {
	gain rss.Bytes
	over time.Duration
	end  rss.Bytes // its value in the last quarter
}

func (g growth) perMinute() rss.Bytes {
	if g.over <= 0 {
		return 0
	}
	return g.gain.Scale(float64(time.Minute) / float64(g.over))
}

// steady says how something has grown since that time, where each part of the time has its
// share of it. Where lax it was steady before, and may go on more slowly: a finding does not
// come and go with each reading.
//
// Medians of quarters are compared, which garbage that is collected now and then does not
// move far. But quarters and teeth of about the same length beat, which looks like growth
// too: so no fall may be more than a third of what was gained. What has ended shows in the
// last eighth.
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
		// A phase that is not quite as long as the window was flat before or after.
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

// rate is how fast a number grew between two points, in bytes a second; 0 where it fell.
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

// whose names the process that has most of something, and how many more have some.
func whose(g *group) string {
	if g.n <= 1 {
		return fmt.Sprintf("process %d", g.most.id.PID)
	}
	return fmt.Sprintf("process %d and %d more", g.most.id.PID, g.n-1)
}

type track struct {
	id     rss.ProcID
	role   rss.Role
	parent int
	since  time.Duration // when it was seen first
	seen   uint64        // tick of the last look that had it
	rss    rss.Bytes
	series series
	parts  partsTrack
	pss    rss.PSS // of a worker, as it was read last
	counts countTrack

	// base is what it had when its work began, where based: points of a series are
	// thinned, and what came before must not count.
	base  [measures]rss.Bytes
	based bool

	// growing says of which measures a steady growth was told last time, grown what
	// it was when it was last seen, and grew when that was.
	growing [measures]bool
	grown   [measures]growth
	grew    [measures]time.Duration
	// filesAt is when its mapped files were read last, filesHad what it had then.
	filesAt   time.Duration
	filesHad  rss.Bytes
	filesRead bool
	// dropped is the most that a trim gave back at once: mapped pages that it had.
	dropped rss.Bytes
}

const (
	// shortest is how long a growth must have held that is as old as the
	// process, and later of one that began late: phases of a run last that long.
	shortest = 20 * time.Second
	later    = time.Minute
	// alone is how long it must have held in a trainer that has no workers:
	// until then it may be reading its data.
	alone = 10 * time.Minute
	// slight is the growth of one process that does not count in a sum.
	slight = 8 * rss.MiB
)

// start is from when on what the process does is its work.
func (s *State) start(t *track) time.Duration {
	at := t.since
	if t.role == rss.RoleTrainer && s.loads {
		at = max(at, s.loading)
	}
	return at + settle
}

// grows says how a number of the process grows without an end. What was so a moment ago is so
// still: a process that ends gives its memory back first, which withdraws nothing.
func (s *State) grows(t *track, m int) (growth, bool) {
	g, ok := s.endless(t, m)
	switch {
	case ok:
		t.growing[m], t.grown[m], t.grew[m] = true, g, s.now
	case t.growing[m] && s.now-t.grew[m] < settle+s.pause():
		return t.grown[m], true
	default:
		t.growing[m] = false
	}
	return g, ok
}

// endless is grows by what the series tells now.
func (s *State) endless(t *track, m int) (growth, bool) {
	start, least := s.start(t), shortest
	if t.role == rss.RoleTrainer && !s.loads {
		least = alone
	}
	age := t.series.last.at - start
	for _, part := range []time.Duration{1, 2, 4} {
		window := age / part
		if window < least || part > 1 && window < later {
			break
		}
		from := start + age - window
		g, ok := t.series.steady(m, from, t.growing[m])
		if !ok {
			continue
		}
		if part > 1 {
			// A tooth no higher than those before is none.
			g.gain = min(g.gain, g.end.Sub(t.series.most(m, start, from)))
		}
		if g.gain >= slight {
			return g, true
		}
	}
	return growth{}, false
}

// lasting is how much more of something a process has than when its work began,
// leaving out what came and went in the last seconds.
func (s *State) lasting(t *track, m int) rss.Bytes {
	if !t.based {
		return 0
	}
	return t.series.settled(m, settle).Sub(t.base[m])
}

// bytesPerSecond is by how much all of them grow together.
func (g *group) bytesPerSecond() float64 { return float64(g.pace) / time.Minute.Seconds() }

// group is what some processes have in common.
type group struct {
	n    int
	sum  rss.Bytes
	over time.Duration // of the process that has most
	most *track
	top  rss.Bytes
	pace rss.Bytes // a minute, all together
}

func (g *group) add(t *track, v rss.Bytes, over time.Duration) {
	g.n++
	g.sum += v
	g.pace += growth{gain: v, over: over}.perMinute()
	if g.most == nil || v > g.top {
		g.most, g.top, g.over = t, v, over
	}
}
