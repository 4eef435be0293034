package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestSaidBeforeTheWatcher: what a trainer said before the first watcher was there is heard;
// a watcher that was started again does not repeat it.
func TestSaidBeforeTheWatcher(t *testing.T) {
	for attempt, want := range map[int]bool{1: true, 2: false} {
		with := withLoader(t)
		s := newStand(t, func(o *Options) { with(o); o.Link.(*fakeHolder).begin.Attempt = attempt })
		id := s.trainer(100*rss.MiB, worker1, worker2)
		s.put(theCommand, theHolder, 10*rss.MiB, 0)
		s.put(worker1, id.PID, 10*rss.MiB, 0)
		s.put(worker2, id.PID, 10*rss.MiB, 0)
		s.open(s.holder.begin)
		s.poll(true)
		all := named(s.events(), event.NameLoader)
		if got := len(all) > 0 && all[0]["what"] == string(event.LoaderHello); got != want {
			t.Errorf("attempt %d: %v", attempt, all)
		}
	}
}
