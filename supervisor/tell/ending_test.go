package tell

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

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
