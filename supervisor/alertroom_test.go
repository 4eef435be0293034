package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestAlertsNeedRoom: no process is started where it might be what ends the job, and
// a small job is told of at 80 % all the same.
func TestAlertsNeedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		limit event.Limit
		want  alert.Room
	}{
		"room":             {event.Limit{Name: event.LimitCgroup, Used: 70 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"little":           {event.Limit{Name: event.LimitCgroup, Used: 94 * rss.MiB, Limit: 100 * rss.MiB}, alert.Near},
		"none":             {event.Limit{Name: event.LimitCgroup, Used: 95 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"a small job":      {event.Limit{Name: event.LimitCgroup, Used: 40 * rss.MiB, Limit: 50 * rss.MiB}, alert.Near},
		"… of Slurm":       {event.Limit{Name: event.LimitSlurm, Used: 96 * rss.MiB, Limit: 120 * rss.MiB}, alert.Near},
		"a large job":      {event.Limit{Name: event.LimitCgroup, Used: 80 * rss.GiB, Limit: 100 * rss.GiB}, alert.Near},
		"none for certain": {event.Limit{Name: event.LimitSlurm, Used: 50 * rss.MiB, UsedMax: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"above":            {event.Limit{Name: event.LimitSlurm, Used: 200 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"tasks":            {event.Limit{Name: event.LimitTasks, Used: 384, Limit: 512}, alert.Plenty},
		"few tasks":        {event.Limit{Name: event.LimitTasks, Used: 490, Limit: 512}, alert.Near},
		"the last tasks":   {event.Limit{Name: event.LimitTasks, Used: 497, Limit: 512}, alert.None},
		"not counted":      {event.Limit{Name: event.LimitUser, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"does not kill":    {event.Limit{Name: event.LimitThrottle, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"not read":         {event.Limit{Name: event.LimitCgroup}, alert.Plenty},
	} {
		w := &watcher{readings: []event.Limit{test.limit}}
		if got := w.alertRoom(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
