package policy

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fourWorkers maps so many MiB in each of four workers of 114 MiB anon.
func fourWorkers(mapped, counted rss.Bytes) []Worker {
	w := make([]Worker, 4)
	for i := range w {
		w[i] = Worker{
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
		in   BudgetInput
		want rss.Bytes
	}{
		// rest 700; (2550 − 700 − 300) / 4 = 387.5, to the four leading bits
		{"nothing mapped yet", BudgetInput{Limit: limit(event.AccountingRSS, 700), Workers: fourWorkers(0, 0)}, 384 * rss.MiB},
		{"mapped pages are no part of the rest", BudgetInput{Limit: limit(event.AccountingRSS, 1900), Workers: fourWorkers(300, 300)}, 384 * rss.MiB},
		// margin 4 × 285; (2550 − 700 − 1140) / 4 = 177.5
		{"with the overshoot of a batch", BudgetInput{Limit: limit(event.AccountingRSS, 1900), Workers: fourWorkers(300, 300), Overshoot: 285 * rss.MiB}, 176 * rss.MiB},
		{"no room", BudgetInput{Limit: limit(event.AccountingRSS, 2900), Workers: fourWorkers(0, 0)}, BudgetFloor},
		// Four share the same pages: 1200 counts as 300; 4 × 387.5 = 1550
		{"pss of shared pages", BudgetInput{Limit: limit(event.AccountingPSS, 1000), Workers: fourWorkers(300, 75)}, 1536 * rss.MiB},
		{"pss of private pages", BudgetInput{Limit: limit(event.AccountingPSS, 1900), Workers: fourWorkers(300, 300)}, 384 * rss.MiB},
		// The overshoot of a page that four share counts a quarter too.
		{"pss with the overshoot of a batch", BudgetInput{Limit: limit(event.AccountingPSS, 1000), Workers: fourWorkers(300, 75), Overshoot: 285 * rss.MiB}, 1536 * rss.MiB},
		{"noshared does not count them", BudgetInput{Limit: limit(event.AccountingNoShared, 700), Workers: fourWorkers(300, 0)}, 0},
		{"nor does a cgroup", BudgetInput{Limit: limit(event.AccountingCgroup, 700), Workers: fourWorkers(300, 0)}, 0},
		{"nor does virtual memory shrink", BudgetInput{Limit: limit(event.AccountingVirtual, 700), Workers: fourWorkers(300, 0)}, 0},
		{"no worker", BudgetInput{Limit: limit(event.AccountingRSS, 700)}, 0},
		{"no limit", BudgetInput{Limit: event.Limit{Accounting: event.AccountingRSS}, Workers: fourWorkers(1, 1)}, 0},
	} {
		c.in.Rung = rung
		got, changed := Budget(c.in)
		if got != c.want || changed != (c.want != 0) {
			t.Errorf("%s: %v, %v; want %v", c.what, got, changed, c.want)
		}
	}
}

func TestBudgetIsNotRevisedForLittle(t *testing.T) {
	in := BudgetInput{
		Limit:   event.Limit{Accounting: event.AccountingRSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:    2550 * rss.MiB,
		Workers: fourWorkers(0, 0),
	}
	in.Last, _ = Budget(in)
	written := 0
	for used := 700 * rss.MiB; used < 1500*rss.MiB; used += rss.MiB {
		in.Limit.Used = used
		b, changed := Budget(in)
		if changed != (b != in.Last) {
			t.Fatalf("at %v: budget %v after %v, changed %v", used, b, in.Last, changed)
		}
		if changed {
			written++
			in.Last = b
		}
	}
	if written == 0 || written > 10 {
		t.Errorf("written %d times while the rest doubled", written)
	}
	in.Workers = nil
	if b, changed := Budget(in); b != 0 || !changed {
		t.Errorf("without workers %v, %v; want it taken back", b, changed)
	}
}

// Whatever the mix, all workers at their budget and one batch beyond stay below
// the rung, as long as the floor leaves a choice.
func TestBudgetKeepsBelowTheRung(t *testing.T) {
	for limit := 500 * rss.MiB; limit < 64*rss.GiB; limit = limit * 3 / 2 {
		for n := 1; n <= 32; n *= 2 {
			for _, over := range []rss.Bytes{0, 40 * rss.MiB, 285 * rss.MiB} {
				rest := limit / 4
				in := BudgetInput{
					Limit:   event.Limit{Accounting: event.AccountingRSS, Used: rest, Limit: limit},
					Rung:    limit.Scale(0.85),
					Workers: make([]Worker, n), Overshoot: over,
				}
				b, _ := Budget(in)
				if most := rest + rss.Bytes(n)*(b+over); b > BudgetFloor && most > in.Rung {
					t.Errorf("limit %v, %d workers, overshoot %v: budget %v reaches %v, rung %v", limit, n, over, b, most, in.Rung)
				}
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
		in := BudgetInput{
			Limit: event.Limit{Accounting: event.AccountingPSS, Used: c.used * rss.MiB, Limit: 3000 * rss.MiB},
			Rung:  2550 * rss.MiB, Workers: fourWorkers(20+c.data, 0),
		}
		for i := range in.Workers {
			w := &in.Workers[i]
			w.Kept, w.CountedKept = kept, counted
			w.CountedMapped, w.CountedSure = counted+c.most*rss.MiB, counted+c.sure*rss.MiB
		}
		if b, _ := Budget(in); b < c.left*rss.MiB || b > c.right*rss.MiB {
			t.Errorf("%s: %v, want %d to %d MiB", c.what, b, c.left, c.right)
		}
	}
}

// What is certain of a sum of PSS may be far from it where much is mapped: what is
// anonymous is known all the same, and leaves no room that is not there.
func TestBudgetOfTheLeastRest(t *testing.T) {
	in := BudgetInput{
		Limit: event.Limit{Accounting: event.AccountingPSS, Used: 1500 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:  2550 * rss.MiB, Workers: fourWorkers(300, 250),
	}
	unknown, _ := Budget(in) // 500 beside
	in.Rest = 1450 * rss.MiB
	if b, _ := Budget(in); b < 190*rss.MiB || b > 240*rss.MiB || unknown < 2*b { // (2550 − 1450 − 300) / 4, shared by 1.2
		t.Errorf("%v, and %v where the rest is not known", b, unknown)
	}
}

// What mapped pages count under pss is known once it was read.
func TestBudgetWaitsForPSS(t *testing.T) {
	in := BudgetInput{
		Limit:   event.Limit{Accounting: event.AccountingPSS, Used: 700 * rss.MiB, Limit: 3000 * rss.MiB},
		Rung:    2550 * rss.MiB,
		Workers: fourWorkers(300, 0),
	}
	for _, in.Last = range []rss.Bytes{0, 512 * rss.MiB} {
		if b, changed := Budget(in); b != in.Last || changed {
			t.Errorf("%v became %v, %v", in.Last, b, changed)
		}
	}
}
