package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/slurm/adminline"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// line shows a line of a fleet.
func (l *FleetLine) line() string {
	s := fmt.Sprintf("%s: %d jobs, %d by memory, %d failed, peaks %.1f %.1f; %d: %.1f = %.1f + %.1f", l.Name, l.Jobs, l.OutOfMemory(), l.Failed(), l.Median, l.Highest,
		l.Measured, l.Requested, l.Used, l.Wasted)
	for _, p := range l.Profits {
		s += fmt.Sprintf("; %d %s %.1f", p.Jobs, p.From, p.Saves)
	}
	return s
}

func lines(f Fleet) (all []string) {
	for i := range f.Lines {
		all = append(all, f.Lines[i].line())
	}
	return all
}

// ran is a run of an hour that had 10 GiB.
func ran(minute int, job, step, node string, task int, o event.RunOutcome, peak float64) record.IndexEntry {
	e := listed(minute, job, step, node, task, o, peak)
	e.Seconds, e.Size = 3600, 10*rss.GiB
	return e
}

// TestFleet: limit and time of a job count once a node, however many runs it had there; what memory
// ended comes first, and the median is of the jobs with a peak.
func TestFleet(t *testing.T) {
	runs := []record.IndexEntry{
		ran(1, "1", "", "n1", 0, event.RunOK, 0.2), ran(2, "2", "", "n1", 0, event.RunOK, 0.4), ran(3, "3", "", "n1", 0, event.RunFailed, 0),
		ran(4, "4", "", "n2", 0, event.RunOOM, 1), ran(5, "5", "", "", 0, event.RunKept, 0.9),
		// Two nodes with two ranks each, within the batch script, which is a run too.
		ran(6, "6", "batch", "n1", 0, event.RunOK, 0.1),
		ran(6, "6", "0", "n1", 0, event.RunOK, 0.5), ran(6, "6", "0", "n1", 1, event.RunOK, 0),
		ran(6, "6", "0", "n2", 2, event.RunOOM, 0.9), ran(6, "6", "0", "n2", 3, event.RunFailed, 0),
	}
	sum := func(by string) (Fleet, []string) {
		var f FleetJobs
		f.AddRuns(append([]record.IndexEntry(nil), runs...))
		fleet := f.Sum(by, "")
		return fleet, lines(fleet)
	}
	for by, want := range map[string][]string{
		"command": {"train.py: 6 jobs, 2 by memory, 1 failed, peaks 0.9 1.0; 5: 60.0 = 39.0 + 21.0"},
		"user":    {"alice: 6 jobs, 2 by memory, 1 failed, peaks 0.9 1.0; 5: 60.0 = 39.0 + 21.0"},
		"node": {
			"n2: 2 jobs, 2 by memory, 0 failed, peaks 0.9 1.0; 2: 20.0 = 19.0 + 1.0",
			"n1: 4 jobs, 0 by memory, 1 failed, peaks 0.4 0.5; 3: 30.0 = 11.0 + 19.0",
			"-: 1 jobs, 0 by memory, 0 failed, peaks 0.9 0.9; 1: 10.0 = 9.0 + 1.0",
		},
	} {
		fleet, got := sum(by)
		if diff := cmp.Diff(want, got); diff != "" || fleet.Sum.Jobs != 6 || fleet.Records != 6 {
			t.Errorf("by %s: %d jobs\n%s", by, fleet.Sum.Jobs, diff)
		}
	}
	// Runs one after the other count with the time of both, those at a time once.
	runs = []record.IndexEntry{ran(0, "1", "0", "n1", 0, event.RunOK, 0.5), ran(30, "1", "1", "n1", 0, event.RunOK, 0.1), ran(90, "1", "2", "n1", 0, event.RunOK, 0.1)}
	if _, got := sum("user"); got[0] != "alice: 1 jobs, 0 by memory, 0 failed, peaks 0.5 0.5; 1: 25.0 = 12.5 + 12.5" {
		t.Error(got)
	}
	// A --limit reserves nothing: the limit that the job had beside it counts.
	runs = runs[:1]
	runs[0].Limit = event.LimitUser
	if _, got := sum("user"); got[0] != "alice: 1 jobs, 0 by memory, 0 failed, peaks 0.5 0.5; 0: 0.0 = 0.0 + 0.0" {
		t.Error(got)
	}
	runs[0].Requested, runs[0].Used = 40*rss.GiB, 5*rss.GiB
	if _, got := sum("user"); got[0] != "alice: 1 jobs, 0 by memory, 0 failed, peaks 0.5 0.5; 1: 40.0 = 5.0 + 35.0" {
		t.Error(got)
	}
}

// TestProfits: who would profit from what.
func TestProfits(t *testing.T) {
	one := func(o event.RunOutcome, peak float64, s record.IndexSums) record.IndexEntry {
		e := ran(1, "1", "0", "n1", 0, o, peak)
		e.IndexSums = s
		return e
	}
	mapped, leak, copied := record.IndexSums{Grew: event.FindingMapped}, record.IndexSums{Grew: event.FindingWorkerLeak}, record.IndexSums{Grew: event.FindingCopyOnWrite}
	trimmed, recycled, less := mapped, leak, record.IndexSums{Enough: 4 * rss.GiB}
	trimmed.Trims, recycled.Recycled = 3, 1
	batch, other := ran(1, "1", "batch", "n1", 0, event.RunOK, 0.01), one(event.RunOK, 0.4, less)
	batch.Enough = rss.GiB
	other.ID, other.Node = record.NewID(other.Start, &record.Job{ID: "1", Step: "0", Task: 1}, "n2", 7), "n2"
	needs := one(event.RunOK, 0.8, record.IndexSums{})
	needs.ID, needs.Node = other.ID, "n2"
	for name, c := range map[string]struct {
		runs []record.IndexEntry
		want string
	}{
		"trim":                          {[]record.IndexEntry{one(event.RunOOM, 1, mapped)}, "trim 0"},
		"trimmed":                       {[]record.IndexEntry{one(event.RunOOM, 1, trimmed)}, ""},
		"room for pages":                {[]record.IndexEntry{one(event.RunOK, 0.4, mapped)}, ""},
		"kept":                          {[]record.IndexEntry{one(event.RunKept, 0.9, leak)}, ""},
		"leak":                          {[]record.IndexEntry{one(event.RunTight, 0.9, leak)}, "recycle 0"},
		"copies":                        {[]record.IndexEntry{one(event.RunSlurmKill, 0.9, copied)}, "recycle 0"},
		"recycled":                      {[]record.IndexEntry{one(event.RunOOM, 1, recycled)}, ""},
		"less":                          {[]record.IndexEntry{one(event.RunOK, 0.36, less)}, "less --mem 6"},
		"less on each node":             {[]record.IndexEntry{one(event.RunOK, 0.36, less), other, batch}, "less --mem 12"},
		"one node needs what it had":    {[]record.IndexEntry{one(event.RunOK, 0.36, less), needs}, ""},
		"the batch script needs little": {[]record.IndexEntry{batch, one(event.RunOK, 0.8, record.IndexSums{})}, ""},
	} {
		var f FleetJobs
		f.AddRuns(c.runs)
		got := ""
		for _, p := range f.Sum("user", "").Sum.Profits {
			got += fmt.Sprintf("%s %.0f", p.From, p.Saves)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFleetOfSacct: a job counts once; of jobs that left no record those count of which AdminComment
// says something, and the others are counted.
func TestFleetOfSacct(t *testing.T) {
	comment, err := adminline.Encode(adminline.Line{Nodes: map[string]adminline.Node{
		"n1": {Limit: 10 << 30, Peak: 2 << 30}, "n2": {Limit: 10 << 30, Peak: 3 << 30},
	}, Seconds: 3600})
	if err != nil {
		t.Fatal(err)
	}
	job := func(id, state, comment string) *slurm.AccountedJob {
		return &slurm.AccountedJob{ID: id, User: "bob", State: state, Ran: time.Hour, Comment: comment, Name: "fit.py"}
	}
	var f FleetJobs
	f.AddRuns([]record.IndexEntry{ran(1, "1", "", "n1", 0, event.RunOK, 0.2), ran(2, "2", "", "n1", 0, event.RunOK, 0.2)}) // 2 is bob's
	alices := job("1", "COMPLETED", comment)
	alices.User = "alice"
	f.AddAccounted(alices)
	f.AddAccounted(job("2", "COMPLETED", comment))
	f.AddAccounted(job("3", "OUT_OF_MEMORY", comment))
	f.AddAccounted(job("4", "FAILED", "JS1:Short"))
	f.AddAccounted(job("5", "FAILED", "a note"))
	f.AddAccounted(job("6", "FAILED", ""))
	got := f.Sum("user", "")
	want := []string{
		"bob: 3 jobs, 1 by memory, 1 failed, peaks 0.3 0.3; 2: 40.0 = 10.0 + 30.0; 1 less --mem 13.2",
		"alice: 2 jobs, 0 by memory, 0 failed, peaks 0.2 0.2; 2: 20.0 = 4.0 + 16.0",
	}
	if diff := cmp.Diff(want, lines(got)); diff != "" || got.Records != 2 || got.Accounted != 3 || got.Untold != 2 {
		t.Errorf("%+v\n%s", got, diff)
	}
	if oom := f.Sum("node", event.RunOOM); oom.Sum.Jobs != 1 || len(oom.Lines) != 2 {
		t.Errorf("%+v", oom)
	}
}

// TestSumsOf: what the list keeps of a run for the sums.
func TestSumsOf(t *testing.T) {
	cgroup, user := event.Limit{Name: event.LimitCgroup, Used: 3 * rss.GiB, Limit: 10 * rss.GiB}, event.Limit{Name: event.LimitUser, Used: 3 * rss.GiB, Limit: 4 * rss.GiB}
	b := Brief{Peak: &cgroup}
	b.Outcome, b.Next = event.RunOK, event.Next{Kind: event.NextEnough, Option: "--mem", Size: 4 * rss.GiB}
	b.Saved.WorkerTrims, b.Saved.Recycled = 5, 2
	want := record.IndexSums{Enough: 4 * rss.GiB, Grew: event.FindingMapped, Trims: 5, Recycled: 2}
	if diff := cmp.Diff(want, SumsOf(&b, &cgroup, event.FindingMapped)); diff != "" {
		t.Error(diff)
	}
	// Where the user's own limit came nearer, that of the job is kept beside it; what is advised
	// of --limit says nothing of --mem.
	b.Peak, b.Next.Option = &user, "--limit"
	want.Requested, want.Used, want.Enough = 10*rss.GiB, 3*rss.GiB, 0
	if diff := cmp.Diff(want, SumsOf(&b, &cgroup, event.FindingMapped)); diff != "" {
		t.Error(diff)
	}
}
