package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// listed is the entry of one run; step is empty for a batch script or a run outside Slurm.
func listed(minute int, job, step, node string, task int, o event.RunOutcome, peak float64) record.IndexEntry {
	at := time.Date(2026, 11, 22, 8, minute, 0, 0, time.UTC)
	var of *record.Job
	if job != "" {
		of = &record.Job{ID: job, Step: step, Task: task}
	}
	return record.IndexEntry{
		V: 1, ID: record.NewID(at, of, node, 100+task), Start: at, Job: job, Outcome: o, Seconds: float64(60 + task),
		Limit: event.LimitCgroup, Peak: peak, Size: 1 << 30, User: "alice", Node: node, Command: "/opt/bin/python3 -u train.py",
	}
}

// TestListRuns: the newest first; the ranks of a step are one row, on all its nodes, with the
// worst outcome and the highest peak; two runs of one rank in a step are two.
func TestListRuns(t *testing.T) {
	var got []string
	for _, r := range ListRuns([]record.IndexEntry{
		listed(1, "", "", "n1", 0, event.RunOK, 0.2),
		listed(2, "7", "0", "n1", 0, event.RunOK, 0.5),
		listed(2, "7", "0", "n1", 1, event.RunOOM, 0.7),
		listed(2, "7", "0", "n2", 2, event.RunFailed, 0.9),
		listed(3, "8", "0", "n1", 0, event.RunOK, 0.1),
		listed(4, "8", "0", "n1", 0, event.RunFailed, 0.3),
		listed(5, "9", "", "n1", 0, event.RunKept, 0.95),
		listed(6, "9", "", "n1", 0, event.RunOK, 0.4),
		{ID: record.NewID(time.Unix(0, 0), nil, "n1", 1)},
	}) {
		got = append(got, fmt.Sprintf("%s %s %d %.1f %.0f", r.Job, r.Outcome, r.Ranks, r.Peak, r.Seconds))
	}
	want := []string{"9 ok 0 0.4 60", "9 kept 0 0.9 60", "8 failed 0 0.3 60", "8 ok 0 0.1 60", "7 oom 3 0.9 62", " ok 0 0.2 60", "  0 0.0 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFleetOf: what memory ended comes first, and the median is of the runs with a peak.
func TestFleetOf(t *testing.T) {
	entries := []record.IndexEntry{
		listed(1, "1", "", "n1", 0, event.RunOK, 0.2), listed(2, "2", "", "n1", 0, event.RunOK, 0.4), listed(3, "3", "", "n1", 0, event.RunFailed, 0),
		listed(4, "4", "", "n2", 0, event.RunOOM, 1), listed(5, "5", "", "", 0, event.RunKept, 0.9),
	}
	for _, by := range FleetBy {
		var got []string
		for _, l := range FleetOf(ListRuns(entries), by).Lines {
			got = append(got, fmt.Sprintf("%s %d %d %d %.1f %.1f", l.Name, l.Runs, l.OutOfMemory(), l.Failed(), l.Median, l.Highest))
		}
		want := map[string][]string{
			"command": {"train.py 5 1 1 0.4 1.0"}, "user": {"alice 5 1 1 0.4 1.0"},
			"node": {"n2 1 1 0 1.0 1.0", "n1 3 0 1 0.2 0.4", "- 1 0 0 0.9 0.9"},
		}[by]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %s:\n%s", by, diff)
		}
	}
}

func TestShortCommand(t *testing.T) {
	for command, want := range map[string]string{
		"":                                  "",
		"/usr/bin/python3.11 d/train.py -n": "train.py -n",
		"python -m torch.distributed.run":   "python -m torch.distributed.run",
		"python":                            "python",
		"/opt/bin/torchrun --nproc 4 t.py":  "torchrun --nproc 4 t.py",
		"sh -c 'exit 3'":                    "sh -c 'exit 3'",
	} {
		if got := ShortCommand(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
