package analysis

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

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
