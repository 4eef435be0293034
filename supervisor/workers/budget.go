package policy

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Worker is one loader worker, as the budget and the choice among workers see
// it.
type Worker struct {
	ID rss.ProcID
	// Mapped is RssFile of /proc/PID/status: what the worker itself compares
	// with its budget.
	Mapped rss.Bytes
	// Counted is what the limit counts of the worker in all, and CountedMapped
	// what it counts of Mapped at most: all of it under rss, a share under pss, nothing
	// under noshared and cgroup. CountedSure is what of that was read: under pss
	// alone it differs.
	Counted, CountedMapped, CountedSure rss.Bytes
	// Kept is what of Mapped no trim takes, libraries above all, and CountedKept
	// what the limit counts of that.
	Kept, CountedKept rss.Bytes
	// RecycledAgo is how long ago this worker's place was last recycled, 0 for
	// never.
	RecycledAgo time.Duration
	// RankServed is when a worker of the same rank was recycled last, by any clock
	// that all share, 0 for never.
	RankServed time.Duration
}

// The arithmetic of budgets.
const (
	// BudgetFloor is the least budget: a worker that trims itself more often
	// than every 32 MiB does little else.
	BudgetFloor = 32 * rss.MiB
	// budgetReserve is the part of the limit kept free below the rung for what
	// grows between two revisions: anonymous memory of trainer and workers.
	budgetReserve = 0.10
	// budgetStep is by how much a budget must change to be written anew.
	budgetStep = 0.10
)

// BudgetInput is what a worker's budget follows from.
type BudgetInput struct {
	Limit event.Limit
	// Rung is the use to stay below, that of trim; see [State.Rung].
	Rung    rss.Bytes
	Workers []Worker
	// Rest is the least that is used beside what workers have mapped, 0 where nobody
	// knows: what is certain of a sum of PSS may have less of both in it.
	Rest rss.Bytes
	// Overshoot is the most by which one worker was seen to outgrow its budget
	// between two looks at it, that is within one batch; 0 where unknown. With
	// large folios one fault maps 2 MiB, so a batch of 100 records may map some
	// 200 MiB.
	Overshoot rss.Bytes
	// Last is the budget that stands, 0 for none.
	Last rss.Bytes
}

// Budget returns how many bytes of mapped file pages (RssFile) each worker may
// hold before it trims itself, and whether that differs enough from Last to be
// written. It returns 0 where no budget makes sense: the limit does not count
// mapped file pages, or there is no worker. Under pss what stands is left until
// the workers' PSS was read.
//
//	rest   = used − what trims would take of the workers' mapped pages, as the limit counts it
//	margin = the greater of 10 % of the limit and workers × overshoot
//	budget = what trims leave, and (rung − rest − margin) / workers, times RssFile per byte counted
//
// The margin lies below the rung. What may go wrong at once is that every
// worker overshoots in the same moment (covered by it) while anonymous memory
// grows (covered by the 15 % between the default rung and the limit). Under
// pss a page shared by four workers counts a quarter in each, so RssFile per
// byte counted is up to the number of workers and lets the budget be as large
// as the limit really allows. Libraries, which all share, tell nothing about data.
// Rounded down to 1/16 of itself, so that it is not written at every tick; at least
// [BudgetFloor].
func Budget(in BudgetInput) (budget rss.Bytes, changed bool) {
	n := rss.Bytes(len(in.Workers))
	if n == 0 || in.Limit.Limit == 0 || !countsMapped(in.Limit.Accounting) {
		return 0, in.Last != 0
	}
	pss := in.Limit.Accounting == event.AccountingPSS
	var kept, data, most, sure, read rss.Bytes
	for _, w := range in.Workers {
		own := w.Mapped.Sub(w.Kept)
		kept, data = kept+min(w.Kept, w.Mapped), data+own
		most += min(w.CountedMapped.Sub(w.CountedKept), own)
		sure += min(w.CountedSure.Sub(w.CountedKept), own)
		read += w.CountedSure
	}
	shared := 1.0 // RssFile per byte counted
	switch {
	case !pss:
		sure = most
	case read == 0:
		return in.Last, false // how much of it counts is not known yet
	default:
		shared = min(max(1, data.Of(most)), float64(n))
	}
	rest := max(in.Limit.Used.Sub(sure), in.Rest)
	margin := max(in.Limit.Limit.Scale(budgetReserve), (n * in.Overshoot).Scale(1/shared))
	share := kept/n + (in.Rung.Sub(rest).Sub(margin) / n).Scale(shared)
	budget = max(neatDown(share), BudgetFloor)
	if in.Last == 0 {
		return budget, true
	}
	change := max(budget, in.Last) - min(budget, in.Last)
	if change.Of(in.Last) < budgetStep {
		return in.Last, false
	}
	return budget, true
}

// countsMapped says whether trimming mapped file pages lowers that accounting.
func countsMapped(a event.Accounting) bool {
	return a == event.AccountingRSS || a == event.AccountingPSS
}

// neatDown rounds down to the four leading bits.
func neatDown(b rss.Bytes) rss.Bytes {
	step := rss.Bytes(1)
	for b/step >= 16 {
		step *= 2
	}
	return b / step * step
}
