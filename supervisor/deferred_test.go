package supervisor

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestDeferredIsNoFailure has a loader put a recycle off to its next epoch: the
// outcome says just that, no other worker of that loader is asked meanwhile, and
// what is replaced in the end is counted.
func TestDeferredIsNoFailure(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(100*rss.MiB, worker1, worker2)
	s.put(worker1, id.PID, 300*rss.MiB, 10*rss.MiB)
	s.put(worker2, id.PID, 400*rss.MiB, 10*rss.MiB)
	s.open(s.holder.begin)
	s.does(event.ActionRecycle)
	const why = `,"why":"put off to the loader's next epoch"`
	s.log(id, `"what":"accepted","id":1,"n":1,"worker":5000012`+why)
	s.full()
	wardentest.Has(t, s.last(event.NameOutcome), "ok", false, "reason", string(event.ReasonDeferred), "freed_bytes", 0.0)
	s.told("92 %: recycle worker 5000012: waits for the loader's next epoch\n")
	s.times(0, "failed")
	s.full()
	if s.acts.InFlight() != nil || s.tell.Sum.Saved.Sum(event.ActionRecycle).Worked != 0 || s.tell.Sum.Saved.Recycled != 0 {
		t.Errorf("in flight %+v, summary %+v", s.acts.InFlight(), s.tell.Sum)
	}
	s.log(id, `"what":"recycled","id":1,"n":2,"worker":5000012,"new":5000013,"pause_ms":20`+why)
	s.log(id, `"what":"recycled","id":0,"n":2,"worker":5000011,"new":5000014`+why)
	s.full()
	if s.tell.Sum.Saved.Recycled != 2 {
		t.Errorf("summary %+v", s.tell.Sum)
	}
}
