package render

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
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
func adviseLoaders(k *analysis.Program, key analysis.LimitKey) []analysis.AdviceLine {
	f := k.Newest()
	for i := range k.Jobs {
		if g := k.Jobs[i].Last(); g.Workers.Most() > 0 {
			f = g
		}
	}
	if f.Workers.Most() == 0 && f.Trainers.Most() == 0 {
		return nil
	}
	var lines []analysis.AdviceLine
	for _, rule := range []func(*analysis.RunScan, analysis.LimitKey) (analysis.AdviceLine, bool){fewerWorkers, freshWorkers, ownStart, sharedPages, notPinned} {
		l, ok := rule(f, key)
		if !ok {
			continue
		}
		seen := 0
		for i := range k.Jobs {
			if _, too := rule(k.Jobs[i].Last(), key); too {
				seen++
			}
		}
		l.Evidence = fmt.Sprintf("run %s, %s", f.Run.Meta.ID, l.Evidence)
		if len(k.Jobs) > 1 {
			l.Evidence += fmt.Sprintf("; seen in %d of %s", seen, values.Count(len(k.Jobs), "run"))
		}
		lines = append(lines, l)
	}
	return lines
}

// fewerWorkers: the limit was near, and without some of the workers it would not
// have been.
func fewerWorkers(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	i := f.Index(key)
	if i < 0 {
		return analysis.AdviceLine{}, false
	}
	l := &f.Limits[i]
	w := &l.Workers
	counted, ok := w.Counted(key)
	if !ok || w.Count < 2 || l.Peak.Ratio() < wantedShare {
		return analysis.AdviceLine{}, false
	}
	each := counted / rss.Bytes(w.Count)
	counted = min(counted, l.Peak.Used)
	rest := l.Peak.Used - counted
	target := l.Peak.Size.Scale(wantedShare)
	if each == 0 || counted < max(analysis.LeastSaved, l.Peak.Size.Scale(analysis.LeastPart)) || rest+each > target {
		return analysis.AdviceLine{}, false
	}
	loaders := max(l.Trainers, 1)
	per := min(int((target-rest)/each), w.Count-1) / loaders
	if per < 1 {
		return analysis.AdviceLine{}, false
	}
	left := per * loaders
	was := fmt.Sprintf("%d workers", w.Count)
	if loaders > 1 {
		was += fmt.Sprintf(" of %d trainers", loaders)
	}
	more := ""
	if f.Recorded == nil || f.Fate(f.Peak(key)) == analysis.LimitTooSmall {
		more = "; what more they would have taken is not known"
	}
	return analysis.AdviceLine{
		Line: fmt.Sprintf("num_workers=%d", per),
		Why: fmt.Sprintf("%s had %v of the %v that the limit %s counted, %v each; with %d it would have been some %v of %v%s",
			was, counted, l.Peak.Used, key.Name, each, left, rest+rss.Bytes(left)*each, l.Peak.Size, more),
		Evidence: fmt.Sprintf("of the workers %s: %s", moment(l.PeakAt), countedWhat[key.Accounting]),
	}, true
}

// freshWorkers: workers that stay from epoch to epoch grow and do not stop.
func freshWorkers(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	n, stay := f.Stayed()
	if !stay {
		return analysis.AdviceLine{}, false
	}
	g, of, what := analysis.Growth{}, "", ""
	mapped := key.Accounting == event.AccountingRSS || key.Accounting == event.AccountingPSS
	if h, ok := f.Workers.File.Growth(); ok && mapped && h.Grows() {
		g, of, what = h, "RssFile", "mapped file pages, which they drop when they end"
	}
	if h, ok := f.Workers.Anon.Growth(); ok && h.Grows() && h.All() > g.All() {
		g, of, what = h, "RssAnon", "anonymous memory: a cache, a leak, or pages copied on write"
	}
	if of == "" {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "persistent_workers=False",
		Why: fmt.Sprintf("%s that stayed for most of the run had %v in its first third, %v in the second and %v in the last, in %s; workers that end with each epoch begin anew",
			values.Count(n, "worker"), g.Thirds[0], g.Thirds[1], g.Thirds[2], what),
		Evidence: fmt.Sprintf("%s of the workers in thirds of %s, the highest of each", of, values.Span(g.Third)),
	}, true
}

// bornAlike is the part of the trainer's anonymous memory from which on a worker
// was born with it.
const bornAlike = 0.7

// ownStart: forked workers begin with all of the trainer's memory, and the limit
// counts it for each of them. Another start method is no way out: what is the data
// set's would be copied to each worker, and how much that is the record does not tell.
func ownStart(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	if key.Accounting != event.AccountingRSS && key.Accounting != event.AccountingNoShared || !f.Close(key) {
		return analysis.AdviceLine{}, false
	}
	alike, all := 0, 0
	var least, trainer rss.Bytes
	for i := range f.Procs {
		p, who := &f.Procs[i], &f.Run.Procs[i]
		if !p.Seen || who.Role != rss.RoleWorker || p.Trainer == 0 {
			continue
		}
		all++
		if p.Born < p.Trainer.Scale(bornAlike) {
			continue
		}
		alike++
		if least == 0 || p.Born < least {
			least, trainer = p.Born, p.Trainer
		}
	}
	n := rss.Bytes(min(alike, f.Workers.Most()))
	size := f.Peak(key).Limit
	if alike == 0 || 2*alike < all || n*least < max(analysis.LeastSaved, size.Scale(analysis.LeastPart)) {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "persistent_workers=True, and the first iter(loader) before the model is made",
		Why: fmt.Sprintf("each forked worker begins with the trainer's memory, %v of %v, and the limit %s counts that for each of %d: %v; workers that start first begin without model and optimizer, and data in a memory map can be trimmed",
			least, trainer, key.Name, n, n*least),
		Evidence: "RssAnon of workers when they were first seen, and the trainer's then",
	}, true
}

// sharedPages: what is charged, or PSS, rises while nothing that a process has
// does: pages that a fork shared are copied as reference counts are written.
func sharedPages(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	if f.Workers.Most() == 0 || !f.Close(key) {
		return analysis.AdviceLine{}, false
	}
	resident, ok := f.Workers.RSS.Growth()
	if !ok || resident.All() > resident.Thirds[2].Scale(flat) {
		return analysis.AdviceLine{}, false
	}
	var g analysis.Growth
	from := ""
	switch {
	case key.Accounting == event.AccountingPSS && !f.Workers.NoPSS:
		g, ok = f.Workers.PSS.Growth()
		from = "PSS of the workers, beside their RSS"
	case key.Accounting == event.AccountingCgroup && f.Index(key) >= 0:
		tree, known := f.Tree.Anon.Growth()
		shmem, known2 := f.Tree.Shmem.Growth()
		g, ok = f.Limits[f.Index(key)].Used.Growth()
		// All that is anonymous or shared must stand still, the trainer's too, and
		// what is shared be enough to have been copied.
		ok = ok && known && known2 && 3*(tree.All()+shmem.All()) <= g.All() && f.Inherited() >= g.All()
		from = "unreclaimable memory of the cgroup, beside RssAnon and RssShmem of the tree"
	default:
		return analysis.AdviceLine{}, false
	}
	if !ok || g.All() < max(analysis.LeastSaved, g.Thirds[0].Scale(analysis.LeastPart)) {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "dataset: arrays in place of lists, dicts and tuples",
		Why: fmt.Sprintf("use rose by %v while what the workers have stood still at %v: pages that a fork shares are copied as Python writes reference counts into them; numpy arrays and tensors have none inside",
			g.All(), resident.Thirds[2]),
		Evidence: fmt.Sprintf("%s, in thirds of %s", from, values.Span(g.Third)),
	}, true
}

// flat is the share by which what stands still may rise.
const flat = 0.03

// notPinned: the trainer's shared memory, in which batches lie that are pinned or
// were taken from workers, grows and does not stop.
func notPinned(f *analysis.RunScan, key analysis.LimitKey) (analysis.AdviceLine, bool) {
	g, ok := f.Trainers.Shmem.Growth()
	if !ok || !g.Grows() || key.Accounting == event.AccountingNoShared {
		return analysis.AdviceLine{}, false
	}
	return analysis.AdviceLine{
		Line: "pin_memory=False",
		Why: fmt.Sprintf("shared memory of the trainer, where pinned batches lie, rose from %v in the first third of the run to %v in the last; where it rises without pin_memory too, the program keeps batches",
			g.Thirds[0], g.Thirds[2]),
		Evidence: fmt.Sprintf("RssShmem of the trainers in thirds of %s, the highest of each", values.Span(g.Third)),
	}, true
}
