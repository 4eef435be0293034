package population

import (
	"fmt"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
)

// TestOuterRun: the nearest run above counts, and neither this one nor what is beside it.
func TestOuterRun(t *testing.T) {
	fs := rsstest.Empty(t)
	for _, p := range []struct {
		pid, parent int
		comm        string
	}{
		{1, 0, "rsswarden"}, // of a container
		{10, 1, "slurmstepd"}, {11, 10, "rsswarden"}, {12, 11, "rss-watcher"}, {13, 11, "bash"},
		{14, 13, "rsswarden"}, {15, 14, "python3"}, {16, 15, "rsswarden"},
		{20, 77, "rsswarden"}, {30, 31, "rsswarden"}, {31, 30, "bash"},
	} {
		fs.Put(rsstest.Process{PID: p.pid, Parent: p.parent, Start: 1, Comm: p.comm})
	}
	for holder, want := range map[int]int{1: 0, 11: 1, 14: 11, 16: 14, 20: 0, 99: 0} {
		if got := OuterRun(fs.Proc, holder); got != want {
			t.Errorf("above %d: %d, want %d", holder, got, want)
		}
	}
}

func TestSrunAndContainers(t *testing.T) {
	s := &rss.Sample{}
	for i, comm := range []string{"bash", "srun", "starter-suid", "appinit", "python", "sh", "starter"} {
		p := rss.Proc{ID: rss.ProcID{PID: i + 1}, Comm: comm, Parent: i, State: 'S'}
		switch comm {
		case "sh":
			p.Parent, p.State = 4, 'Z' // beside python, and has ended
		case "starter":
			p.Parent = 1 // runs nothing
		}
		s.Procs = append(s.Procs, p)
	}
	if srun := Srun(s.Procs); srun != 2 || Srun(s.Procs[2:]) != 0 {
		t.Errorf("srun is process %d", srun)
	}
	for of, want := range map[int]string{1: "[1]", 3: "[5]", 4: "[5]", 7: "[7]"} {
		var got []int
		for _, p := range InContainers(s, []*rss.Proc{s.Find(of)}) {
			got = append(got, p.ID.PID)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d runs %v, want %s", of, got, want)
		}
	}
}
