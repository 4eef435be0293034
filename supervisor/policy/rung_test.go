package policy

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestFreeRule(t *testing.T) {
	c := newScript(t, "free<500M:trim")
	at := func(freeMiB rss.Bytes) event.Limit {
		l := slurm(0)
		l.Used = l.Limit - freeMiB*rss.MiB
		return l
	}
	c.want(c.at(second, at(500)))
	c.want(c.at(second, at(499)), "free<500M:trim")
	c.done(true, event.ReasonDone, 84, 70)
	c.want(c.at(time.Minute, at(999)))
	c.want(c.at(second, at(1001))) // twice as much is free
	c.want(c.at(second, at(400)), "free<500M:trim")
}

func TestFreeRuleThatCanNeverBeMet(t *testing.T) {
	c := newScript(t, "free<3000M:stop\nfree<4G:warn")
	c.want(c.at(second, slurm(1)), "skip free<4G:warn: not supported here", "skip free<3000M:stop: not supported here")
	c.want(c.at(second, slurm(99)))
	// Twice the size would be more than there is: half the way arms it again.
	d := newScript(t, "free<2G:warn")
	d.want(d.at(second, slurm(50)), "free<2G:warn")
	d.want(d.at(time.Hour, slurm(10)))
	d.want(d.at(time.Second, slurm(50)), "free<2G:warn")
}

func TestALimitThatShrinks(t *testing.T) {
	c := newScript(t, "80%:warn")
	l := slurm(60)
	c.want(c.at(second, l))
	l.Limit = 2000 * rss.MiB
	c.want(c.at(second, l), "80%:warn")
}

func TestNextRung(t *testing.T) {
	s := New(rules(t, "80%:warn\neta<10m:warn\n85%:trim\nfree<300M:recycle\nshm 10%:warn"), Options{})
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
