package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestStanding: whose limits `rsswarden limits` prints. We are process 7, our
// parent is process 5.
func TestStanding(t *testing.T) {
	for name, test := range map[string]struct {
		parent, comm, cgroup string // of process 5, where it is to be seen
		want                 int
	}{
		"a shell":                       {"5", "bash", "4:memory:/slurm/job_1/step_0/task_0", 5},
		"of another cgroup":             {"5", "bash", "4:memory:/user", 7},
		"slurmstepd in another cgroup":  {"5", "slurmstepd", "4:memory:/slurm/job_1/step_0", 7},
		"slurmstepd in the same":        {"5", "slurmstepd", "4:memory:/slurm/job_1/step_0/task_0", 7},
		"outside of this PID namespace": {"", "", "", 7},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			put := func(pid, file, text string) {
				wardentest.Write(t, filepath.Join(proc, pid, file), text+"\n")
			}
			put("7", "cgroup", "4:memory:/slurm/job_1/step_0/task_0")
			parent := 0
			if test.parent != "" {
				fmt.Sscan(test.parent, &parent)
				put(test.parent, "comm", test.comm)
				put(test.parent, "cgroup", test.cgroup)
			}
			if got := shellOrSelf(proc, parent, 7); got != test.want {
				t.Errorf("process %d, want %d", got, test.want)
			}
		})
	}
}

// TestLimitsSteerNoTerminal: names of cgroups are their users' to choose, and whoever asks
// for the limits of another's process reads them.
func TestLimitsSteerNoTerminal(t *testing.T) {
	eta := 1.0
	r := &limitsReport{PID: 1, Explanation: limit.Explanation{
		Limits: []event.Limit{{Name: "cgroup", Scope: "job", Enforcer: "kernel", LimitSource: "/sys/x", UsedSource: "/sys/y", Level: "/x", Note: "n", Used: 1, Limit: 2, ETA: &eta}},
		Looked: []limit.Looked{{Where: "/sys", Found: "x"}},
	}, Procs: 2}
	kinds := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		kinds++
		var b strings.Builder
		wardentest.NoError(t, r.print(&b, text.Style{}))
		if bad := recordtest.Shows(b.String()); len(bad) > 0 {
			t.Errorf("%q: %q", kind, bad)
		}
	}, r)
	if kinds < 8 {
		t.Errorf("%d kinds of strings", kinds)
	}
}
