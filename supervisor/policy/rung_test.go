package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestNextRung(t *testing.T) {
	s := New(rules(t, "80%:warn\neta<10m:warn\n85%:trim\nfree<300M:recycle\nshm 10%:warn"), 1)
	for _, c := range []struct {
		used float64
		want rss.Bytes
	}{
		{0, 2400 * rss.MiB}, {79.9, 2400 * rss.MiB}, {80, 2550 * rss.MiB}, {86, 2700*rss.MiB + 1}, {95, 3000 * rss.MiB},
	} {
		l := slurm(c.used)
		if got := s.NextRung(&l); got != c.want {
			t.Errorf("at %v %%: next rung at %v, want %v", c.used, got, c.want)
		}
	}
	l := slurm(79)
	l.UsedMax = l.Used
	if s.Straddles(&l) {
		t.Error("an exact reading straddles")
	}
	l.UsedMax = slurm(81).Used
	if !s.Straddles(&l) {
		t.Error("79 to 81 % does not straddle 80 %")
	}
	if at, ok := s.Rung(event.ActionTrim, &l); !ok || at != 2550*rss.MiB {
		t.Errorf("trim at %v, %v", at, ok)
	}
	if at, ok := s.Rung(event.ActionStop, &l); ok {
		t.Errorf("stop at %v, which the ladder has not", at)
	}
}

// A forecast rule is left at twice its time; the limit moves here, not use.
func TestForecastIsLeftAtTwice(t *testing.T) {
	c := newScript(t, "eta<5m:warn")
	used := func() event.Limit { return slurm(60 + 4*c.now.Minutes()) }
	for c.now < 5*time.Minute+30*second {
		if said := c.at(second, used()); len(said) > 0 {
			break
		}
	}
	if c.last.ID != 1 {
		t.Fatal("no warning on the way to the limit")
	}
	step := func(scale float64, d time.Duration) (said []string) {
		for range d / second {
			l := used()
			l.Limit = l.Limit.Scale(scale)
			said = append(said, c.at(second, l)...)
		}
		return said
	}
	// At 80 % and 4 points a minute.
	c.want(step(1.1, 30*second)) // 7 minutes: not left
	c.want(step(1, 30*second))
	c.want(step(1.3, 30*second)) // 11 minutes
	c.want(step(1, 90*second), "eta<5m:warn")
}
