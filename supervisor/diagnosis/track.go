package diagnosis

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

// track is what is known of one process.
type track struct {
	id     rss.ProcID
	role   rss.Role
	parent int
	since  time.Duration // when it was seen first
	seen   uint64        // tick of the last look that had it
	rss    rss.Bytes
	series series
	parts  partsTrack
	pss    pssTrack
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

// grows says how a number of the process grows without an end. What was so a moment
// ago is so still: a process that ends gives its memory back before it is gone, and
// that is no reason to withdraw what was found.
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

// group is what some processes have in common.
type group struct {
	n    int
	sum  rss.Bytes
	over time.Duration // of who has most
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
