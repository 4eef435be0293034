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

// divisor is the greatest length that divides all steps of at least d.
func divisor(d time.Duration) (all time.Duration) {
	for _, s := range append(slices.Clone(steps), stepAtLeast(d)) {
		if s < d {
			continue
		}
		for a, b := all, s; ; a, b = b, a%b {
			if b == 0 {
				all = a
				break
			}
		}
	}
	return all
}

// strandSeen makes a [Strand] of a run in one pass. How long a point is, and which
// limits and roles are drawn, shows only at the end: until then samples are kept in
// cells, of which each point is a whole number.
type strandSeen struct {
	run    *record.Run
	n      int           // runs that share the page
	end    time.Duration // of the run
	column []int         // the first column of a limit, by index in run.Limits; -1 for a limit that is a count
	row    []int64       // the sample at hand
	whole  buckets
	tail   buckets // the last minutes, more finely
	traces *traces

	samples int
	roles   [len(bandRoles)]bool
	binding []int // samples for which each limit was the binding one
	ratio   []float64
	read    []bool
	last    time.Duration   // the sample before, -1 for none
	every   int             // of how many samples one is in spacing
	spacing []time.Duration // between samples, a few thousand of them
	late    []time.Duration // in the last minutes
}

// tailSlack is how much more than the last minutes is kept: their first point may begin
// earlier.
const tailSlack = time.Hour

func newStrandSeen(r *record.Run, n int) *strandSeen {
	limits := len(r.Limits)
	o := &strandSeen{
		run: r, n: n, end: r.End(), last: -1, every: 1, late: make([]time.Duration, 0, 1024),
		column: make([]int, limits), binding: make([]int, limits), ratio: make([]float64, limits), read: make([]bool, limits),
	}
	width := limitsFrom
	for i := range r.Limits {
		if o.column[i] = -1; r.Limits[i].Name.Row().Amount {
			o.column[i] = width
			width += limitColumns
		}
	}
	o.row = make([]int64, width)
	o.whole.width = divisor(max(o.end/time.Duration(mostPoints/n), steps[0]))
	o.traces = newTraces(r, o.end)
	return o
}

func (o *strandSeen) entry(*record.Entry) {}

func (o *strandSeen) sample(s *record.Sample) {
	o.samples++
	if o.last >= 0 {
		if o.samples%o.every == 0 {
			o.spacing = append(o.spacing, s.At-o.last)
		}
		if len(o.spacing) == 4096 {
			o.spacing, o.every = o.spacing[:2048], o.every*2
		}
		if len(o.late) == cap(o.late) {
			o.late = append(o.late[:0], o.late[cap(o.late)/2:]...)
		}
		o.late = append(o.late, s.At-o.last)
	}
	o.last = s.At
	clear(o.row[:limitsFrom])
	for i := range o.row[limitsFrom:] {
		o.row[limitsFrom+i] = -1
	}
	for i := range s.Procs {
		if u := &s.Procs[i]; u.Proc >= 0 && u.Proc < len(o.run.Procs) {
			o.band(bandOf(&o.run.Procs[u.Proc]), u.Anon, u.File, u.Shmem, 1)
		}
	}
	for _, b := range s.Roles {
		// A journal has the sum where it has no parts.
		o.band(bandOfRole(b.Role), max(b.Anon, b.RSS.Sub(b.File+b.Shmem)), b.File, b.Shmem, b.Count)
	}
	for i := range s.Limits {
		if x := &s.Limits[i]; x.Limit >= 0 && x.Limit < len(o.read) {
			o.limit(x)
		}
	}
	o.whole.add(s.At, o.row)
	o.tail.width = steps[0]
	if s.At < o.end-lastMinutes-tailSlack {
		o.tail.width = longest // all in one: its last sample may reach into the tail
	}
	o.tail.add(s.At, o.row)
	o.traces.add(s)
}

func (o *strandSeen) band(role rss.Role, anon, file, shmem rss.Bytes, count int) {
	i := slices.Index(bandRoles[:], role)
	o.roles[i] = true
	c := i * bandColumns
	o.row[c] += int64(anon / rss.KiB)
	o.row[c+1] += int64(file / rss.KiB)
	o.row[c+2] += int64(shmem / rss.KiB)
	o.row[c+3] += int64(count)
}

func (o *strandSeen) limit(x *record.Reading) {
	o.read[x.Limit] = true
	o.ratio[x.Limit] = max(o.ratio[x.Limit], x.Ratio())
	if x.Binding {
		o.binding[x.Limit]++
	}
	c := o.column[x.Limit]
	if c < 0 {
		return
	}
	used := int64(x.Used / rss.KiB)
	o.row[c], o.row[c+1] = used, used
	o.row[c+2] = max(used, int64(x.UsedMax/rss.KiB))
	o.row[c+3], o.row[c+4] = int64(x.Charged/rss.KiB), int64(x.WorkingSet/rss.KiB)
	o.row[c+5] = int64(x.Size / rss.KiB)
}

// strand makes what is drawn, on a clock that began offset before the run.
func (o *strandSeen) strand(offset time.Duration) Strand {
	r := o.run
	s := Strand{ID: r.Meta.ID, From: offset, To: offset + o.end, JournalOnly: r.JournalOnly, Live: r.Live, Thinned: r.Thinned}
	slices.Sort(o.spacing)
	slices.Sort(o.late)
	pick := o.choose(&s)
	step, gap := o.step(), o.gap()
	fold := func(from, step time.Duration, of *buckets, budget int) {
		f := newFolding(len(s.Roles)*bandColumns, pick, from, o.end, step)
		f.fold(of, gap)
		s.Levels = append(s.Levels, *f.level(offset, budget/o.n))
	}
	fold(0, step, &o.whole, levelBudget/8*7)
	if fine := o.tailStep(step); fine < step {
		fold(max(0, o.end-lastMinutes), fine, &o.tail, levelBudget/8)
	}
	s.Marks, s.MarksLeftOut = marks(r, offset, o.n)
	s.Procs, s.ProcsLeftOut = o.traces.top(r, offset, max(leastTraces, mostTraces/o.n))
	return s
}

// choose lists the bands and limits that are drawn, and returns the columns of their
// values in a row.
func (o *strandSeen) choose(s *Strand) (pick []int) {
	for i, role := range bandRoles {
		if o.roles[i] {
			s.Roles = append(s.Roles, Band{role})
			for c := range bandColumns {
				pick = append(pick, i*bandColumns+c)
			}
		}
	}
	best, primary := -1, 0
	for i, x := range o.run.Limits {
		if o.column[i] < 0 || !o.read[i] {
			continue
		}
		if best < 0 || o.binding[i] > o.binding[best] || o.binding[i] == o.binding[best] && o.ratio[i] > o.ratio[best] {
			best, primary = i, len(s.Limits)
		}
		s.Limits = append(s.Limits, Against{Limit: x})
		for c := range limitColumns {
			pick = append(pick, o.column[i]+c)
		}
	}
	if best >= 0 {
		s.Limits[primary].Primary = true
	}
	return pick
}

// step is the length of a point.
func (o *strandSeen) step() time.Duration {
	least := o.end / time.Duration(mostPoints/o.n)
	if k := len(o.spacing); k > 0 {
		least = max(least, o.spacing[k/2]*9/10) // timers are not exact
	}
	return stepAtLeast(max(least, steps[0]))
}

// tailStep is the length of a point in the last minutes: not above step.
func (o *strandSeen) tailStep(step time.Duration) time.Duration {
	if o.end <= lastMinutes/2 || len(o.late) == 0 {
		return step
	}
	return min(step, stepAtLeast(max(200*time.Millisecond, o.late[len(o.late)/10]*9/10)))
}

// gap is how long a sample stands for at most. Beyond it nothing is drawn: a
// line there would be made up.
func (o *strandSeen) gap() time.Duration {
	switch {
	case o.run.JournalOnly || len(o.spacing) == 0:
		return math.MaxInt64
	case o.run.Thinned:
		return 150 * time.Second // what was thinned most is a minute apart
	}
	return max(10*time.Second, 5*o.spacing[len(o.spacing)/2])
}

func bandOf(p *record.Proc) rss.Role {
	if p.Extra || p.Ours {
		return Beside
	}
	return bandOfRole(p.Role)
}

func bandOfRole(r rss.Role) rss.Role {
	if slices.Contains(bandRoles[:], r) {
		return r
	}
	return rss.RoleOther
}
