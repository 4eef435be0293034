package supervisor

import (
	"fmt"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

// publisher is a follower of job 46 whose limits are found by way of any
// process of a step; tried gets the PIDs.
func publisher(t *testing.T) (f *JobFollower, n jobTree, tried *[]int) {
	n = jobTree{t, rsstest.Empty(t)}
	tried = new([]int)
	f = &JobFollower{find: newFinder(n.Proc, "46", "", 1)}
	f.part = func(pid int) (*limit.Set, []limit.Warning) {
		*tried = append(*tried, pid)
		return findLimits(&Settings{}, n.Proc, n.Sys, pid, nil, func(string) (string, bool) { return "", false })
	}
	return f, n, tried
}

// TestPublishNotByWhatHasEnded: nothing is found out of a process that ended
// meanwhile, and what is found of a step counts for as long as it lasts.
func TestPublishNotByWhatHasEnded(t *testing.T) {
	f, n, tried := publisher(t)
	n.put(22, 1, "python", fmt.Sprintf(v1, "46", "0"))
	members := []member{{id: rss.ProcID{PID: 21, Start: 21}, step: "0", task: true}, {id: rss.ProcID{PID: 22, Start: 22}, step: "0", task: true}}
	f.publish(members)
	if p := f.Now(); len(p.parts) != 1 || fmt.Sprint(*tried) != "[21 22]" {
		t.Errorf("%d parts by %v, want one by the process that lives", len(p.parts), *tried)
	}
	f.publish(members[1:])
	if len(*tried) != 2 {
		t.Errorf("looked again: %v", *tried)
	}
	*tried = nil
	f.publish([]member{{id: rss.ProcID{PID: 31, Start: 31}, step: "1", task: true}}) // all have ended
	if p := f.Now(); len(p.parts) != 1 || p.parts[0].Set == nil {
		t.Errorf("parts %v", p.parts)
	}
}

// TestPublishKeepsNoWarningTwice: a job may have thousands of steps.
func TestPublishKeepsNoWarningTwice(t *testing.T) {
	f, n, _ := publisher(t)
	f.part = func(int) (*limit.Set, []limit.Warning) {
		set, _ := findLimits(&Settings{}, n.Proc, n.Sys, 21, nil, func(string) (string, bool) { return "", false })
		return set, []limit.Warning{{Part: "slurm", Text: "it is so"}}
	}
	for step := range 20 {
		f.publish([]member{{id: rss.ProcID{PID: 21, Start: 21}, step: fmt.Sprint(step), task: true}})
	}
	if p := f.Now(); len(p.warns) != 1 {
		t.Errorf("%d warnings, want each once", len(p.warns))
	}
}
