package view

import (
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// family has the command 20 first, and a circle that a torn reading shows.
func family() Lineage {
	var l Lineage
	for _, p := range [][2]int{{20, 5}, {11, 20}, {12, 11}, {30, 12}, {40, 41}, {41, 40}, {50, 1}} {
		l = append(l, rss.Proc{ID: rss.ProcID{PID: p[0]}, Parent: p[1]})
	}
	return l
}

func TestFind(t *testing.T) {
	l := family()
	for i := range l {
		if p := l.Find(l[i].ID.PID); p != &l[i] {
			t.Errorf("%d: %v", l[i].ID.PID, p)
		}
	}
	for _, pid := range []int{0, 5, 13, 99} {
		if p := l.Find(pid); p != nil {
			t.Errorf("%d: %v", pid, p)
		}
	}
	if Lineage(nil).Find(1) != nil {
		t.Error("found in nothing")
	}
}

func TestUp(t *testing.T) {
	for pid, want := range map[int][]int{30: {30, 12, 11, 20, 5}, 50: {50, 1}, 7: {7}} {
		var got []int
		for up, p := range family().Up(pid) {
			if got = append(got, up); (p == nil) != (up == want[len(want)-1]) {
				t.Errorf("%d has the process %v", up, p)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("above %d: %v, want %v", pid, got, want)
		}
	}
	n := 0
	for range family().Up(40) {
		n++
	}
	if n > 10 {
		t.Errorf("%d steps in a circle", n)
	}
}

func TestBelowAndRank(t *testing.T) {
	ranks := map[int]int{11: 1, 20: 0}
	for pid, want := range map[int]struct {
		below bool // of 5, which is not in the sample
		rank  int
	}{30: {true, 1}, 11: {true, 1}, 20: {true, 0}, 5: {false, -1}, 40: {false, -1}, 50: {false, -1}} {
		if got := family().Below(pid, 5); got != want.below {
			t.Errorf("%d below 5: %v", pid, got)
		}
		if got := family().Rank(pid, ranks); got != want.rank {
			t.Errorf("rank of %d: %d, want %d", pid, got, want.rank)
		}
	}
}
