package analysis

import (
	"slices"
	"testing"
	"time"

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

// TestFormerVersions: a record whose run had options, rules and faults that no run
// has today is reported as any other.
func TestFormerVersions(t *testing.T) {
	r := scenetest.Scene{
		Job: scenetest.InJob(), Limits: []event.Limit{scenetest.LimitJob}, Length: scenetest.Minutes, Sizes: []rss.Bytes{scenetest.Mem}, Used: scenetest.Rising(scenetest.Minutes, scenetest.Mem, 0.2, 0.7),
		Events: []record.Entry{
			{Name: event.NameFault, Value: &event.Fault{Part: "guard-cgroup", Error: "cannot guard: the memory controller is cgroup v2"}},
			scenetest.Cure(0, event.RemedyArenas, true, 0, 2, ""),
			{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "60%:trim+drop", Limit: event.LimitCgroup, Action: event.ActionTrimDrop, Used: scenetest.Mem.Scale(0.6), LimitSize: scenetest.Mem}},
			{At: 2 * time.Minute, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Reason: event.ReasonDone, Freed: rss.GiB}},
			{At: 3 * time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 2, Rule: "65%:trim", Limit: event.LimitCgroup, Action: event.ActionTrim, Used: scenetest.Mem.Scale(0.65), LimitSize: scenetest.Mem}},
			{At: 4 * time.Minute, Name: event.NameOutcome, Value: &event.Outcome{Decision: 2, OK: true, Reason: event.ReasonDone, Freed: rss.MiB}},
			scenetest.Exits(scenetest.Minutes, "", 0),
		},
	}.Run()
	for kind, run := range map[string]*record.Run{"record": r, "journal": scenetest.AsJournal(t, r)} {
		rep := build([]*record.Run{run}, nil, scenetest.Noon)
		var did []event.Action
		for _, a := range rep.Actions {
			did = append(did, a.Action)
			if a.Fired != 1 || a.Worked != 1 || a.Freed == 0 {
				t.Errorf("%s: %+v", kind, a)
			}
		}
		if want := []event.Action{event.ActionTrim, event.ActionTrimDrop}; !slices.Equal(did, want) {
			t.Errorf("%s: actions %q, want %q", kind, did, want)
		}
		if len(rep.Cures) != 1 || rep.Cures[0].Remedy != event.RemedyArenas {
			t.Errorf("%s: cures %+v", kind, rep.Cures)
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
