package analysis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
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

// TestRankTrees: a process is its nearest rank's, however deep below it, with a PID
// that was used before too; rsswarden's own processes have none.
func TestRankTrees(t *testing.T) {
	r := &record.Run{Meta: record.Meta{Holder: 10, Process: rss.ProcID{PID: 12}, Job: &record.Job{ID: "1", Step: "0", Task: 0}}}
	add := func(pid, parent int, start uint64, comm string) int {
		r.Procs = append(r.Procs, record.Proc{ID: rss.ProcID{PID: pid, Start: start}, Parent: parent, Comm: comm})
		return len(r.Procs) - 1
	}
	want := map[int]int{}
	want[add(10, 1, 1, "rsswarden")] = noRank
	want[add(11, 10, 2, "rsswarden")] = noRank
	want[add(12, 10, 2, "python")] = 0
	want[add(13, 12, 3, "worker")] = 0
	want[add(20, 1, 1, "rsswarden")] = noRank
	want[add(21, 20, 2, "rsswarden")] = noRank
	want[add(22, 20, 2, "sh")] = 1
	want[add(23, 22, 3, "python")] = 1
	want[add(24, 23, 9, "worker")] = 1
	want[add(23, 1, 50, "cron")] = noRank    // 23 again, in another tree
	want[add(25, 23, 60, "script")] = noRank // the second one's child
	want[add(26, 20, 9, "orphan")] = 1
	want[add(30, 31, 9, "a")] = noRank // a circle, in a damaged record
	want[add(31, 30, 9, "b")] = noRank
	r.Events = []record.Entry{{Value: &event.Rank{What: event.RankJoined, Task: 1, Step: "0", PID: 22, Holder: 20}}}
	got := ranksOf(r)
	for i, w := range want {
		if got.of[i] != w {
			t.Errorf("process %d (%s) is of rank %d, want %d", r.Procs[i].ID.PID, r.Procs[i].Comm, got.of[i], w)
		}
	}
}

// TestSuccessions: of two meeting places on one node each leader goes on from the one
// of its own.
func TestSuccessions(t *testing.T) {
	led := func(began, ended time.Duration, tasks ...int) *RunScan {
		k := &RunScan{Run: &record.Run{Meta: record.Meta{Node: "n1", Start: scenetest.Noon, Job: scenetest.InJob()}}, End: ended * time.Minute}
		k.Ranks.leads = began * time.Minute
		for _, task := range tasks {
			k.Ranks.List = append(k.Ranks.List, &RankSeen{RankKey: RankKey{Step: "0", Task: task}})
		}
		return k
	}
	got := successions([]*RunScan{led(6, 9, 3), led(0, 5, 0, 2), led(0, 5, 1, 3), led(6, 9, 2), led(0, 9, 7)})
	if want := []int{2, -1, -1, 1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
