package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestRecycleAhead: what grows so fast that the kernel would kill before a worker has
// drained is recycled before its rung; what does not is not.
func TestRecycleAhead(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit event.LimitName
		rate  rss.Bytes // a second
		took  float64   // seconds, of the recycle before
		want  rss.Bytes
	}{
		{"nothing grows", event.LimitCgroup, 0, 0, 0},
		{"as fast as the rung allows for", event.LimitCgroup, 100 * rss.MiB, 0, 0},
		{"twice as fast", event.LimitCgroup, 200 * rss.MiB, 0, 100 * rss.MiB},
		{"workers drain fast", event.LimitCgroup, 200 * rss.MiB, 0.2, 0},
		{"and slowly", event.LimitCgroup, 80 * rss.MiB, 0.8, 28 * rss.MiB},
		{"15 points at most", event.LimitCgroup, 900 * rss.MiB, 5, 150 * rss.MiB},
		{"slurmstepd does not look", event.LimitSlurm, 900 * rss.MiB, 0, 0},
		{"nobody kills", event.LimitUser, 900 * rss.MiB, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, nil)
			s.open(s.holder.begin)
			l := &event.Limit{Name: c.limit, Scope: event.ScopeCgroup, Used: 700 * rss.MiB, Limit: 1000 * rss.MiB}
			now := s.now()
			s.rate(l).Add(now, l.Used-c.rate/10)
			s.rate(l).Add(now+100*time.Millisecond, l.Used)
			s.tookRecycle(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{OK: true, Duration: c.took})
			if got := s.growthUntilRecycled(l); got/rss.MiB != c.want/rss.MiB {
				t.Errorf("%v ahead, want %v", got, c.want)
			}
		})
	}
}
