package supervisor

import (
	"fmt"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestGrownBeforeTheFirstLook: what workers reported before they were ever seen is learned
// from: a watcher that was started again reads it together with whose they are, and the
// next report may be hours away.
func TestGrownBeforeTheFirstLook(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(200*rss.MiB, worker1)
	s.put(worker1, id.PID, 220*rss.MiB, 0)
	for n := 8; n <= 8192; n *= 2 {
		s.log(id, fmt.Sprintf(`"what":"grown","worker":%d,"count":%d,"before":%d,"after":%d`, worker1, n, 20*rss.MiB, 20*rss.MiB))
	}
	s.open(s.holder.begin)
	e := s.workers.staff[worker1]
	if e == nil {
		t.Fatal("the worker is not seen")
	}
	if own, known := s.workers.need(e); !known || own != 20*rss.MiB {
		t.Errorf("it needs %v, known: %v", own, known)
	}
}

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
