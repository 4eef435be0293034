package policy

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

func TestRate(t *testing.T) {
	var r Rate
	if got := r.PerSecond(time.Hour); got != 0 {
		t.Errorf("nothing seen: %v", got)
	}
	r.Add(0, rss.GiB)
	r.Add(10*time.Millisecond, 2*rss.GiB) // too soon to tell
	if got := r.PerSecond(10 * time.Millisecond); got != 0 {
		t.Errorf("after 10 ms: %v", got)
	}
	r.Add(time.Second, rss.GiB+100*rss.MiB)
	if got := r.PerSecond(time.Second); got != float64(100*rss.MiB) {
		t.Errorf("rate %v, want 100 MiB/s", rss.Bytes(got))
	}
	r.Add(2*time.Second, rss.GiB) // falling is no filling
	r.Add(3*time.Second, rss.GiB+50*rss.MiB)
	if got, want := r.PerSecond(61*time.Second), float64(50*rss.MiB); got != want {
		t.Errorf("a minute later %v, want half", rss.Bytes(got))
	}
	r.Add(2*time.Second, 100*rss.GiB) // time going back
	r.Add(123*time.Second, rss.GiB+50*rss.MiB+120*40*rss.MiB)
	if got, want := rss.Bytes(r.PerSecond(123*time.Second)), 40*rss.MiB; got != want {
		t.Errorf("rate %v, want the newer and now faster %v", got, want)
	}
	r.Skip()
	r.Add(183*time.Second, 500*rss.GiB) // grew while nobody looked
	if got, want := rss.Bytes(r.PerSecond(183*time.Second)), 20*rss.MiB; got != want {
		t.Errorf("rate %v after a gap, want %v: half of what it was a minute before", got, want)
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
		var r Rate
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
