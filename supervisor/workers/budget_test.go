package workers

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fourWorkers maps so many MiB in each of four workers of 114 MiB anon.
func fourWorkers(mapped, counted rss.Bytes) []Usage {
	w := make([]Usage, 4)
	for i := range w {
		w[i] = Usage{
			ID:     rss.ProcID{PID: 100 + i},
			Mapped: mapped * rss.MiB, CountedMapped: counted * rss.MiB, CountedSure: counted * rss.MiB, Counted: (114 + counted) * rss.MiB,
		}
	}
	return w
}

func TestBudget(t *testing.T) {
	limit := func(a event.Accounting, usedMiB rss.Bytes) event.Limit {
		return event.Limit{Name: event.LimitSlurm, Accounting: a, Used: usedMiB * rss.MiB, Limit: 3000 * rss.MiB}
	}
	const rung = 2550 * rss.MiB // 85 %
	for _, c := range []struct {
		what string
		of   event.Limit
		all  []Usage
		want rss.Bytes
	}{
		// rest 700; (2550 − 700 − 300) / 4 = 387.5, to the four leading bits
		{"nothing mapped yet", limit(event.AccountingRSS, 700), fourWorkers(0, 0), 384 * rss.MiB},
		{"mapped pages are no part of the rest", limit(event.AccountingRSS, 1900), fourWorkers(300, 300), 384 * rss.MiB},
		{"no room", limit(event.AccountingRSS, 2900), fourWorkers(0, 0), budgetFloor},
		// Four share the same pages: 1200 counts as 300; 4 × 387.5 = 1550
		{"pss of shared pages", limit(event.AccountingPSS, 1000), fourWorkers(300, 75), 1536 * rss.MiB},
		{"pss of private pages", limit(event.AccountingPSS, 1900), fourWorkers(300, 300), 384 * rss.MiB},
		{"noshared does not count them", limit(event.AccountingNoShared, 700), fourWorkers(300, 0), 0},
		{"nor does a cgroup", limit(event.AccountingCgroup, 700), fourWorkers(300, 0), 0},
		{"nor does virtual memory shrink", limit(event.AccountingVirtual, 700), fourWorkers(300, 0), 0},
		{"no worker", limit(event.AccountingRSS, 700), nil, 0},
		{"no limit", event.Limit{Accounting: event.AccountingRSS}, fourWorkers(1, 1), 0},
	} {
		if got := budget(Bound{Limit: c.of, Rung: rung}, c.all, 0); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestBudgetIsNotRevisedForLittle(t *testing.T) {
	in := Bound{
		Limit: event.Limit{Accounting: event.AccountingRSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:  2550 * rss.MiB,
	}
	workers := fourWorkers(0, 0)
	last := budget(in, workers, 0)
	written := 0
	for used := 700 * rss.MiB; used < 1500*rss.MiB; used += rss.MiB {
		in.Limit.Used = used
		if b := budget(in, workers, last); b != last {
			written++
			last = b
		}
	}
	if written == 0 || written > 10 {
		t.Errorf("written %d times while the rest doubled", written)
	}
	if b := budget(in, nil, last); b != 0 {
		t.Errorf("without workers %v; want it taken back", b)
	}
}

// Whatever the mix, all workers at their budget stay below the rung, as long as the floor leaves a choice.
func TestBudgetKeepsBelowTheRung(t *testing.T) {
	for limit := 500 * rss.MiB; limit < 64*rss.GiB; limit = limit * 3 / 2 {
		for n := 1; n <= 32; n *= 2 {
			rest := limit / 4
			in := Bound{Limit: event.Limit{Accounting: event.AccountingRSS, Used: rest, Limit: limit}, Rung: limit.Scale(0.85)}
			b := budget(in, make([]Usage, n), 0)
			if most := rest + rss.Bytes(n)*b; b > budgetFloor && most > in.Rung {
				t.Errorf("limit %v, %d workers: budget %v reaches %v, rung %v", limit, n, b, most, in.Rung)
			}
		}
	}
}

// Workers share their libraries, which tells nothing about the data that they map: until
// it was read what that counts, it counts in full.
func TestBudgetOfWhatLibrariesShare(t *testing.T) {
	const kept, counted = 20 * rss.MiB, 4 * rss.MiB
	for _, c := range []struct {
		what              string
		data, most, sure  rss.Bytes // of each, in MiB, beside its libraries
		used, left, right rss.Bytes // MiB; the budget is in between
	}{
		{"no data yet", 0, 0, 0, 1000, 300, 350},
		{"data not read yet", 100, 100, 0, 1000, 300, 350},
		{"data read, each has its own", 100, 100, 100, 1400, 300, 350},
		{"data read, all have the same", 100, 25, 25, 1100, 1100, 1400},
		{"read when there was less", 100, 63, 25, 1100, 480, 560},
	} {
		in := Bound{
			Limit: event.Limit{Accounting: event.AccountingPSS, Used: c.used * rss.MiB, Limit: 3000 * rss.MiB},
			Rung:  2550 * rss.MiB,
		}
		workers := fourWorkers(20+c.data, 0)
		for i := range workers {
			w := &workers[i]
			w.Kept, w.CountedKept = kept, counted
			w.CountedMapped, w.CountedSure = counted+c.most*rss.MiB, counted+c.sure*rss.MiB
		}
		if b := budget(in, workers, 0); b < c.left*rss.MiB || b > c.right*rss.MiB {
			t.Errorf("%s: %v, want %d to %d MiB", c.what, b, c.left, c.right)
		}
	}
}

// What is certain of a sum of PSS may be far from it where much is mapped: what is
// anonymous is known all the same, and leaves no room that is not there.
func TestBudgetOfTheLeastRest(t *testing.T) {
	in := Bound{
		Limit: event.Limit{Accounting: event.AccountingPSS, Used: 1500 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:  2550 * rss.MiB,
	}
	unknown := budget(in, fourWorkers(300, 250), 0) // 500 beside
	in.Rest = 1450 * rss.MiB
	if b := budget(in, fourWorkers(300, 250), 0); b < 190*rss.MiB || b > 240*rss.MiB || unknown < 2*b { // (2550 − 1450 − 300) / 4, shared by 1.2
		t.Errorf("%v, and %v where the rest is not known", b, unknown)
	}
}

// What mapped pages count under pss is known once it was read.
func TestBudgetWaitsForPSS(t *testing.T) {
	in := Bound{Limit: event.Limit{Accounting: event.AccountingPSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB}, Rung: 2550 * rss.MiB}
	for _, last := range []rss.Bytes{0, 512 * rss.MiB} {
		if b := budget(in, fourWorkers(300, 0), last); b != last {
			t.Errorf("%v became %v", last, b)
		}
	}
}

// TestBudgetOfSeveralLimits is the least of them, and before any loader has said how many
// workers it has, it leaves room for eight.
func TestBudgetOfSeveralLimits(t *testing.T) {
	bound := func(limit rss.Bytes) Bound {
		return Bound{Limit: event.Limit{Accounting: event.AccountingRSS, Limit: limit}, Rung: limit.Scale(0.85)}
	}
	w := New(Options{})
	each, rung, known := w.Budget([]Bound{bound(8 * rss.GiB), bound(4 * rss.GiB), {Limit: event.Limit{Accounting: event.AccountingCgroup}}}, 0)
	if each != 384*rss.MiB || rung != bound(4*rss.GiB).Rung || known != 0 {
		t.Errorf("%v below %v for %d", each, rung, known)
	}
	w = staffed(11, 12)
	if each, _, known := w.Budget([]Bound{bound(4 * rss.GiB)}, 0); each != 1536*rss.MiB || known != 2 {
		t.Errorf("%v for %d", each, known)
	}
}
