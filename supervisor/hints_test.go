package supervisor

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestStallsDecideNothing: what the kernel tells of stalls brings a look forward, and
// what is seen in it counts alone: neither that others of the node wait for memory,
// nor that some did a while ago, is a reason to act.
//
// C2: pressure with memory free. C3: pressure that a kernel tells wrongly.
// C4: pressure that stays high after it was relieved.
func TestStallsDecideNothing(t *testing.T) {
	s := opened(t, func(o *Options) { o.Settings.Interval = time.Hour; o.Settings.Limit = 32 * rss.GiB })
	s.stalled = &notifier{wake: make(chan struct{}, 1)}
	before := s.seq
	go func() {
		for range 50 {
			s.stalled.tell()
			time.Sleep(5 * time.Millisecond)
		}
		s.holder.exited <- hold.Exit{}
	}()
	s.loop()
	if n := s.seq - before; n < 2 || n > 20 {
		t.Errorf("%d looks in full for 50 stalls in 250 ms", n)
	}
	if d := named(s.events(), event.NameDecision); len(d) != 0 {
		t.Errorf("decided %v at 100 MiB of 32 GiB", d)
	}
}

// TestNoLeaveToAskForStalls: older kernels let only root ask. That is no fault, as
// nothing rests on the answer.
//
// C9: no permission to set a trigger.
func TestNoLeaveToAskForStalls(t *testing.T) {
	fs := rsstest.Empty(t)
	fs.Write("proc/pressure/memory", "some avg10=0.00\n")
	if err := os.Chmod(fs.Path("proc/pressure/memory"), 0o444); err != nil {
		t.Fatal(err)
	}
	// testing makes its directory for its own user alone.
	for _, dir := range []string{filepath.Dir(fs.Dir), fs.Dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	if n, err := newStalled(fs.Proc); n != nil || err != nil {
		t.Errorf("%v, %v where it may only be read", n, err)
	}
}
