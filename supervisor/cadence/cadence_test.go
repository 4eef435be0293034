package cadence

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
)

func TestPause(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		what     string
		headroom rss.Bytes
		rate     rss.Bytes
		want     time.Duration
	}{
		{"far away", 100 * rss.GiB, 0, time.Second},
		{"where the burst of the goal begins", 4 * rss.GiB, 0, time.Second},
		{"nearer", 2*rss.GiB - 64*rss.MiB, 0, ms(500)},
		{"at the rung, nothing seen", 0, 0, time.Duration(15.625 * float64(time.Millisecond))},
		{"at the rung, growing", 0, rss.MiB, MinPause},
		{"slow growth", 64 * rss.MiB, 100 * rss.KiB, time.Duration(31.25 * float64(time.Millisecond))},
		{"a gigabyte a second", 100 * rss.MiB, 2500 * rss.MiB, ms(20)},
		{"at any rate", rss.MiB, 64 * rss.GiB, MinPause},
	} {
		if got := Pause(c.headroom, float64(c.rate), time.Second); got.Truncate(time.Microsecond) != c.want.Truncate(time.Microsecond) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	if got := Pause(100*rss.GiB, 0, time.Microsecond); got != MinPause {
		t.Errorf("an interval below %v gives %v", MinPause, got)
	}
}

// A burst is met within what it fills in one shortest pause, wherever in the
// long pause before it begins.
func TestBurstIsMet(t *testing.T) {
	const perSecond = float64(rss.GiB)
	for begin := time.Duration(0); begin < time.Second; begin += 37 * time.Millisecond {
		rung := 8 * rss.GiB
		used := func(at time.Duration) rss.Bytes {
			return 4*rss.GiB + rss.Bytes(perSecond*max(0, (at-10*time.Second-begin).Seconds()))
		}
		var r rss.Rate
		ticks, now := 0, time.Duration(0)
		for ; used(now) < rung; ticks++ {
			r.Add(now, used(now))
			now += Pause(rung-used(now), r.PerSecond(now), time.Second)
		}
		if over := used(now) - rung; over > 4*rss.MiB {
			t.Errorf("burst %v into the pause: seen %v over the rung", begin, over)
		}
		if ticks > 100 {
			t.Errorf("burst %v into the pause: %d readings", begin, ticks)
		}
	}
}
