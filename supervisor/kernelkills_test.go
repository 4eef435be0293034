package supervisor

import (
	"slices"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

func TestKillsByKernel(t *testing.T) {
	got := killsByKernel([]limit.Kills{
		{Level: "/c/job_1", Scope: event.ScopeJob, OOMKill: 3},
		{Level: "/c", Scope: event.ScopeCgroup, Hit: 5},
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, OOMKill: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, OOMKill: 1},
	})
	want := []event.KernelKills{
		{Level: "/c/job_1/step_0", Scope: event.ScopeStep, Kills: 2, Leaf: true},
		{Level: "/c/job_1/step_1", Scope: event.ScopeStep, Kills: 1},
		{Level: "/c/job_1", Scope: event.ScopeJob, Kills: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	if killsByKernel([]limit.Kills{{Level: "/c", Hit: 1}}) != nil {
		t.Error("a level without kills is told")
	}
}

func TestSlowed(t *testing.T) {
	limits := []event.Limit{{Name: event.LimitThrottle, Level: "/c/job_1", Limit: 100 * rss.MiB, LimitSource: "/sys/c/job_1/memory.high"}}
	for want, levels := range map[string][]limit.Kills{
		"": {{Level: "/c/job_1", Hit: 3}},
		"allocations above 100 MiB were slowed down 7 times (limit from job_1/memory.high); nothing is killed for that": {
			{Level: "/c/job_1/step_0"}, {Level: "/c/job_1", High: 7}, {Level: "/c", High: 9},
		},
		"allocations were slowed down once by memory.high of /c": {{Level: "/c/job_1"}, {Level: "/c", High: 1}}, // lifted since
	} {
		if got := slowed(levels, limits); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
