package report

import (
	"cmp"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// limitKey names the limit that advice on --mem is about, in all runs of a kind:
// only what is added up alike can be compared.
type limitKey struct {
	name       event.LimitName
	accounting event.Accounting
}

// counts says that a limit is one on this job's memory.
func (f *facts) counts(l *event.Limit) bool {
	return l.Name.Row().OfJob
}

// nearest is the limit on memory that a run came nearest to, with its highest
// use, of those by which Slurm or the kernel ends the job, else --limit; nil where
// there is none.
func (f *facts) nearest() *event.Limit {
	var told *event.Limit
	if e := f.exit; e != nil && e.Binding != nil && e.Binding.Used > 0 && f.counts(e.Binding) {
		told = e.Binding
	}
	if told != nil && told.Name != event.LimitUser {
		return told
	}
	var best *event.Limit
	for i := range f.limits {
		l := f.at(i)
		if l == nil || l.Name == event.LimitUser && told != nil {
			continue
		}
		if own := l.Name == event.LimitUser; best == nil || own == (best.Name == event.LimitUser) && l.Ratio() > best.Ratio() || !own && best.Name == event.LimitUser {
			best = l
		}
	}
	return cmp.Or(best, told)
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
	if b := e.Binding; e.Verdict == event.VerdictStopped && b != nil && b.Name == event.LimitUser && l.Name != event.LimitUser {
		return fateOpen // it was --limit that it was stopped for
	}
	switch f.verdict(l) {
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

// verdict is that of the exit event, but for two that others' words can mend. Who led
// from some time on calls the run unwatched, for it was not there before; where another
// record has what was before, the verdict is on what this one has. And a run is not
// carried by what somebody asked for while there was room.
func (f *facts) verdict(l *event.Limit) event.Verdict {
	e := f.exit
	switch {
	case f.follows && e.Verdict == event.VerdictUnwatched && (e.Code != nil || e.Signal != nil):
	case f.idly():
	default:
		return e.Verdict
	}
	return policy.Advise(policy.Run{Binding: l, Watched: true, Failed: e.Signal != nil || e.Code == nil || *e.Code != 0, Helped: f.helped}).Verdict
}

// idly says that all that was done was asked for while there was room.
func (f *facts) idly() bool {
	return f.exit.Verdict == event.VerdictCarried && f.asked > 0 && f.helped == 0 && f.run.Dropped == 0
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
	open  *facts // … of the one whose fate it is
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

// observe is what the job's runs come to: of several nodes the fullest, of several
// tasks under one limit that, of tasks with each its own their sum. Leaders that
// followed each other had one limit for all whom they led.
func (j *job) observe(key limitKey) (o observed, ok bool) {
	type place struct {
		node string
		line int
		run  *facts // where it is a limit of the run's own
	}
	byPlace := map[place]*observed{}
	var order []place
	for _, f := range j.runs {
		l := f.peak(key)
		if l == nil {
			continue
		}
		p := place{node: f.run.Meta.Node}
		if l.Scope == event.ScopeTree && key.name == event.LimitUser {
			if p.line = f.line; f.line == 0 {
				p.run = f
			}
		}
		n := byPlace[p]
		if n == nil {
			n = &observed{limit: l, facts: f, open: f}
			byPlace[p] = n
			order = append(order, p)
		}
		n.take(f, l)
		if fate := f.fate(l); fate > n.fate || fate == n.fate && n.facts == f {
			n.fate, n.open = fate, f
		}
		n.runs++
	}
	byNode := map[string]*observed{}
	for _, p := range order {
		n := byNode[p.node]
		if n == nil {
			byNode[p.node] = byPlace[p]
			continue
		}
		n.beside(byPlace[p])
	}
	for _, n := range byNode {
		if !ok || n.least() > o.least() || n.least() == o.least() && n.facts.run.Meta.ID < o.facts.run.Meta.ID {
			o, ok = *n, true
		}
	}
	for _, n := range byNode {
		if n.fate > o.fate {
			o.fate, o.open = n.fate, n.open
		}
	}
	o.job = j
	return o, ok
}

// take takes in what a run had of a limit that it shares with the others.
func (o *observed) take(f *facts, l *event.Limit) {
	o.peak, o.size = max(o.peak, l.Used), max(o.size, l.Limit)
	if l.Used > o.limit.Used {
		o.limit, o.facts = l, f
	}
}

// beside takes in what was used under another limit of the node at the same time.
func (o *observed) beside(n *observed) {
	o.peak, o.size, o.runs = o.peak+n.peak, o.size+n.size, o.runs+n.runs
	if n.limit.Used > o.limit.Used {
		o.limit, o.facts = n.limit, n.facts
	}
	if n.fate > o.fate || n.fate == o.fate && o.facts == n.facts {
		o.fate, o.open = n.fate, n.open
	}
}

// counted is what a limit counts of some processes, false where the record does not
// tell.
func (n *groupNow) counted(key limitKey) (rss.Bytes, bool) {
	switch key.accounting {
	case event.AccountingRSS:
		return n.anon + n.file + n.shmem, true
	case event.AccountingNoShared:
		return n.anon, true
	case event.AccountingPSS:
		return n.pss, !n.noPSS
	case event.AccountingCgroup:
		// A page that a fork shares is charged once: what is a worker's own is
		// what has come since.
		return n.grown + n.shmem, true
	}
	return 0, false
}

// close says that the limit was so near that saving is worth something.
func (f *facts) close(key limitKey) bool {
	l := f.peak(key)
	return l != nil && (l.Ratio() >= event.Roomy || f.fate(l) == fateDied || f.fate(l) == fateCarried)
}
