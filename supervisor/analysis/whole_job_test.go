package analysis

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestNeed: what two minutes of a training say of the whole job, in MiB.
func TestNeed(t *testing.T) {
	const mib = rss.MiB
	flat := func(v rss.Bytes) Growth {
		return Growth{Thirds: [3]rss.Bytes{v * mib, v * mib, v * mib}, Third: 40 * time.Second}
	}
	rising := func(a, b, c rss.Bytes) Growth {
		return Growth{Thirds: [3]rss.Bytes{a * mib, b * mib, c * mib}, Third: 40 * time.Second, Still: true, Creeps: true}
	}
	base := NeedFacts{Accounting: event.AccountingRSS, Took: 2 * time.Minute, Seen: 100 * time.Second, Workers: 3, Each: 400 * mib,
		Peak: 1500 * mib, OwnPeak: 600 * mib, Own: flat(600), Anon: flat(600), Files: flat(900), Private: 700 * mib, Mapped: 1500 * mib, Grows: rss.RoleTrainer}
	for name, c := range map[string]struct {
		set       func(*NeedFacts)
		low, high rss.Bytes
		open      NeedOpen
		with      [2]rss.Bytes
		none      bool
	}{
		"mapped, it is not known how much": {set: func(f *NeedFacts) { f.Files, f.Mapped = rising(300, 600, 900), 0 }, low: 1455, open: NeedFiles, with: [2]rss.Bytes{600, 818}},
		"too short":                        {set: func(f *NeedFacts) { f.Took = time.Minute }, none: true},
		"workers came late":                {set: func(f *NeedFacts) { f.Seen = 20 * time.Second }, low: 1455, open: NeedShort},
		"all read":                         {set: func(f *NeedFacts) {}, low: 1455, high: 1650, with: [2]rss.Bytes{600, 818}},
		"nearly all read":                  {set: func(f *NeedFacts) { f.Files, f.Mapped = rising(500, 800, 900), 1800*mib }, low: 1455, high: 1875, with: [2]rss.Bytes{600, 818}},
		"half read":                        {set: func(f *NeedFacts) { f.Files, f.Mapped = rising(300, 600, 900), 3000*mib }, low: 1455, high: 3075, open: NeedFiles, with: [2]rss.Bytes{600, 818}},
		"in order, a part for each":        {set: func(f *NeedFacts) { f.Mapped = 3000 * mib }, low: 1455, high: 1650, with: [2]rss.Bytes{600, 818}},
		"trims hid it":                     {set: func(f *NeedFacts) { f.Mapped, f.Trims = 3000*mib, true }, low: 1455, high: 3075, open: NeedTrimmed, with: [2]rss.Bytes{600, 818}},
		"a leak in the trainer":            {set: func(f *NeedFacts) { f.Own = rising(400, 500, 600) }, low: 1455, open: NeedGrows},
		"a leak in workers":                {set: func(f *NeedFacts) { f.Own, f.Grows = rising(400, 500, 600), rss.RoleWorker }, low: 1455, open: NeedGrows, with: [2]rss.Bytes{400, 583}},
		"recycled":                         {set: func(f *NeedFacts) { f.Hidden = true }, low: 1455, open: NeedRecycled, with: [2]rss.Bytes{600, 818}},
		"a cgroup: no pages of files":      {set: func(f *NeedFacts) { f.Accounting, f.Peak, f.Mapped = event.AccountingCgroup, 600*mib, 0 }, low: 582, high: 660},
		"copies begin": {set: func(f *NeedFacts) {
			f.Accounting, f.Own, f.Peak, f.Private = event.AccountingPSS, rising(400, 500, 600), 700*mib, 1800*mib
			f.Mapped = 0
		}, low: 679, high: 1935, open: NeedCopies, with: [2]rss.Bytes{400, 584}},
		"nearly all is copied": {set: func(f *NeedFacts) {
			f.Accounting, f.Own, f.Peak, f.Private = event.AccountingPSS, rising(400, 500, 600), 700*mib, 750*mib
			f.Mapped = 0
		}, low: 679, high: 885, with: [2]rss.Bytes{400, 584}},
		"all that is used is copied": {set: func(f *NeedFacts) {
			f.Accounting, f.Peak, f.Private = event.AccountingPSS, 700*mib, 1800*mib
			f.Mapped = 0
		}, low: 679, high: 770},
		"a leak in what PSS counts": {set: func(f *NeedFacts) {
			f.Accounting, f.Own, f.Anon = event.AccountingPSS, rising(400, 500, 600), rising(500, 600, 700)
		}, low: 1455, open: NeedGrows},
	} {
		f := base
		c.set(&f)
		n := f.Need()
		if n == nil || c.none {
			if (n == nil) != c.none {
				t.Errorf("%s: %+v", name, n)
			}
			continue
		}
		near := func(got, want rss.Bytes) bool { return max(got/mib, want)-min(got/mib, want) <= 1 }
		with := MemRange{}
		if n.With != nil {
			with = *n.With
		}
		if !near(n.Without.Low, c.low) || !near(n.Without.High, c.high) || n.Open != c.open || !near(with.Low, c.with[0]) || !near(with.High, c.with[1]) {
			t.Errorf("%s: without %v to %v, %q, with %v; want %d to %d, %q, %v", name, n.Without.Low, n.Without.High, n.Open, with, c.low, c.high, c.open, c.with)
		}
		if n.Open == "" && n.Without.Wide() {
			t.Errorf("%s: too wide: %v", name, n.Without)
		}
	}
	// 100 MiB in 40 s.
	f := base
	f.Own = rising(400, 500, 600)
	if n := f.Need(); n.Rate/rss.KiB != 2560 {
		t.Errorf("%v a second", n.Rate)
	}
}

// TestCreeps: growth that is small beside what there is, and noise.
func TestCreeps(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(s int) rss.Bytes
		want bool
	}{
		"flat":                 {func(int) rss.Bytes { return 50 * rss.GiB }, false},
		"0.2 MiB a second":     {func(s int) rss.Bytes { return 50*rss.GiB + rss.Bytes(s)*rss.MiB/5 }, true},
		"noise":                {func(s int) rss.Bytes { return 50*rss.GiB + rss.Bytes(s*7919%64)*rss.MiB }, false},
		"growth in a sawtooth": {func(s int) rss.Bytes { return rss.GiB + rss.Bytes(s+s*13%40)*rss.MiB }, true},
		"a start that ends":    {func(s int) rss.Bytes { return rss.Bytes(min(s, 30)) * rss.GiB }, false},
	} {
		var course course
		for s := range 120 {
			course.add(time.Duration(s)*time.Second, c.of(s))
		}
		if got := course.creeps(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestWithoutActions: what was given back again and again counts once, in MiB.
func TestWithoutActions(t *testing.T) {
	recycles := event.Saved{Recycled: 9, Actions: []event.ActionSum{{Action: event.ActionRecycle, Freed: 4000 * rss.MiB}}}
	gc := event.Saved{Actions: []event.ActionSum{{Action: event.ActionGC, Freed: 300 * rss.MiB}}}
	most := event.Limit{Used: 900 * rss.MiB, UsedMax: 1000 * rss.MiB}
	for name, c := range map[string]struct {
		saved *event.Saved
		grown rss.Bytes
		known bool
		want  rss.Bytes
	}{
		"trims alone":             {&event.Saved{}, 0, true, 900},
		"collections":             {&gc, 0, true, 1200},
		"recycles":                {&recycles, 500, true, 1500},
		"recycles, growth unseen": {&recycles, 0, false, 4900},
	} {
		if got := WithoutActions(&most, c.saved, c.grown*rss.MiB, c.known); got != c.want*rss.MiB {
			t.Errorf("%s: %v, want %d MiB", name, got, c.want)
		}
	}
}
