package analysis

import (
	"fmt"
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
