package analysis

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestSuccessions: of two meeting places on one node each leader goes on from the one
// of its own.
func TestSuccessions(t *testing.T) {
	at := func(minutes int) time.Time { return scenetest.Noon.Add(time.Duration(minutes) * time.Minute) }
	rank := func(task int) RankKey { return RankKey{Step: "0", Task: task} }
	led := func(began, ended int, tasks ...int) leadership {
		x := leadership{node: "n1", start: scenetest.Noon, began: at(began), ended: at(ended)}
		for _, task := range tasks {
			x.ranks = append(x.ranks, rank(task))
		}
		return x
	}
	got := successions([]leadership{led(6, 9, 3), led(0, 5, 0, 2), led(0, 5, 1, 3), led(6, 9, 2), led(0, 9, 7)})
	if want := []int{2, -1, -1, 1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
