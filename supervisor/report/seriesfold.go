package report

import (
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// steps are the lengths of a point: those in which people count time.
var steps = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
}

func stepAtLeast(d time.Duration) time.Duration {
	for _, s := range steps {
		if s >= d {
			return s
		}
	}
	return (d + time.Hour - 1).Truncate(time.Hour)
}

// surveyed is what has to be known of a run before its points are made.
type surveyed struct {
	samples int
	end     time.Duration
	roles   map[rss.Role]bool
	binding []int // samples for which each limit was the binding one
	ratio   []float64
	read    []bool
	spacing []time.Duration // between samples, a few thousand of them
	late    []time.Duration // in the last minutes
}

func survey(r *record.Run) *surveyed {
	l := &surveyed{
		roles:   map[rss.Role]bool{},
		binding: make([]int, len(r.Limits)), ratio: make([]float64, len(r.Limits)), read: make([]bool, len(r.Limits)),
	}
	last, every := time.Duration(-1), 1
	recent := make([]time.Duration, 0, 1024)
	for s := range r.Samples() {
		l.samples++
		l.end = max(l.end, s.At)
		if last >= 0 {
			if l.samples%every == 0 {
				l.spacing = append(l.spacing, s.At-last)
			}
			if len(l.spacing) == 4096 {
				l.spacing, every = l.spacing[:2048], every*2
			}
			if len(recent) == cap(recent) {
				recent = append(recent[:0], recent[cap(recent)/2:]...)
			}
			recent = append(recent, s.At-last)
		}
		last = s.At
		for _, u := range s.Procs {
			if u.Proc < len(r.Procs) {
				l.roles[bandOf(&r.Procs[u.Proc])] = true
			}
		}
		for _, b := range s.Roles {
			l.roles[bandOfRole(b.Role)] = true
		}
		for i := range s.Limits {
			x := &s.Limits[i]
			if x.Limit >= len(r.Limits) {
				continue
			}
			l.read[x.Limit] = true
			l.ratio[x.Limit] = max(l.ratio[x.Limit], x.Ratio())
			if x.Binding {
				l.binding[x.Limit]++
			}
		}
	}
	for _, e := range r.Events {
		l.end = max(l.end, e.At)
	}
	l.late = recent
	slices.Sort(l.spacing)
	slices.Sort(l.late)
	return l
}

// step is the length of a point where n runs share a page.
func (l *surveyed) step(n int) time.Duration {
	least := l.end / time.Duration(mostPoints/n)
	if k := len(l.spacing); k > 0 {
		least = max(least, l.spacing[k/2]*9/10) // timers are not exact
	}
	return stepAtLeast(max(least, steps[0]))
}

// tailStep is the length of a point in the last minutes: not above step.
func (l *surveyed) tailStep(step time.Duration) time.Duration {
	if l.end <= lastMinutes/2 || len(l.late) == 0 {
		return step
	}
	return min(step, stepAtLeast(max(200*time.Millisecond, l.late[len(l.late)/10]*9/10)))
}

// gap is how long a sample stands for at most. Beyond it nothing is drawn: a
// line there would be made up.
func (l *surveyed) gap(r *record.Run) time.Duration {
	switch {
	case r.JournalOnly || len(l.spacing) == 0:
		return math.MaxInt64
	case r.Thinned:
		return 150 * time.Second // what was thinned most is a minute apart
	}
	return max(10*time.Second, 5*l.spacing[len(l.spacing)/2])
}

// against lists the limits that are drawn and returns where each of the run's
// limits is among them, -1 for those that are not.
func (l *surveyed) against(r *record.Run, s *Strand) []int {
	place := make([]int, len(r.Limits))
	best := -1
	for i, x := range r.Limits {
		place[i] = -1
		if !x.Name.Row().Amount || !l.read[i] {
			continue
		}
		place[i] = len(s.Limits)
		s.Limits = append(s.Limits, Against{Limit: x})
		if best < 0 || l.binding[i] > l.binding[best] || l.binding[i] == l.binding[best] && l.ratio[i] > l.ratio[best] {
			best = i
		}
	}
	if best >= 0 {
		s.Limits[place[best]].Primary = true
	}
	return place
}

func bandOf(p *record.Proc) rss.Role {
	if p.Extra || p.Ours {
		return Beside
	}
	return bandOfRole(p.Role)
}

func bandOfRole(r rss.Role) rss.Role {
	if slices.Contains(bands, r) {
		return r
	}
	return rss.RoleOther
}
