package report

import (
	"slices"
	"testing"
	"time"
)

// TestSuccessions: of two meeting places on one node each leader goes on from the one
// of its own.
func TestSuccessions(t *testing.T) {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	rank := func(task int) rankKey { return rankKey{step: "0", task: task} }
	led := func(began, ended int, tasks ...int) tenure {
		x := tenure{node: "n1", start: noon, began: at(began), ended: at(ended)}
		for _, task := range tasks {
			x.ranks = append(x.ranks, rank(task))
		}
		return x
	}
	got := successions([]tenure{led(6, 9, 3), led(0, 5, 0, 2), led(0, 5, 1, 3), led(6, 9, 2), led(0, 9, 7)})
	if want := []int{2, -1, -1, 1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
