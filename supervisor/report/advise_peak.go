package report

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// limitKey names the limit that advice on --mem is about, in all runs of a kind:
// only what is added up alike can be compared.
type limitKey struct {
	name       event.LimitName
	accounting event.Accounting
}

// counts says that a limit is one on this job's memory.
func (f *facts) counts(l *event.Limit) bool {
	switch l.Name {
	case event.LimitCgroup, event.LimitSlurm, event.LimitUser:
		return true
	}
	return false
}

// nearest is the limit on memory that a run came nearest to, with its highest
// use; nil where there is none.
func (f *facts) nearest() *event.Limit {
	if e := f.exit; e != nil && e.Binding != nil && e.Binding.Used > 0 && f.counts(e.Binding) {
		return e.Binding
	}
	var best *event.Limit
	for i := range f.limits {
		l := f.at(i)
		if l != nil && (best == nil || l.Ratio() > best.Ratio()) {
			best = l
		}
	}
	return best
}

// at is a limit on memory with its highest use, nil for another limit.
func (f *facts) at(i int) *event.Limit {
	l, seen := f.run.Limits[i], &f.limits[i]
	if !seen.seen || seen.peak.Size == 0 || seen.peak.Used == 0 || !f.counts(&l) {
		return nil
	}
	l.Used, l.UsedMax, l.Limit = seen.peak.Used, seen.peak.UsedMax, seen.peak.Size
	return &l
}

// index is the limit of that key with the highest share used, -1 for none.
func (f *facts) index(key limitKey) int {
	best, ratio := -1, -1.0
	for i := range f.limits {
		if l := f.at(i); l != nil && (limitKey{l.Name, l.Accounting}) == key && l.Ratio() > ratio {
			best, ratio = i, l.Ratio()
		}
	}
	return best
}

// peak is the limit of that key at its highest use, nil where the run has none.
// The exit event knows what lay between two samples.
func (f *facts) peak(key limitKey) *event.Limit {
	var l *event.Limit
	if i := f.index(key); i >= 0 {
		l = f.at(i)
	}
	if e := f.exit; e != nil && e.Binding != nil && (limitKey{e.Binding.Name, e.Binding.Accounting}) == key &&
		(l == nil || e.Binding.Used > l.Used) {
		l = e.Binding
	}
	return l
}

// key is the limit that the newest run with one came nearest to.
func (k *kind) key() (limitKey, bool) {
	for i := len(k.jobs) - 1; i >= 0; i-- {
		for n := len(k.jobs[i].runs) - 1; n >= 0; n-- {
			if l := k.jobs[i].runs[n].nearest(); l != nil {
				return limitKey{l.Name, l.Accounting}, true
			}
		}
	}
	return limitKey{}, false
}

// fate is what a job's peak tells of what it needs.
type fate int

const (
	fateWhole   fate = iota // all of it
	fateOpen                // the least: it goes on, or ended early, or was seen in part
	fateCarried             // enough with rsswarden
	fateDied                // the limit was too small
)

// fate is the fate of one run.
func (f *facts) fate(l *event.Limit) fate {
	e := f.exit
	if e == nil {
		if f.handed {
			return fateWhole // the next record has the rest
		}
		// A kill of the whole job leaves no exit event.
		asked := f.told >= 0 && f.end-f.told < afterTerm
		if !f.run.Live && !asked && l.Ratio() >= likelyDied {
			return fateDied
		}
		return fateOpen
	}
	failed := e.Signal != nil || e.Code == nil || *e.Code != 0 || f.failed
	switch e.Verdict {
	case event.VerdictOOM, event.VerdictStopped, event.VerdictRequeued:
		return fateDied
	case event.VerdictKilled:
		if e.Advice > 0 { // it was full then
			return fateDied
		}
		return fateOpen
	case event.VerdictCarried:
		return fateCarried
	case event.VerdictAsked:
		if failed {
			return fateDied
		}
	case event.VerdictUnwatched, event.VerdictLed, "":
		return fateOpen
	}
	if failed {
		return fateOpen
	}
	return fateWhole
}

// afterTerm is how long after a SIGTERM the end is most likely its doing.
const afterTerm = 5 * time.Minute

// likelyDied is the share of its limit from which on a job whose record just
// ends was most likely killed for it.
const likelyDied = 0.9

// observed is what one job tells.
type observed struct {
	fate  fate
	peak  rss.Bytes
	size  rss.Bytes // its limit
	limit *event.Limit
	facts *facts // of the run with the peak
	runs  int
	job   *job
}

// least is the least that the job needs, as far as it tells.
func (o *observed) least() rss.Bytes {
	if o.fate == fateDied {
		return max(o.peak, o.size)
	}
	return o.peak
}

// observe is what the job's runs come to: of several nodes the fullest, of
// several tasks under one limit that, of tasks with each its own their sum.
func (j *job) observe(key limitKey) (o observed, ok bool) {
	byNode := map[string]*observed{}
	for _, f := range j.runs {
		l := f.peak(key)
		if l == nil {
			continue
		}
		n := byNode[f.run.Meta.Node]
		if n == nil {
			n = &observed{limit: l, facts: f}
			byNode[f.run.Meta.Node] = n
		}
		if l.Scope == event.ScopeTree && key.name == event.LimitUser {
			n.peak, n.size = n.peak+l.Used, n.size+l.Limit
		} else {
			n.peak, n.size = max(n.peak, l.Used), max(n.size, l.Limit)
		}
		if l.Used > n.limit.Used {
			n.limit, n.facts = l, f
		}
		n.fate = max(n.fate, f.fate(l))
		n.runs++
	}
	worst := fateWhole
	for _, n := range byNode {
		worst = max(worst, n.fate)
		if !ok || n.least() > o.least() || n.least() == o.least() && n.facts.run.Meta.ID < o.facts.run.Meta.ID {
			o, ok = *n, true
		}
	}
	o.fate, o.job = worst, j
	return o, ok
}
