package tell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/metrics"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestRunNumber: the first process of two containers has the same PID.
func TestRunNumber(t *testing.T) {
	dir := t.TempDir()
	of := func(namespace string) int {
		link := filepath.Join(dir, namespace)
		wardentest.NoError(t, os.Symlink(namespace, link))
		return runNumber(link, 7)
	}
	if n := of("pid:[4026531836]"); n != 7 {
		t.Errorf("on the node itself %d, want its PID", n)
	}
	if n := runNumber(filepath.Join(dir, "none"), 7); n != 7 {
		t.Errorf("where that cannot be read %d, want its PID", n)
	}
	if a, b := of("pid:[4026532001]"), of("pid:[4026532002]"); a == b || a <= 0 || b <= 0 {
		t.Errorf("in two containers %d and %d", a, b)
	}
}

// TestRunTime: a watcher that is started again goes on with the time of the run,
// whatever the clock was set to since.
func TestRunTime(t *testing.T) {
	r, since := &Run{}, time.Now()
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		r.Begun, r.BegunMono = time.Now().Add(set-90*time.Second), Monotonic()-90*time.Second
		if at := r.Took(since); at < 90*time.Second || at > 100*time.Second {
			t.Errorf("after the clock was set by %v the run has lasted %v, want 90 s", set, at)
		}
	}
	r.Begun, r.BegunMono = time.Now().Add(time.Hour), 0
	if at := r.Took(since); at < 0 {
		t.Errorf("the run has lasted %v", at)
	}
}

// TestPlace: what a run is known by.
func TestPlace(t *testing.T) {
	env := func(vars ...string) func(string) (string, bool) {
		return func(name string) (value string, ok bool) {
			i := slices.IndexFunc(vars, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			if i < 0 {
				return "", false
			}
			return strings.CutPrefix(vars[i], name+"=")
		}
	}
	host := slurm.NodeName(env())
	array := env("SLURM_JOB_ID=48", "SLURM_ARRAY_JOB_ID=46", "SLURM_ARRAY_TASK_ID=2", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1")
	for name, c := range map[string]struct {
		lookup   func(string) (string, bool)
		holder   int    // 0 where this watcher has attached
		attached string // … to that job
		want     metrics.Place
	}{
		"outside Slurm":        {env(), 7, "", metrics.Place{Node: host}},
		"batch script":         {env("SLURM_JOB_ID=46", "SLURMD_NODENAME=n1"), 7, "", metrics.Place{JobID: "46", Step: "batch", Node: "n1"}},
		"array task":           {array, 7, "", metrics.Place{JobID: "48", Step: "0", Node: "n1"}},
		"attached to a PID":    {array, 0, "", metrics.Place{JobID: "48", Step: "0", Node: "n1"}},
		"… outside Slurm":      {env(), 0, "", metrics.Place{Node: host}},
		"attached to a job":    {array, 0, "48", metrics.Place{JobID: "48", Node: "n1"}},
		"attached to a step":   {array, 0, "48.batch", metrics.Place{JobID: "48", Step: "batch", Node: "n1"}},
		"attached, no environ": {env(), 0, "48.0", metrics.Place{JobID: "48", Step: "0", Node: host}},
	} {
		r := Run{ID: name, Lookup: c.lookup, Node: slurm.NodeName(c.lookup), Job: JobOf(c.lookup), Holder: c.holder}
		c.want.Run = r.Label()
		if diff := cmp.Diff(c.want, r.Place(c.attached)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	label := func(id string) string { r := Run{ID: id}; return r.Label() }
	if a, b := label("20261122T120000Z-46.0.0-n1-7"), label("20261122T120001Z-46.0.0-n1-7"); a == b || len(a) != 8 {
		t.Errorf("two lives of a job are %q and %q", a, b)
	}
}
