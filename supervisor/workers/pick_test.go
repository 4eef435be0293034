package workers

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestRecycleMode(t *testing.T) {
	for _, c := range []struct {
		headroom, fresh rss.Bytes
		want            event.Mode
	}{
		{300 * rss.MiB, 150 * rss.MiB, event.Swap},
		{300*rss.MiB - 1, 150 * rss.MiB, event.Drain},
		{0, 150 * rss.MiB, event.Drain},
		{rss.TiB, 0, event.Drain}, // unknown
	} {
		if got := RecycleMode(c.headroom, c.fresh); got != c.want {
			t.Errorf("headroom %v, fresh %v: %s, want %s", c.headroom, c.fresh, got, c.want)
		}
	}
}

func TestForkPause(t *testing.T) {
	if got := ForkPause(0); got != 15*time.Millisecond {
		t.Errorf("nothing to copy: %v", got)
	}
	if got := ForkPause(2560 * rss.MiB); got != 37500*time.Microsecond {
		t.Errorf("2.5 GiB: %v, want 37.5ms", got)
	}
}

func TestPick(t *testing.T) {
	w := func(mib rss.Bytes, ago time.Duration) Usage { return Usage{Counted: mib * rss.MiB, RecycledAgo: ago} }
	served := func(mib rss.Bytes, at time.Duration) Usage { return Usage{Counted: mib * rss.MiB, RankServed: at} }
	for _, c := range []struct {
		what    string
		workers []Usage
		index   int
		gain    rss.Bytes
		reason  event.Reason
	}{
		{"none", nil, -1, 0, event.ReasonNoWorker},
		{"the largest", []Usage{w(370, 0), w(770, 0), w(570, 0)}, 1, 770 * rss.MiB, ""},
		{"the first of equals", []Usage{w(370, 0), w(370, 0)}, 0, 370 * rss.MiB, ""},
		{"not the one just recycled", []Usage{w(370, 0), w(770, 29*time.Second)}, 0, 370 * rss.MiB, ""},
		{"again after 30 s", []Usage{w(370, 0), w(770, 30*time.Second)}, 1, 770 * rss.MiB, ""},
		{"all just recycled", []Usage{w(370, time.Second)}, -1, 0, event.ReasonRecent},
		{"as small as a fresh one", []Usage{w(0, 0), w(10, time.Second)}, -1, 0, event.ReasonNothing},
		{"the rank served least recently", []Usage{served(700, time.Hour), served(400, 0), served(600, time.Minute)}, 2, 600 * rss.MiB, ""},
		{"below 16 MiB", []Usage{w(15, 0)}, -1, 0, event.ReasonNothing},
		{"16 MiB", []Usage{w(16, 0)}, 0, 16 * rss.MiB, ""},
	} {
		index, gain, reason := Pick(c.workers, 16*rss.MiB)
		if index != c.index || gain != c.gain || reason != c.reason {
			t.Errorf("%s: %d, %v, %q; want %d, %v, %q", c.what, index, gain, reason, c.index, c.gain, c.reason)
		}
	}
}
