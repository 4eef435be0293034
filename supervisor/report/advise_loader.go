package report

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// wantedShare is the share of its limit that a job should stay below.
const wantedShare = 0.85

// countedWhat is what of a process each accounting counts.
var countedWhat = map[event.Accounting]string{
	event.AccountingRSS: "RSS", event.AccountingNoShared: "RssAnon", event.AccountingPSS: "PSS",
	event.AccountingCgroup: "RssAnon, less what each began with, and RssShmem",
}

// adviseLoaders gives the lines on how the program loads its data, from the newest run
// that shows processes by role.
func adviseLoaders(k *kind, key limitKey) []Line {
	f := k.newest()
	for i := range k.jobs {
		if g := k.jobs[i].last(); g.workers.most > 0 {
			f = g
		}
	}
	if f.workers.most == 0 && f.trainers.most == 0 {
		return nil
	}
	var lines []Line
	for _, rule := range []func(*facts, limitKey) (Line, bool){fewerWorkers, freshWorkers, ownStart, sharedPages, notPinned} {
		l, ok := rule(f, key)
		if !ok {
			continue
		}
		seen := 0
		for i := range k.jobs {
			if _, too := rule(k.jobs[i].last(), key); too {
				seen++
			}
		}
		l.Evidence = fmt.Sprintf("run %s, %s", f.run.Meta.ID, l.Evidence)
		if len(k.jobs) > 1 {
			l.Evidence += fmt.Sprintf("; seen in %d of %s", seen, values.Count(len(k.jobs), "run"))
		}
		lines = append(lines, l)
	}
	return lines
}

// fewerWorkers: the limit was near, and without some of the workers it would not
// have been.
func fewerWorkers(f *facts, key limitKey) (Line, bool) {
	i := f.index(key)
	if i < 0 {
		return Line{}, false
	}
	l := &f.limits[i]
	w := &l.workers
	counted, ok := w.counted(key)
	if !ok || w.count < 2 || l.peak.Ratio() < wantedShare {
		return Line{}, false
	}
	each := counted / rss.Bytes(w.count)
	counted = min(counted, l.peak.Used)
	rest := l.peak.Used - counted
	target := l.peak.Size.Scale(wantedShare)
	if each == 0 || counted < max(leastSaved, l.peak.Size.Scale(leastPart)) || rest+each > target {
		return Line{}, false
	}
	loaders := max(w.trainers, 1)
	per := min(int((target-rest)/each), w.count-1) / loaders
	if per < 1 {
		return Line{}, false
	}
	left := per * loaders
	was := fmt.Sprintf("%d workers", w.count)
	if loaders > 1 {
		was += fmt.Sprintf(" of %d trainers", loaders)
	}
	more := ""
	if f.exit == nil || f.fate(f.peak(key)) == fateDied {
		more = "; what more they would have taken is not known"
	}
	return Line{
		Line: fmt.Sprintf("num_workers=%d", per),
		Why: fmt.Sprintf("%s had %v of the %v that the limit %s counted, %v each; with %d it would have been some %v of %v%s",
			was, counted, l.peak.Used, key.name, each, left, rest+rss.Bytes(left)*each, l.peak.Size, more),
		Evidence: fmt.Sprintf("of the workers %s: %s", moment(l.at), countedWhat[key.accounting]),
	}, true
}

// freshWorkers: workers that stay from epoch to epoch grow and do not stop.
func freshWorkers(f *facts, key limitKey) (Line, bool) {
	n, stay := f.stayed()
	if !stay {
		return Line{}, false
	}
	g, of, what := growth{}, "", ""
	mapped := key.accounting == event.AccountingRSS || key.accounting == event.AccountingPSS
	if h, ok := f.workers.file.growth(); ok && mapped && h.grows() {
		g, of, what = h, "RssFile", "mapped file pages, which they drop when they end"
	}
	if h, ok := f.workers.anon.growth(); ok && h.grows() && h.all() > g.all() {
		g, of, what = h, "RssAnon", "anonymous memory: a cache, a leak, or pages copied on write"
	}
	if of == "" {
		return Line{}, false
	}
	return Line{
		Line: "persistent_workers=False",
		Why: fmt.Sprintf("%s that stayed for most of the run had %v in its first third, %v in the second and %v in the last, in %s; workers that end with each epoch begin anew",
			values.Count(n, "worker"), g.thirds[0], g.thirds[1], g.thirds[2], what),
		Evidence: fmt.Sprintf("%s of the workers in thirds of %s, the highest of each", of, values.Span(g.third)),
	}, true
}
