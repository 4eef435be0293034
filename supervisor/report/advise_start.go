package report

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// bornAlike is the part of the trainer's anonymous memory from which on a worker
// was born with it.
const bornAlike = 0.7

// ownStart: forked workers begin with all of the trainer's memory, and the limit
// counts it for each of them. Another start method is no way out: what is the data
// set's would be copied to each worker, and how much that is the record does not tell.
func ownStart(f *facts, key limitKey) (Line, bool) {
	if key.accounting != event.AccountingRSS && key.accounting != event.AccountingNoShared || !f.close(key) {
		return Line{}, false
	}
	alike, all := 0, 0
	var least, trainer rss.Bytes
	for i := range f.procs {
		p, who := &f.procs[i], &f.run.Procs[i]
		if !p.seen || who.Role != rss.RoleWorker || p.trainer == 0 {
			continue
		}
		all++
		if p.born < p.trainer.Scale(bornAlike) {
			continue
		}
		alike++
		if least == 0 || p.born < least {
			least, trainer = p.born, p.trainer
		}
	}
	n := rss.Bytes(min(alike, f.workers.most))
	size := f.peak(key).Limit
	if alike == 0 || 2*alike < all || n*least < max(leastSaved, size.Scale(leastPart)) {
		return Line{}, false
	}
	return Line{
		Line: "persistent_workers=True, and the first iter(loader) before the model is made",
		Why: fmt.Sprintf("each forked worker begins with the trainer's memory, %v of %v, and the limit %s counts that for each of %d: %v; workers that start first begin without model and optimizer, and data in a memory map can be trimmed",
			least, trainer, key.name, n, n*least),
		Evidence: "RssAnon of workers when they were first seen, and the trainer's then",
	}, true
}

// sharedPages: what is charged, or PSS, rises while nothing that a process has
// does: pages that a fork shared are copied as reference counts are written.
func sharedPages(f *facts, key limitKey) (Line, bool) {
	if f.workers.most == 0 || !f.close(key) {
		return Line{}, false
	}
	resident, ok := f.workers.rss.growth()
	if !ok || resident.all() > resident.thirds[2].Scale(flat) {
		return Line{}, false
	}
	var g growth
	from := ""
	switch {
	case key.accounting == event.AccountingPSS && !f.workers.noPSS:
		g, ok = f.workers.pss.growth()
		from = "PSS of the workers, beside their RSS"
	case key.accounting == event.AccountingCgroup && f.index(key) >= 0:
		tree, known := f.tree.anon.growth()
		shmem, known2 := f.tree.shmem.growth()
		g, ok = f.limits[f.index(key)].used.growth()
		// All that is anonymous or shared must stand still, the trainer's too, and
		// what is shared be enough to have been copied.
		ok = ok && known && known2 && 3*(tree.all()+shmem.all()) <= g.all() && f.inherited() >= g.all()
		from = "unreclaimable memory of the cgroup, beside RssAnon and RssShmem of the tree"
	default:
		return Line{}, false
	}
	if !ok || g.all() < max(leastSaved, g.thirds[0].Scale(leastPart)) {
		return Line{}, false
	}
	return Line{
		Line: "dataset: arrays in place of lists, dicts and tuples",
		Why: fmt.Sprintf("use rose by %v while what the workers have stood still at %v: pages that a fork shares are copied as Python writes reference counts into them; numpy arrays and tensors have none inside",
			g.all(), resident.thirds[2]),
		Evidence: fmt.Sprintf("%s, in thirds of %s", from, values.Span(g.third)),
	}, true
}

// flat is the share by which what stands still may rise.
const flat = 0.03

// notPinned: the trainer's shared memory, in which batches lie that are pinned or
// were taken from workers, grows and does not stop.
func notPinned(f *facts, key limitKey) (Line, bool) {
	g, ok := f.trainers.shmem.growth()
	if !ok || !g.grows() || key.accounting == event.AccountingNoShared {
		return Line{}, false
	}
	return Line{
		Line: "pin_memory=False",
		Why: fmt.Sprintf("shared memory of the trainer, where pinned batches lie, rose from %v in the first third of the run to %v in the last; where it rises without pin_memory too, the program keeps batches",
			g.thirds[0], g.thirds[2]),
		Evidence: fmt.Sprintf("RssShmem of the trainers in thirds of %s, the highest of each", values.Span(g.third)),
	}, true
}
