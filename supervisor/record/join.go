package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Join makes one run of several that follow each other on one node, where another rank's
// watcher took over. It has the clock and the [Meta] of the first. ok is false where runs
// overlap, and for records and journals mixed.
func Join(runs []*Run) (joined *Run, ok bool) {
	if len(runs) == 0 {
		return nil, false
	}
	j := joining{
		b: NewBuilder(runs[0].Meta), journal: runs[0].JournalOnly,
		procs: map[Proc]int{}, last: -1,
	}
	for _, r := range runs {
		if !j.take(r, r.Meta.Start.Sub(runs[0].Meta.Start)) {
			return nil, false
		}
	}
	out := j.b.Run()
	out.plain = j.plain
	out.JournalOnly, out.Live = j.journal, runs[len(runs)-1].Live
	for _, r := range runs {
		out.Sources = append(out.Sources, r.Sources...)
		out.Damage = append(out.Damage, r.Damage...)
		out.Thinned, out.Dropped = out.Thinned || r.Thinned, out.Dropped+r.Dropped
	}
	slices.SortStableFunc(out.Events, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	return out, true
}

type joining struct {
	b       *Builder
	journal bool
	procs   map[Proc]int // by all but Parent
	plain   []Sample
	last    time.Duration
}

// take adds one run, of which moments come later by offset.
func (j *joining) take(r *Run, offset time.Duration) bool {
	if r.JournalOnly != j.journal {
		return false
	}
	procs, limits := make([]int, len(r.Procs)), make([]int, len(r.Limits))
	for i := range r.Procs {
		key := r.Procs[i]
		key.Parent = 0
		n, ok := j.procs[key]
		if !ok {
			n = j.b.Proc(r.Procs[i])
			j.procs[key] = n
		}
		procs[i] = n
	}
	for i := range r.Limits {
		limits[i] = j.b.run.limit(&r.Limits[i])
	}
	for s := range r.Samples() {
		if !j.journal && len(s.Procs) == 0 && len(s.Roles) > 0 {
			continue // what a journal has beyond the end of its record has no processes
		}
		c := s.clone()
		if c.At += offset; c.At < j.last {
			return false
		}
		j.last = c.At
		c.Procs = slices.DeleteFunc(c.Procs, func(u Usage) bool { return u.Proc < 0 || u.Proc >= len(procs) })
		for i := range c.Procs {
			c.Procs[i].Proc = procs[c.Procs[i].Proc]
		}
		c.Limits = slices.DeleteFunc(c.Limits, func(l Reading) bool { return l.Limit < 0 || l.Limit >= len(limits) })
		for i := range c.Limits {
			c.Limits[i].Limit = limits[c.Limits[i].Limit]
		}
		if j.journal {
			j.plain = append(j.plain, c)
		} else {
			j.b.Sample(&c)
		}
	}
	for _, e := range r.Events {
		e.At += offset
		if h, ok := e.Value.(*event.Handover); ok {
			moved := *h
			moved.Ran += offset
			e.Value = &moved
		}
		j.b.Event(e)
	}
	return true
}

// Recorded is what rank events say of a run: when its watcher began to lead, and
// that it is a leader's at all.
func (r *Run) Recorded() (from time.Duration, led bool) {
	if at := r.Leads(); len(at) > 0 {
		return at[0], true
	}
	for i := range r.Events {
		if _, led = r.Events[i].Value.(*event.Rank); led {
			return 0, true
		}
	}
	return 0, false
}

// Leads are the moments at which the watcher of the run's own rank took the lead: mostly one.
// A watcher that was killed and restarted may lead again after another rank's.
func (r *Run) Leads() (at []time.Duration) {
	for i := range r.Events {
		if e, ok := r.Events[i].Value.(*event.Rank); ok && e.What == event.RankLeads && (e.Holder == 0 || e.Holder == r.Meta.Holder) {
			at = append(at, r.Events[i].At)
		}
	}
	return at
}

// Part is what the run has from one moment on, until before another.
func (r *Run) Part(from, to time.Duration) *Run {
	b := NewBuilder(r.Meta)
	b.run.Procs, b.run.Limits = r.Procs, r.Limits
	var plain []Sample
	for s := range r.Samples() {
		switch {
		case s.At < from || s.At >= to:
		case len(r.blocks) == 0, len(s.Procs) == 0 && len(s.Roles) > 0: // of a journal
			plain = append(plain, s.clone())
		default:
			b.Sample(s)
		}
	}
	out := b.Run()
	out.plain = plain
	for _, e := range r.Events {
		if e.At >= from && e.At < to {
			out.Events = append(out.Events, e)
		}
	}
	out.Sources, out.JournalOnly, out.Live, out.Damage = r.Sources, r.JournalOnly, r.Live, r.Damage
	out.Thinned, out.Dropped = r.Thinned, r.Dropped
	return out
}

// Merge adds what only the journal of a run has: what came after the end of a record whose
// storage failed, or whose last commit was killed. journal may be nil.
func (r *Run) Merge(journal *Run) {
	if journal == nil || journal.Meta.ID != r.Meta.ID {
		return
	}
	r.Sources = append(r.Sources, journal.Sources...)
	r.Meta.Journal = cmp.Or(r.Meta.Journal, journal.Meta.Journal)
	type key struct {
		name any
		at   int64
	}
	seen := map[key]bool{}
	for _, e := range r.Events {
		seen[key{e.Name, int64(e.At)}] = true
	}
	for _, e := range journal.Events {
		if !seen[key{e.Name, int64(e.At)}] {
			r.Events = append(r.Events, e)
		}
	}
	for s := range journal.Samples() { // Samples yields those after the last of the record
		c := s.clone()
		for i := range c.Limits {
			c.Limits[i].Limit = r.limit(&journal.Limits[c.Limits[i].Limit])
		}
		r.plain = append(r.plain, c)
	}
}
