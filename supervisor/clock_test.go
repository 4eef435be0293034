package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{started: time.Now()}
		time.Sleep(time.Hour)
		if got := c.now(); got != time.Hour {
			t.Errorf("before the loop %v, want all of it", got)
		}
		c.sleep(time.Second)
		time.Sleep(time.Second + asleep)
		if got, want := c.now(), time.Hour+time.Second+asleep; got != want || c.gap != 0 {
			t.Errorf("a little late: %v, gap %v, want %v and none", got, c.gap, want)
		}
		c.sleep(time.Second)
		time.Sleep(8 * time.Hour) // SIGSTOP
		want := time.Hour + time.Second + asleep + time.Second
		if got := c.now(); got != want {
			t.Errorf("after SIGCONT %v, want %v", got, want)
		}
		if want := 8*time.Hour - time.Second; c.gap != want {
			t.Errorf("gap %v, want %v", c.gap, want)
		}
		time.Sleep(asleep)
		if got := c.now(); got != want+asleep {
			t.Errorf("later %v, want %v", got, want+asleep)
		}
	})
}

// TestSlowLookIsNoGap: a look that takes seconds on a thrashing node ran all the
// time, and time does not go back in it.
func TestSlowLookIsNoGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock{started: time.Now()}
		c.sleep(time.Second)
		time.Sleep(time.Second)
		last := c.now()
		for range 20 {
			time.Sleep(asleep * 9 / 10)
			now := c.now()
			if now != last+asleep*9/10 {
				t.Fatalf("%v after %v", now, last)
			}
			last = now
		}
		if c.gap != 0 {
			t.Errorf("gap %v", c.gap)
		}
	})
}

// stoppedFor is what SIGSTOP and SIGCONT to the watcher do.
func (s *stand) stoppedFor(d time.Duration) {
	s.sleep(time.Second)
	s.later(d)
}

// TestDeadlinesWaitWhileStopped: `scontrol suspend` stops the loader's workers
// as it stops us. A request is not overdue after it: no answer was possible.
func TestDeadlinesWaitWhileStopped(t *testing.T) {
	s := opened(t, withLoader(t))
	id := s.trainer(100*rss.MiB, worker1)
	s.put(worker1, id.PID, 10*rss.MiB, 800*rss.MiB)
	s.full()
	s.full()
	if s.acts.InFlight() == nil {
		t.Fatalf("no action in flight at %v of 1000 MiB", s.user().Used)
	}
	asked := s.acts.InFlight().Decision.ID
	s.stoppedFor(8 * time.Hour)
	s.full()
	if s.acts.InFlight() == nil || s.acts.InFlight().Decision.ID != asked {
		t.Errorf("given up after SIGCONT: %v", named(s.events(), event.NameOutcome))
	}
	s.told("no samples for")
	for range 10 {
		s.later(asleep)
		s.full()
		s.sleep(time.Second)
	}
	if s.acts.InFlight() != nil && s.acts.InFlight().Decision.ID == asked {
		t.Error("a request that is not answered is waited for without end")
	}
}

// TestNoRateOverAGap: growth between two distant looks gives no rate: how long it took is
// unknown.
func TestNoRateOverAGap(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Limit = 64 * rss.GiB })
	s.stoppedFor(time.Hour)
	s.put(theCommand, theHolder, 20*rss.GiB, 0)
	s.tick()
	s.full()
	if got := s.rate(s.user()).PerSecond(s.now()); got != 0 {
		t.Errorf("rate %v/s", rss.Bytes(got))
	}
	if p := s.pause(s.now()); p < 900*time.Millisecond {
		t.Errorf("pause %v after a gap with 20 GiB more, far below every rung", p)
	}
}

// TestStoppedIsNotHurriedAfter: what is stopped cannot grow, however near its
// rung it stands.
func TestStoppedIsNotHurriedAfter(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Limit = 130 * rss.MiB })
	if p := s.pause(s.now()); p >= cadence.StoppedPause/2 {
		t.Fatalf("pause %v near a rung", p)
	}
	stat := "proc/5000001/stat"
	s.fs.Replace(stat, ") S ", ") T ")
	for range 20 {
		s.full()
	}
	if p := s.pause(s.now()); p < cadence.StoppedPause*9/10 {
		t.Errorf("pause %v of a stopped command, want %v", p, cadence.StoppedPause)
	}
	s.fs.Replace(stat, ") T ", ") S ")
	s.put(theCommand, theHolder, 101*rss.MiB, 0)
	s.later(cadence.StoppedPause)
	s.tick()
	s.full()
	if p := s.pause(s.now()); p >= cadence.StoppedPause/2 {
		t.Errorf("pause %v after SIGCONT", p)
	}
}
