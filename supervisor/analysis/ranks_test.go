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
