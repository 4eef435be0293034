package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// LimitScan is what one limit was over a run.
type LimitScan struct {
	*event.Limit
	Seen          bool
	Max, Last     record.Reading // at the highest share of its size, and last
	maxAt, LastAt time.Duration
	spark         spark
	Tail          tail
	most          *RankSeen // that had most at max, nil for none
	mostRSS       rss.Bytes // … and how much
	// Peak is the reading with the highest use, whatever the limit's size was then.
	Peak     record.Reading
	PeakAt   time.Duration
	Used     course
	own      course // Used without file pages of workers
	Workers  Sum    // at the peak
	Trainers int
	held     []Held // … of each role
}

// add takes in one reading and says whether it is the highest so far.
func (l *LimitScan) add(at time.Duration, r *record.Reading) (highest bool) {
	ratio := r.Ratio()
	highest = !l.Seen || ratio > l.Max.Ratio() || ratio == l.Max.Ratio() && r.Used > l.Max.Used
	if highest {
		l.Max, l.maxAt = *r, at
	}
	l.Seen, l.Last, l.LastAt = true, *r, at
	l.spark.add(at, ratio)
	l.Used.add(at, r.Used)
	l.Tail.add(at, *r)
	return highest
}

const (
	// tailSlot and tailSlots are what is kept of the end of a run: the fullest
	// reading of each slot, for a minute. Who dies by a full limit may die some
	// seconds later: what was killed first has given its memory back by then.
	tailSlot  = 4 * time.Second
	tailSlots = 16
)

// recent keeps the fullest reading of each slot of the last minute.
type recent[T any] struct {
	slots [tailSlots]struct {
		at    time.Duration
		ratio float64
		v     T
		ok    bool
	}
}

// keep takes in a reading. Of two as full the last one stays where it is asked for.
func (t *recent[T]) keep(at time.Duration, ratio float64, v T, last bool) {
	s := &t.slots[int(at/tailSlot)%tailSlots]
	if !s.ok || s.at/tailSlot != at/tailSlot || ratio > s.ratio || last && ratio == s.ratio {
		s.at, s.ratio, s.v, s.ok = at, ratio, v, true
	}
}

// Fullest returns the fullest reading of the last part of a run that ended at
// end, or the last one if that is older: a journal has a reading only where one
// moved.
func (t *recent[T]) Fullest(end time.Duration) (v T, at time.Duration, ok bool) {
	for i := range t.slots {
		if s := &t.slots[i]; s.ok {
			at = max(at, s.at)
		}
	}
	end, at = min(end, at+tailSlot*tailSlots), 0
	ratio := 0.0
	for i := range t.slots {
		s := &t.slots[i]
		if s.ok && end-s.at <= tailSlot*tailSlots && (!ok || s.ratio > ratio || s.ratio == ratio && s.at > at) {
			v, at, ratio, ok = s.v, s.at, s.ratio, true
		}
	}
	return v, at, ok
}

type tail struct {
	recent[record.Reading]
	last, before     record.Reading // the last two that lie apart enough for a rate
	lastAt, beforeAt time.Duration
	n                int
}

// apart is how far two readings must lie apart for a rate.
const apart = 300 * time.Millisecond

func (t *tail) add(at time.Duration, r record.Reading) {
	t.keep(at, r.Ratio(), r, false)
	if t.n == 0 || at-t.lastAt >= apart {
		t.before, t.beforeAt = t.last, t.lastAt
		t.n++
		t.lastAt = at
	}
	t.last = r
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

// CountScan is the most of something that is counted for each process, at the
// end and over the run.
type CountScan struct {
	size   uint64 // what one process may have, 0 where not known
	recent recent[CountUse]
	// last and before are the last two of one process that differ.
	last, before CountUse
}

// CountUse is one reading of one process.
type CountUse struct {
	V, Size uint64
	At      time.Duration
	Proc    int // index in Run.Procs, -1 where the record does not tell
	ok      bool
	// rate is how many came a second between the last two countings, where at
	// that rate none was left at the end; else 0.
	Rate float64
}

// NearFull is the share of a limit from which on a failure, or a SIGKILL, is attributed to it:
// between the last sample and a kill it only grew.
const NearFull = 0.9

// near says that it may be attributed to a limit that was used to that share and grew so.
func near(ratio, rate float64) bool { return ratio >= NearFull || rate > 0 && ratio >= 0.5 }

func (c *CountUse) near() bool { return near(c.Ratio(), c.Rate) }

func (c *CountUse) Ratio() float64 { return rss.Bytes(c.V).Of(rss.Bytes(c.Size)) }

func (c *CountScan) add(at time.Duration, v, size uint64, proc int) {
	if size == 0 {
		size = c.size
	}
	n := CountUse{V: v, Size: size, At: at, Proc: proc, ok: true}
	c.follow(n)
	c.recent.keep(at, n.Ratio(), n, true)
}

// follow keeps the last two countings. Most samples tell the last one again, and
// each first the number, then whose it is.
func (c *CountScan) follow(n CountUse) {
	if n.V != c.last.V {
		c.before, c.last = c.last, n
	}
	if n.Proc < 0 {
		return
	}
	c.last.Proc = n.Proc
	if c.before.Proc >= 0 && c.before.Proc != n.Proc {
		c.before = CountUse{}
	}
}

// reach says whether none would have been left by the end at the rate of the
// last two countings, and that rate. A count is reported a look or two after it was
// made.
func (c *CountScan) reach(end time.Duration) (rate float64, ok bool) {
	gap, since := c.last.At-c.before.At, end-c.last.At
	if !c.before.ok || c.last.V <= c.before.V || gap <= 0 || gap > soon || since > soon {
		return 0, false
	}
	rate = float64(c.last.V-c.before.V) / gap.Seconds()
	return rate, float64(c.last.V)+rate*(since+2*gap).Seconds() >= float64(c.last.Size)
}

// Fullest returns the fullest reading near the end, or the last if that is
// older.
func (c *CountScan) Fullest(end time.Duration) CountUse {
	best, _, _ := c.recent.Fullest(end)
	if rate, reached := c.reach(end); reached && c.last.Ratio() >= best.Ratio() && best.Ratio() < NearFull {
		best.Rate = rate
	}
	return best
}

// sameLimit says that two are readings of one limit of one run, or of leaders that
// followed each other.
func sameLimit(a, b *Limit) bool {
	return a.ID() == b.ID() && (a.Run == b.Run || a.line != nil && a.line == b.line)
}

// raise takes in the maximum that the run itself reported: it looks more often than it keeps
// a sample, and the two must not differ on one page. Its time is that of the greatest
// sample.
func (l *Limit) raise(b *event.Limit) {
	if b == nil || b.ID() != l.ID() || b.Used <= l.Used {
		return
	}
	l.Used, l.UsedMax = b.Used, max(l.UsedMax, b.Used)
}

func (l *Limit) join(o *Limit) {
	whole, spark, last := l.limitOf, l.Spark, l.Last
	if o.To.After(whole.To) {
		last = o.Last
	}
	widen(&whole.From, &whole.To, o.From, o.To)
	out := make([]float64, sparkStretches)
	for i := range out {
		out[i] = -1
	}
	stretch(out, &whole, spark, &l.limitOf)
	stretch(out, &whole, o.Spark, &o.limitOf)
	whole.Ranks = slices.Clone(whole.Ranks)
	for _, r := range o.Ranks {
		if !slices.Contains(whole.Ranks, r) {
			whole.Ranks = append(whole.Ranks, r)
		}
	}
	if o.Ratio() > l.Ratio() {
		*l = *o
	}
	l.limitOf, l.Spark, l.Last = whole, out, last
}

// stretch puts the stretches of a part where they are in the whole.
func stretch(out []float64, whole *limitOf, part []float64, of *limitOf) {
	all, length := float64(max(whole.To.Sub(whole.From), 1)), float64(of.To.Sub(of.From))
	offset := float64(of.From.Sub(whole.From))
	column := func(i int) float64 { return (offset + length*float64(i)/float64(len(part))) / all * float64(len(out)) }
	for i, v := range part {
		if v < 0 {
			continue
		}
		first := min(max(int(column(i)), 0), len(out)-1)
		for n := first; n < len(out) && (n == first || float64(n) < column(i+1)); n++ {
			out[n] = max(out[n], v)
		}
	}
}

// JoinLimits returns limits with those of leaders that followed each other as
// one.
func JoinLimits(all []Limit) (out []Limit) {
	for i := range all {
		l := &all[i]
		if n := slices.IndexFunc(out, func(o Limit) bool { return sameLimit(&o, l) && o.line != nil }); n >= 0 {
			out[n].join(l)
			continue
		}
		out = append(out, *l)
	}
	return out
}

// ApartOf says that each task has its own limit of that kind: a sum of its tree, or
// what one process may have.
func ApartOf(s event.Scope) bool { return s == event.ScopeTree || s == event.ScopeProcess }
