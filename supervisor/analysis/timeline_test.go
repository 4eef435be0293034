package analysis

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

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
