package analysis

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestPeakBetweenSamples: the maximum that a run reported at its end is its limit's peak
// of, though no sample has so much.
func TestPeakBetweenSamples(t *testing.T) {
	r := scenetest.Made{ID: "a", Limit: scenetest.SlurmRSS(8), Trainer: scenetest.Steady(4, 0, 0), Exit: scenetest.Ended(0, event.RunOK)}.Run()
	r.Exit().Binding.Used = 5 * rss.GiB
	if l := build([]*record.Run{r}, nil, scenetest.Noon).Limits[0]; l.Used != 5*rss.GiB || l.UsedMax < l.Used {
		t.Errorf("%+v", l)
	}
}

// BenchmarkPage is of a day of 64 processes at a sample a second, with what is drawn.
func BenchmarkPage(b *testing.B) {
	d := scenetest.DayRun()
	d.Workers = 61
	r := d.Build()
	for b.Loop() {
		if rep := Analyze(Input{Runs: []*record.Run{r}, Now: scenetest.Noon, Timeline: true}); len(rep.Timeline.Runs) != 1 {
			b.Fatal(rep.Verdict)
		}
	}
}

// TestRanksOfOneRecord: ranks whose processes are counted beside the leader's tree
// have their sums too, and one node has a table of them.
func TestRanksOfOneRecord(t *testing.T) {
	for _, beside := range []bool{false, true} {
		d := scenetest.OnNode(1)
		d.Nodes, d.Beside = 1, beside
		rep := build(scenetest.Built(d), nil, scenetest.Noon)
		if len(rep.Ranks) != 2 || rep.Ranks[1].Peak == nil || *rep.Ranks[1].Peak < 2**rep.Ranks[0].Peak-rss.MiB || rep.Ranks[1].Workers != 2 || rep.Ranks[1].Comm != "python" {
			t.Errorf("beside %v: %+v", beside, rep.Ranks)
		}
		if rep.Unrecorded != 0 {
			t.Errorf("%d nodes without a record", rep.Unrecorded)
		}
	}
	if rep := build([]*record.Run{scenetest.CarriedRun()}, nil, scenetest.Noon); rep.Several() || rep.Ranks != nil {
		t.Errorf("one run of one rank: %+v", rep.MultiNode)
	}
}

func build(runs []*record.Run, said *SlurmSays, now time.Time) *Result {
	return Analyze(Input{Runs: runs, Slurm: said, Now: now})
}

func series(runs []*record.Run) Timeline {
	return *Analyze(Input{Runs: runs, Now: scenetest.Noon, Timeline: true}).Timeline
}

// TestAlignClocks: where the time of day was set between two records of one boot, the
// monotonic clock says how far apart they are; of other boots and other time
// namespaces it says nothing.
func TestOneClock(t *testing.T) {
	at := func(node, boot string, wall, mono time.Duration) *record.Run {
		return &record.Run{Meta: record.Meta{ID: fmt.Sprint(wall, mono), Node: node, BootID: boot, Start: scenetest.Noon.Add(wall), Mono: mono}}
	}
	for _, test := range []struct {
		name string
		runs []*record.Run
		want []time.Duration // starts
	}{
		{"set back by a minute between", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", -30*time.Second, time.Hour+30*time.Second)}, []time.Duration{-time.Minute, -30 * time.Second}},
		{"nothing set", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "b", 30*time.Second, time.Hour+30*time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"another boot", []*record.Run{at("n1", "b", 0, time.Hour), at("n1", "c", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another node", []*record.Run{at("n1", "b", 0, time.Hour), at("n2", "b", 30*time.Second, time.Minute)}, []time.Duration{0, 30 * time.Second}},
		{"another time namespace", []*record.Run{at("n1", "b", 0, 100*time.Hour), at("n1", "b", 30*time.Second, time.Second)}, []time.Duration{0, 30 * time.Second}},
		{"not known", []*record.Run{at("n1", "b", 0, 0), at("n1", "b", 30*time.Second, time.Minute), nil}, []time.Duration{0, 30 * time.Second}},
	} {
		var got []time.Duration
		for _, r := range AlignClocks(test.runs) {
			if r != nil {
				got = append(got, r.Meta.Start.Sub(scenetest.Noon))
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if test.runs[0].Meta.Start != scenetest.Noon {
			t.Errorf("%s: the run itself was changed", test.name)
		}
	}
}

// TestLastRole: a process whose role is known later counts under that alone, in what limits count.
func TestLastRole(t *testing.T) {
	b := record.NewBuilder(record.Meta{ID: "run"})
	b.Limit(event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingNoShared})
	for _, role := range []rss.Role{rss.RoleOther, rss.RoleTrainer} {
		b.Proc(record.Proc{ID: rss.ProcID{PID: 7, Start: 1}, Comm: "python", Role: role})
	}
	for i := range 2 {
		b.Sample(&record.Sample{At: time.Duration(i) * time.Second, Procs: []record.Usage{{Proc: i, Anon: rss.GiB, File: rss.MiB}},
			Limits: []record.Reading{{Used: rss.GiB, Size: 2 * rss.GiB, ETA: -1}}})
	}
	rep := Analyze(Input{Runs: []*record.Run{b.Run()}, Timeline: true})
	if len(rep.Roles) != 1 || rep.Roles[0].Role != rss.RoleTrainer {
		t.Errorf("roles %+v", rep.Roles)
	}
	if held := rep.Limits[0].Held; len(held) != 1 || held[0] != (Held{rss.RoleTrainer, 1, rss.GiB}) {
		t.Errorf("held %+v", held)
	}
	if procs := rep.Timeline.Runs[0].Procs; len(procs) != 1 || procs[0].Proc.Role != rss.RoleTrainer {
		t.Errorf("processes %+v", procs)
	}
}

// TestLeft: when the job ends, by how much it had left at moments of the run.
func TestLeft(t *testing.T) {
	type reading struct {
		at   time.Duration
		left float64
	}
	for name, test := range map[string]struct {
		readings []reading
		want     time.Duration // after the start; negative for not known
	}{
		"not known":                {[]reading{{0, -1}, {time.Second, -1}}, -1},
		"known":                    {[]reading{{0, -1}, {10 * time.Second, 50}}, time.Minute},
		"moved":                    {[]reading{{10 * time.Second, 50}, {20 * time.Second, 100}}, 2 * time.Minute},
		"the run outlives it":      {[]reading{{10 * time.Second, 50}, {70 * time.Second, 0}, {90 * time.Second, 0}}, time.Minute},
		"moved to before the look": {[]reading{{10 * time.Second, 500}, {70 * time.Second, 0}, {90 * time.Second, 0}}, 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			k := &RunScan{Run: scenetest.Scene{}.Run()}
			for _, r := range test.readings {
				k.left(r.at, r.left)
			}
			want := scenetest.Noon.Add(test.want)
			if test.want < 0 {
				want = time.Time{}
			}
			if !k.JobEnd.Equal(want) {
				t.Errorf("the job ends at %v, want %v", k.JobEnd, want)
			}
		})
	}
}

// TestOneDecode: each run is decoded once, for a text and for a page.
func TestOneDecode(t *testing.T) {
	of := samplesOf
	defer func() { samplesOf = of }()
	var times atomic.Int64
	samplesOf = func(r *record.Run) iter.Seq[*record.Sample] {
		times.Add(1)
		return of(r)
	}
	runs := scenetest.Ranks()
	for _, draw := range []bool{false, true} {
		times.Store(0)
		if rep := Analyze(Input{Runs: runs, Now: scenetest.Noon, Timeline: draw}); len(rep.Scanned) == 0 || (rep.Timeline != nil) != draw {
			t.Errorf("%d scans, timeline %v", len(rep.Scanned), rep.Timeline != nil)
		}
		if n := times.Load(); n != int64(len(runs)) {
			t.Errorf("timeline %v: %d runs were decoded %d times", draw, len(runs), n)
		}
	}
}

// TestSeriesKeepsPeaks: whatever is left out, the most that was ever used is not.
func TestSeriesKeepsPeaks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		b := record.NewBuilder(record.Meta{Node: "n", Start: scenetest.Dawn})
		p := b.Proc(record.Proc{Role: rss.RoleTrainer})
		l := b.Limit(event.Limit{Name: event.LimitCgroup})
		n := 2000 + rnd.IntN(60000)
		spike, dip := rnd.IntN(n), rnd.IntN(n)
		for i := range n {
			v := rss.GiB + rss.Bytes(rnd.IntN(1<<28))
			switch i {
			case spike:
				v = 7 * rss.GiB
			case dip:
				v = rss.MiB
			}
			b.Sample(&record.Sample{At: time.Duration(i) * time.Second, Procs: []record.Usage{{Proc: p, Anon: v}},
				Limits: []record.Reading{{Limit: l, Used: v, UsedMax: v + rss.MiB, Size: 8 * rss.GiB, ETA: -1}}})
		}
		tl := series([]*record.Run{b.Run()})
		level := &tl.Runs[0].Levels[0]
		top, low, most, sum := int64(0), int64(1)<<60, int64(0), int64(0)
		for k := range level.Sum {
			x := level.Limits[0]
			top, low, most, sum = max(top, x[LimitUsed][k]), min(low, x[LimitLow][k]), max(most, x[LimitMost][k]), max(sum, level.Sum[k])
		}
		if top != 7<<20 || most != 7<<20+1024 || sum != 7<<20 || low != 1024 {
			t.Fatalf("round %d: %d samples, %d points of %v: used %d most %d low %d sum %d", round, n, len(level.Sum), level.Step, top, most, low, sum)
		}
		if tr := &tl.Runs[0].Procs[0]; tr.Peak != 7*rss.GiB || tr.PeakAt != time.Duration(spike)*time.Second || len(tr.RSS) > tracePoints {
			t.Fatalf("trace: peak %v at %v, %d points", tr.Peak, tr.PeakAt, len(tr.RSS))
		}
	}
}

// TestSeriesHalvesToItsBudget: a level that is too large keeps its peaks when
// points are joined.
func TestSeriesHalvesToItsBudget(t *testing.T) {
	r := scenetest.DrawnRun{Node: "n", Length: 2 * time.Hour, Every: time.Second, Workers: 4, Limit: 4 * rss.GiB, From: 0.3, To: 0.9}.Build()
	whole := series([]*record.Run{r})
	s := whole.Runs[0]
	seen := newSeriesScan(r, 1)
	scan(r, seen)
	bands, limits := seen.choose(&RunSeries{})
	small := fold(&seen.whole, 0, 2*time.Hour, time.Second, time.Minute).level(bands, limits, 0, 40<<10)
	if asJSON, err := json.Marshal(small); err != nil || len(asJSON) > 40<<10 {
		t.Errorf("%d bytes, %v", len(asJSON), err)
	}
	peak := func(v []int64) (top int64) {
		for _, x := range v {
			top = max(top, x)
		}
		return top
	}
	l := &s.Levels[0]
	if peak(small.Sum) != peak(l.Sum) || peak(small.Limits[0][LimitUsed]) != peak(l.Limits[0][LimitUsed]) {
		t.Errorf("peaks %d %d, want %d %d", peak(small.Sum), peak(small.Limits[0][LimitUsed]), peak(l.Sum), peak(l.Limits[0][LimitUsed]))
	}
	for k := range small.Sum {
		sum := int64(0)
		for _, b := range small.Bands {
			sum += b[BandAnon][k] + b[BandFile][k] + b[BandShmem][k]
		}
		if sum != small.Sum[k] {
			t.Fatalf("point %d: bands %d, sum %d: not of one sample", k, sum, small.Sum[k])
		}
	}
}

// TestSeriesGaps: nothing is drawn where nothing was sampled for long, and what
// was thinned is not taken for that.
func TestSeriesGaps(t *testing.T) {
	build := func(thinned bool) Level {
		b := record.NewBuilder(record.Meta{Start: scenetest.Dawn})
		p := b.Proc(record.Proc{Role: rss.RoleTrainer})
		for i := range 300 {
			if i > 100 && i <= 190 {
				continue
			}
			b.Sample(&record.Sample{At: time.Duration(i) * time.Second, Procs: []record.Usage{{Proc: p, Anon: rss.GiB}}})
		}
		r := b.Run()
		r.Thinned = thinned
		return series([]*record.Run{r}).Runs[0].Levels[0]
	}
	if l := build(false); len(l.Stretches) != 2 || l.Stretches[1].First != 191 {
		t.Errorf("stretches %v, want a gap of 90 s", l.Stretches)
	}
	if l := build(true); len(l.Stretches) != 1 {
		t.Errorf("stretches %v of a thinned run", l.Stretches)
	}
}

// TestLateSamplesLeaveNoGap: a run of a few seconds has less than one sample in each stretch
// of a sparkline, and under pressure a reading may take long.
func TestLateSamplesLeaveNoGap(t *testing.T) {
	for _, length := range []time.Duration{6 * time.Second, time.Minute} {
		b := record.NewBuilder(record.Meta{Start: scenetest.Dawn})
		p, l := b.Proc(record.Proc{Role: rss.RoleTrainer}), b.Limit(event.Limit{Name: event.LimitUser})
		for at := time.Duration(0); at <= length; at += time.Second {
			if at > 20*time.Second && at < 40*time.Second {
				continue
			}
			b.Sample(&record.Sample{At: at, Procs: []record.Usage{{Proc: p, Anon: rss.GiB}}, Limits: []record.Reading{{Limit: l, Used: rss.GiB, Size: 2 * rss.GiB, ETA: -1}}})
		}
		code := 0
		b.Event(record.Entry{At: length, Value: &event.Exit{By: "command", Code: &code}})
		r := b.Run()
		if s := series([]*record.Run{r}).Runs[0].Levels[0].Stretches; len(s) != 1 {
			t.Errorf("%v: stretches %v", length, s)
		}
		for i, v := range Analyze(Input{Runs: []*record.Run{r}}).Limits[0].Spark {
			if v < 0 {
				t.Errorf("%v: the sparkline is broken at %d", length, i)
			}
		}
	}
}
