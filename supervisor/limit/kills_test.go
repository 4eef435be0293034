package limit

import (
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestByKernel(t *testing.T) {
	var all []Kills
	for _, k := range []event.KernelKills{
		{Level: "/c/job_1", Scope: event.ScopeJob, Kills: 3},
		{Level: "/c", Scope: event.ScopeCgroup},
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, Kills: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, Kills: 1},
	} {
		all = append(all, Kills{KernelKills: k})
	}
	got := ByKernel(all)
	want := []event.KernelKills{
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, Kills: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, Kills: 1},
		{Level: "/c/job_1", Scope: event.ScopeJob, Kills: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}
