package workers

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	// budgetFloor is the least budget: a worker that trims itself more often
	// than every 32 MiB does little else.
	budgetFloor = 32 * rss.MiB
	// budgetReserve is the part of the limit kept free below the rung for what
	// grows between two revisions: anonymous memory of trainer and workers.
	budgetReserve = 0.10
	// assumedWorkers is for how many workers the first budget leaves room, before any
	// loader has said how many it has: they may outgrow a limit within the second in
	// which they are first seen.
	assumedWorkers = 8
	// budgetStep is by how much a budget must change to be written again.
	budgetStep = 0.10
)

type Bound struct {
	Limit event.Limit
	Rung  rss.Bytes // the use to stay below, that of trim
	// Rest is the least that is used beside what workers have mapped, 0 where that is not
	// known: what is certain of a sum of PSS may have less of both in it.
	Rest rss.Bytes
}

// Budget returns how many bytes of mapped file pages each worker may hold under all of the
// bounds, 0 for none, with the rung that asks for it and the number of workers known; last
// is the budget that they have.
func (w *Workers) Budget(bounds []Bound, last rss.Bytes) (each, rung rss.Bytes, known int) {
	for _, b := range bounds {
		workers := w.Mappers(b.Limit.Accounting)
		n := len(workers)
		if n == 0 {
			workers = make([]Usage, assumedWorkers)
		}
		if one := budget(b, workers, last); one != 0 && (each == 0 || one < each) {
			each, rung, known = one, b.Rung, n
		}
	}
	return each, rung, known
}

// budget returns how many bytes of mapped file pages (RssFile) each worker may hold before it
// trims itself: last where little differs from that, 0 where the limit does not count mapped
// file pages or there is no worker. Under pss what stands is left until the workers' PSS was
// read.
//
//	rest   = used − what trims would take of the workers' mapped pages, as the limit counts it
//	margin = 10 % of the limit
//	budget = what trims leave, and (rung − rest − margin) / workers, times RssFile per byte counted
//
// The margin lies below the rung. What may go wrong at once is that every worker overshoots
// (covered by it) while anonymous memory grows (covered by the 15 % between the default rung
// and the limit). Under pss a page shared by four workers counts a quarter in each, so
// RssFile per byte counted is up to the number of workers. Libraries, which all share, tell
// nothing about data. Rounded down to its four leading bits, so that it is not written at
// every tick.
func budget(in Bound, workers []Usage, last rss.Bytes) rss.Bytes {
	n := rss.Bytes(len(workers))
	if n == 0 || in.Limit.Limit == 0 || !event.ActionTrim.Fits(&in.Limit).OK {
		return 0
	}
	var kept, data, most, sure, read rss.Bytes
	for _, w := range workers {
		own := w.Mapped.Sub(w.Kept)
		kept, data = kept+min(w.Kept, w.Mapped), data+own
		most += min(w.CountedMapped.Sub(w.CountedKept), own)
		sure += min(w.CountedSure.Sub(w.CountedKept), own)
		read += w.CountedSure
	}
	shared := 1.0 // RssFile per byte counted
	switch {
	case in.Limit.Accounting != event.AccountingPSS:
		sure = most
	case read == 0:
		return last // how much of it counts is not known yet
	default:
		shared = min(max(1, data.Of(most)), float64(n))
	}
	rest := max(in.Limit.Used.Sub(sure), in.Rest)
	share := kept/n + (in.Rung.Sub(rest).Sub(in.Limit.Limit.Scale(budgetReserve)) / n).Scale(shared)
	each := max(neatDown(share), budgetFloor)
	if change := max(each, last) - min(each, last); last != 0 && change.Of(last) < budgetStep {
		return last
	}
	return each
}

// neatDown rounds down to the four leading bits.
func neatDown(b rss.Bytes) rss.Bytes {
	step := rss.Bytes(1)
	for b/step >= 16 {
		step *= 2
	}
	return b / step * step
}
