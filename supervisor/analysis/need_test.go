package analysis

import (
	"fmt"
	"slices"
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

func TestGrowth(t *testing.T) {
	const n = 200
	for _, c := range []struct {
		what           string
		at             func(x float64) float64 // GiB
		still, slowing bool
	}{
		{"flat", func(float64) float64 { return 4 }, false, false},
		{"falls", func(x float64) float64 { return 4 - x }, false, false},
		{"starts up", func(x float64) float64 { return min(4, 40*x) }, false, false},
		{"linear", func(x float64) float64 { return 2 + 2*x }, true, false},
		{"faster and faster", func(x float64) float64 { return 2 + 2*x*x }, true, false},
		{"slows", func(x float64) float64 { return 4 - 2/(1+6*x) }, true, true},
		{"a saw that rises", func(x float64) float64 { return 2 + 2*x + 0.5*float64(int(x*60)%3) }, true, false},
		{"a saw that does not", func(x float64) float64 { return 2 + 0.5*float64(int(x*60)%3) }, false, false},
		{"one jump", func(x float64) float64 { return 2 + 2*float64(int(x*1.1)) }, false, false},
		{"by little", func(x float64) float64 { return 2 + 0.05*x }, false, false},
	} {
		var s course
		for i := range n {
			s.add(time.Duration(i)*30*time.Second, rss.GiB.Scale(c.at(float64(i)/n)))
		}
		g, ok := s.Growth()
		if !ok || g.Still != c.still || g.Slowing != c.slowing {
			t.Errorf("%s: %+v, %v", c.what, g, ok)
		}
	}
	var back course
	for _, at := range []time.Duration{time.Hour, time.Minute, 2 * time.Hour, -time.Hour} {
		back.add(at, rss.GiB)
	}
	if back.span() != time.Hour {
		t.Errorf("readings that go back span %v", back.span())
	}
	var few course
	for i := range 5 {
		few.add(time.Duration(i)*time.Minute, rss.Bytes(i)*rss.GiB)
	}
	if _, ok := few.Growth(); ok {
		t.Error("a growth from 5 readings")
	}
}

func TestSpark(t *testing.T) {
	for _, length := range []time.Duration{time.Second, time.Minute, time.Hour, 1000 * time.Hour} {
		var s spark
		for i := range 1000 {
			s.add(time.Duration(i)*length/1000, float64(i)/1000)
		}
		got := s.stretches(length)
		for i := range got {
			want := float64(i+1) / sparkStretches
			if length >= time.Minute && (got[i] < want-0.03 || got[i] > want+0.003) {
				t.Fatalf("%v: stretch %d is %.3f, want %.3f", length, i, got[i], want)
			}
		}
	}
	var s spark
	s.add(0, 1)
	s.add(time.Hour, 0.5)
	if got := s.stretches(time.Hour); got[0] != 1 || got[20] != -1 || got[39] != 0.5 {
		t.Errorf("with a gap: %v", got)
	}
}

// TestRaiseCell: cells that are joined keep the higher value, and a hole stays one.
func TestRaiseCell(t *testing.T) {
	var cells []int64
	step := time.Second
	for _, c := range []struct {
		at   time.Duration
		v    int64
		want []int64
		step time.Duration
	}{
		{0, 5, []int64{5}, time.Second},
		{900 * time.Millisecond, 3, []int64{5}, time.Second},
		{3 * time.Second, 7, []int64{5, -1, -1, 7}, time.Second},
		{4 * time.Second, 1, []int64{5, 7, 1}, 2 * time.Second},
		{time.Second, 9, []int64{9, 7, 1}, 2 * time.Second},
		{6 * time.Second, 0, []int64{9, 7, 1, 0}, 2 * time.Second},
		{8 * time.Second, 2, []int64{9, 1, 2}, 4 * time.Second},
		{time.Minute, 4, []int64{9, -1, -1, 4}, 16 * time.Second},
	} {
		if cells, step = raiseCell(cells, step, c.at, 4, c.v); !slices.Equal(cells, c.want) || step != c.step {
			t.Errorf("at %v: %v each %v, want %v each %v", c.at, cells, step, c.want, c.step)
		}
	}
}
