package analysis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
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
	var b strings.Builder
	for _, c := range []struct {
		name string
		set  func(f *NeedFacts)
	}{
		{"mapped, it is not known how much", func(f *NeedFacts) { f.Files, f.Mapped = rising(300, 600, 900), 0 }},
		{"too short", func(f *NeedFacts) { f.Took = time.Minute }},
		{"workers came late", func(f *NeedFacts) { f.Seen = 20 * time.Second }},
		{"all read", func(f *NeedFacts) {}},
		{"nearly all read", func(f *NeedFacts) { f.Files, f.Mapped = rising(500, 800, 900), 1800*mib }},
		{"half read", func(f *NeedFacts) { f.Files, f.Mapped = rising(300, 600, 900), 3000*mib }},
		{"in order, a part for each", func(f *NeedFacts) { f.Mapped = 3000 * mib }},
		{"trims hid it", func(f *NeedFacts) { f.Mapped, f.Trims = 3000*mib, true }},
		{"a leak in the trainer", func(f *NeedFacts) { f.Own = rising(400, 500, 600) }},
		{"a leak in workers", func(f *NeedFacts) { f.Own, f.Grows = rising(400, 500, 600), rss.RoleWorker }},
		{"recycled", func(f *NeedFacts) { f.Hidden = true }},
		{"a cgroup: no pages of files", func(f *NeedFacts) { f.Accounting, f.Peak, f.Mapped = event.AccountingCgroup, 600*mib, 0 }},
		{"copies begin", func(f *NeedFacts) {
			f.Accounting, f.Own, f.Peak, f.Private = event.AccountingPSS, rising(400, 500, 600), 700*mib, 1800*mib
			f.Mapped = 0
		}},
		{"nearly all is copied", func(f *NeedFacts) {
			f.Accounting, f.Own, f.Peak, f.Private = event.AccountingPSS, rising(400, 500, 600), 700*mib, 750*mib
			f.Mapped = 0
		}},
		{"all that is used is copied", func(f *NeedFacts) {
			f.Accounting, f.Peak, f.Private = event.AccountingPSS, 700*mib, 1800*mib
			f.Mapped = 0
		}},
		{"a leak in what PSS counts", func(f *NeedFacts) {
			f.Accounting, f.Own, f.Anon = event.AccountingPSS, rising(400, 500, 600), rising(500, 600, 700)
		}},
	} {
		f := base
		c.set(&f)
		n := f.Need()
		if n == nil {
			fmt.Fprintf(&b, "%s: nothing\n", c.name)
			continue
		}
		fmt.Fprintf(&b, "%s: without %v to %v", c.name, n.Without.Low, n.Without.High)
		if n.With != nil {
			fmt.Fprintf(&b, ", with %v to %v", n.With.Low, n.With.High)
		}
		fmt.Fprintf(&b, ", grows %v a second, %q\n", n.Rate, n.Open)
		if n.Open == "" && n.Without.Wide() {
			t.Errorf("%s: too wide: %v", c.name, n.Without)
		}
	}
	golden.Check(t, "testdata/need.txt", b.String())
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
