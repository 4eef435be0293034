package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// lookLimit is what one limit was over a run.
type lookLimit struct {
	*event.Limit
	seen          bool
	max, last     record.Reading // at the highest share of its size, and last
	maxAt, lastAt time.Duration
	spark         spark
	tail          tail
	most          rankShare // at max
}

// rankShare is the rank that had most at one moment, and how much by RSS.
type rankShare struct {
	rank *lookRank
	rss  rss.Bytes
}

// add takes in one reading and says whether it is the highest so far.
func (l *lookLimit) add(at time.Duration, r *record.Reading) (highest bool) {
	ratio := r.Ratio()
	highest = !l.seen || ratio > l.max.Ratio() || ratio == l.max.Ratio() && r.Used > l.max.Used
	if highest {
		l.max, l.maxAt = *r, at
	}
	l.seen, l.last, l.lastAt = true, *r, at
	l.spark.add(at, ratio)
	l.tail.add(at, *r)
	return highest
}

const (
	// tailSlot and tailSlots are what is kept of the end of a run: the fullest
	// reading of each slot, for a minute. Who dies by a full limit may die some
	// seconds later: what was killed first has given its memory back by then.
	tailSlot  = 4 * time.Second
	tailSlots = 16
)

// tail is the end of one limit.
type tail struct {
	slots [tailSlots]struct {
		at time.Duration
		r  record.Reading
		ok bool
	}
	last, before     record.Reading // the last two that lie apart enough for a rate
	lastAt, beforeAt time.Duration
	n                int
}

// apart is how far two readings must lie apart for a rate.
const apart = 300 * time.Millisecond

func (t *tail) add(at time.Duration, r record.Reading) {
	s := &t.slots[int(at/tailSlot)%tailSlots]
	if !s.ok || s.at/tailSlot != at/tailSlot || r.Ratio() > s.r.Ratio() {
		s.at, s.r, s.ok = at, r, true
	}
	if t.n == 0 || at-t.lastAt >= apart {
		t.before, t.beforeAt = t.last, t.lastAt
		t.n++
		t.lastAt = at
	}
	t.last = r
}

// fullest returns the fullest reading of the last part of a run that ended at
// end, or the last one if that is older: a journal has a reading only where one
// moved.
func (t *tail) fullest(end time.Duration) (r record.Reading, at time.Duration, ok bool) {
	for i := range t.slots {
		if s := &t.slots[i]; s.ok && s.at > at {
			at = s.at
		}
	}
	end = min(end, at+tailSlot*tailSlots)
	for i := range t.slots {
		s := &t.slots[i]
		if !s.ok || end-s.at > tailSlot*tailSlots {
			continue
		}
		if !ok || s.r.Ratio() > r.Ratio() || s.r.Ratio() == r.Ratio() && s.at > at {
			r, at, ok = s.r, s.at, true
		}
	}
	return r, at, ok
}

// soon is how long a growth may be carried on beyond the last reading: about
// as long as the pause between two.
const soon = 3 * time.Second

// reach returns the rate of the last two readings in bytes a second, 0 where it
// tells nothing of the end, and whether the limit would have been reached by the
// end at that rate. Where the end is the last reading itself, the run may have
// gone on for one pause more.
func (t *tail) reach(end time.Duration) (rate float64, ok bool) {
	if t.n < 2 || t.last.Size == 0 || t.last.Used <= t.before.Used {
		return 0, false
	}
	gap := t.lastAt - t.beforeAt
	left := max(end-t.lastAt, gap)
	if gap <= 0 || left > soon || gap > soon {
		return 0, false
	}
	rate = float64(t.last.Used-t.before.Used) / gap.Seconds()
	return rate, float64(t.last.Used)+rate*left.Seconds() >= float64(t.last.Size)
}

// lookCount is the most of something that is counted for each process, at the
// end and over the run.
type lookCount struct {
	size  uint64 // what one process may have, 0 where not known
	slots [tailSlots]count
	max   count
	// last and before are the last two of one process that differ.
	last, before count
}

// count is one reading of one process.
type count struct {
	v, size uint64
	at      time.Duration
	proc    int // index in Run.Procs, -1 where the record does not tell
	ok      bool
	// rate is how many came a second between the last two countings, where at
	// that rate none was left at the end; else 0.
	rate float64
}

// near says that a failure may be laid to it.
func (c *count) near() bool { return c.ratio() >= outOf || c.rate > 0 && c.ratio() >= 0.5 }

func (c *count) ratio() float64 {
	if c.size == 0 {
		return 0
	}
	return float64(c.v) / float64(c.size)
}

func (c *lookCount) add(at time.Duration, v, size uint64, proc int) {
	if size == 0 {
		size = c.size
	}
	n := count{v: v, size: size, at: at, proc: proc, ok: true}
	c.follow(n)
	s := &c.slots[int(at/tailSlot)%tailSlots]
	if !s.ok || s.at/tailSlot != at/tailSlot || n.ratio() >= s.ratio() {
		*s = n
	}
	if !c.max.ok || n.ratio() > c.max.ratio() {
		c.max = n
	}
}

// follow keeps the last two countings. Most samples tell the last one again, and
// each first the number, then whose it is.
func (c *lookCount) follow(n count) {
	if n.v != c.last.v {
		c.before, c.last = c.last, n
	}
	if n.proc < 0 {
		return
	}
	c.last.proc = n.proc
	if c.before.proc >= 0 && c.before.proc != n.proc {
		c.before = count{}
	}
}

// reach says whether none would have been left by the end at the rate of the
// last two countings, and that rate. A counting is told a look or two after it was
// made.
func (c *lookCount) reach(end time.Duration) (rate float64, ok bool) {
	gap, since := c.last.at-c.before.at, end-c.last.at
	if !c.before.ok || c.last.v <= c.before.v || gap <= 0 || gap > soon || since > soon {
		return 0, false
	}
	rate = float64(c.last.v-c.before.v) / gap.Seconds()
	return rate, float64(c.last.v)+rate*(since+2*gap).Seconds() >= float64(c.last.size)
}

// fullest returns the fullest reading near the end, or the last if that is
// older.
func (c *lookCount) fullest(end time.Duration) count {
	var best count
	for i := range c.slots {
		if s := &c.slots[i]; s.ok && s.at > best.at {
			best.at = s.at
		}
	}
	end, best.at = min(end, best.at+tailSlot*tailSlots), 0
	for i := range c.slots {
		s := &c.slots[i]
		if s.ok && end-s.at <= tailSlot*tailSlots && (!best.ok || s.ratio() > best.ratio() || s.ratio() == best.ratio() && s.at > best.at) {
			best = *s
		}
	}
	if rate, reached := c.reach(end); reached && c.last.ratio() >= best.ratio() && best.ratio() < outOf {
		best.rate = rate
	}
	return best
}

// highest is the memory limit that came nearest over the whole run. The node is
// everybody's: it is no measure of this run unless there is no other.
func (k *look) highest() (best *lookLimit, ok bool) {
	for _, node := range []bool{false, true} {
		for i := range k.limits {
			l := &k.limits[i]
			if !l.seen || l.max.Size == 0 || l.max.Used == 0 || !l.Name.Row().Amount || l.Name == event.LimitThrottle || (l.Name == event.LimitNode) != node {
				continue
			}
			if best == nil || l.max.Ratio() > best.max.Ratio() {
				best = l
			}
		}
		if best != nil {
			return best, true
		}
	}
	return nil, false
}
