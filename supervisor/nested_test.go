package supervisor

import (
	"errors"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
)

// TestOuterRun: the nearest run above counts, and neither this one nor what is beside it.
func TestOuterRun(t *testing.T) {
	proc := func(pid, parent int, comm string) rss.Proc {
		p := rss.Proc{Parent: parent, Comm: comm}
		p.ID.PID = pid
		return p
	}
	tree := map[int]rss.Proc{}
	for _, p := range []rss.Proc{
		proc(1, 0, "rsswarden"), // of a container
		proc(10, 1, "slurmstepd"), proc(11, 10, "rsswarden"), proc(12, 11, "rss-watcher"), proc(13, 11, "bash"),
		proc(14, 13, "rsswarden"), proc(15, 14, "python3"), proc(16, 15, "rsswarden"),
		proc(20, 77, "rsswarden"), proc(30, 31, "rsswarden"), proc(31, 30, "bash"),
	} {
		tree[p.ID.PID] = p
	}
	one := func(pid int) (rss.Proc, error) {
		if p, ok := tree[pid]; ok {
			return p, nil
		}
		return rss.Proc{}, errors.New("gone")
	}
	for holder, want := range map[int]int{1: 0, 11: 1, 14: 11, 16: 14, 20: 0, 99: 0} {
		if got := outerRun(one, holder); got != want {
			t.Errorf("above %d: %d, want %d", holder, got, want)
		}
	}
}
