package report

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// limitOf is where a limit of a [Report] was read.
type limitOf struct {
	from, to time.Time // what its Spark is of
	// line is that of the leaders that followed each other, 0 for who led nobody, and
	// ranks are who recorded it.
	line  int
	ranks []rankKey
}

// sameLimit says that two are readings of one limit of one run, or of leaders that
// followed each other.
func sameLimit(a, b *Limit) bool {
	return a.Name == b.Name && a.Scope == b.Scope && a.Accounting == b.Accounting && a.Level == b.Level &&
		(a.Run == b.Run || a.line > 0 && a.line == b.line)
}

// raise takes in the most that the run itself told of: it looks more often than it keeps
// a sample, and the two must not differ on one page. When that was is told no nearer than
// by the greatest sample.
func (l *Limit) raise(b *event.Limit) {
	if b == nil || b.Name != l.Name || b.Scope != l.Scope || b.Accounting != l.Accounting || b.Level != l.Level || b.Used <= l.Used {
		return
	}
	l.Used, l.UsedMax = b.Used, max(l.UsedMax, b.Used)
}

// join takes in what one limit was in another part of the time.
func (l *Limit) join(o *Limit) {
	whole, spark, last := l.limitOf, l.Spark, l.Last
	if o.from.Before(whole.from) {
		whole.from = o.from
	}
	if o.to.After(whole.to) {
		whole.to, last = o.to, o.Last
	}
	out := make([]float64, sparkStretches)
	for i := range out {
		out[i] = -1
	}
	stretch(out, &whole, spark, &l.limitOf)
	stretch(out, &whole, o.Spark, &o.limitOf)
	whole.ranks = slices.Clone(whole.ranks)
	for _, r := range o.ranks {
		if !slices.Contains(whole.ranks, r) {
			whole.ranks = append(whole.ranks, r)
		}
	}
	if o.Ratio() > l.Ratio() {
		*l = *o
	}
	l.limitOf, l.Spark, l.Last = whole, out, last
}

// stretch puts the stretches of a part where they are in the whole.
func stretch(out []float64, whole *limitOf, part []float64, of *limitOf) {
	all, length := float64(max(whole.to.Sub(whole.from), 1)), float64(of.to.Sub(of.from))
	offset := float64(of.from.Sub(whole.from))
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

// joinedLimits are the limits of a report, those of leaders that followed each other as
// one.
func (rep *Report) joinedLimits() (out []Limit) {
	for i := range rep.Limits {
		l := &rep.Limits[i]
		if n := slices.IndexFunc(out, func(o Limit) bool { return sameLimit(&o, l) && o.line > 0 }); n >= 0 {
			out[n].join(l)
			continue
		}
		out = append(out, *l)
	}
	return out
}

// apartOf says that each task has its own limit of that kind: a sum of its tree, or
// what one process may have.
func apartOf(s event.Scope) bool { return s == event.ScopeTree || s == event.ScopeProcess }
