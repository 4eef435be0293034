package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestStallsDecideNothing: the kernel's report of a stall brings a look forward, and only
// what that look reads counts: neither that others of the node wait for memory,
// nor that some did a while ago, is a reason to act.
//
// C2: pressure with memory free. C3: pressure that a kernel tells wrongly.
// C4: pressure that stays high after it was relieved.
func TestStallsDecideNothing(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Interval = time.Hour; o.Settings.Limit = 32 * rss.GiB })
	before := s.view.Sample.Seq
	go func() {
		for range 50 {
			s.bell.Ring(stalled)
			time.Sleep(5 * time.Millisecond)
		}
		s.holder.messages <- hold.Exit{}
	}()
	s.loop()
	if n := s.view.Sample.Seq - before; n < 2 || n > 20 {
		t.Errorf("%d looks in full for 50 stalls in 250 ms", n)
	}
	if d := named(s.events(), event.NameDecision); len(d) != 0 {
		t.Errorf("decided %v at 100 MiB of 32 GiB", d)
	}
}
