package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestWarnOncePerCrossing(t *testing.T) {
	c := newScript(t, "80%:warn")
	c.want(c.at(second, slurm(79.9)))
	c.want(c.at(second, slurm(80)), "80%:warn")
	c.want(c.at(second, slurm(99)))
	c.want(c.at(second, slurm(75.1))) // not left by five points
	c.want(c.at(second, slurm(81)))
	c.want(c.at(second, slurm(74.9))) // armed again
	c.want(c.at(second, slurm(81)))   // not twice a minute
	c.want(c.at(time.Minute, slurm(81)), "80%:warn")
	c.want(c.at(time.Hour, slurm(90)))
}

func TestWarnForEachLimit(t *testing.T) {
	c := newScript(t, "80%:warn")
	node := slurm(85)
	node.Name = event.LimitNode
	shm := slurm(85)
	shm.Name = event.LimitSHM // not among any
	throttle := slurm(99)
	throttle.Name = event.LimitThrottle
	low := slurm(85)
	low.Name, low.Level = event.LimitCgroup, "/job/step"
	high := low
	high.Level = "/job"
	c.want(c.at(second, slurm(81), node, shm, throttle), "80%:warn", "80%:warn")
	c.want(c.at(second, slurm(81), node, low), "80%:warn")
	c.want(c.at(second, slurm(81), node, low, high), "80%:warn")
	c.want(c.at(second, event.Limit{Name: event.LimitUser, Used: rss.GiB}))
}

// A job that the ladder carries goes up and down through its rungs.
func TestWarningsThin(t *testing.T) {
	c := newScript(t, "80%:warn")
	var at []time.Duration
	for range 240 {
		c.at(30*second, slurm(70))
		if len(c.at(30*second, slurm(81))) > 0 {
			at = append(at, c.now)
		}
	}
	m := time.Minute
	if want := []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, 64 * m, 124 * m, 184 * m}; !slices.Equal(at, want) {
		t.Errorf("warned at %v, want %v", at, want)
	}
	c.at(second, slurm(10))
	c.want(c.at(4*time.Hour, slurm(81)), "80%:warn") // that was long ago
	c.at(second, slurm(10))
	c.want(c.at(time.Minute, slurm(81)), "80%:warn")
}

func TestTimeRule(t *testing.T) {
	c := newScript(t, "time eta<10m:warn")
	c.want(c.at(second))
	for _, x := range []struct {
		left time.Duration
		want []string
	}{
		{time.Hour, nil},
		{10 * time.Minute, nil},
		{9 * time.Minute, []string{"time eta<10m:warn"}},
		{8 * time.Minute, nil},
		{time.Hour, nil}, // the job's time was extended
		{5 * time.Minute, []string{"time eta<10m:warn"}},
	} {
		c.end = x.left
		c.want(c.at(second, slurm(10)), x.want...)
	}
	if c.last.ETA == nil || *c.last.ETA != 300 || c.last.Limit != event.LimitTime {
		t.Errorf("decision %+v", c.last)
	}
}
