package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// recyclesAsked returns the workers whose replacement a trainer's control file asks for.
func (s *stand) recyclesAsked(id rss.ProcID) (workers []int) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Settings.Dir, fmt.Sprintf("ctl.%d.%d", id.PID, id.Start)))
	var c struct{ Recycle []struct{ Worker int } }
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range c.Recycle {
		workers = append(workers, r.Worker)
	}
	return workers
}

// TestHeirAndAnOldRecycle: whoever takes over finds a recycle that the dead leader
// had asked for in the control file of a trainer that looks between two batches
// alone. No second worker is replaced beside the first, however long a batch takes,
// and none is not replaced for ever.
func TestHeirAndAnOldRecycle(t *testing.T) {
	const accepted = `"what":"accepted","id":7,"n":1,"worker":5000011`
	for _, c := range []struct {
		name  string
		said  string // by the trainer before the take-over
		asked bool   // the old request stands after it
		then  string // … what it says after that
		until time.Duration
	}{
		{name: "not accepted", until: afterHeir},
		{name: "accepted, drains", said: accepted, asked: true, until: action.RecycleDeadline},
		{name: "accepted, then done", said: accepted, asked: true, then: `"what":"recycled","id":7,"n":1,"worker":5000011,"new":5000013`, until: afterHeir},
		{name: "accepted as it was withdrawn", then: accepted, until: action.RecycleDeadline},
		{name: "its loader has ended", said: accepted, asked: true, then: `"what":"ended","n":1`, until: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := withLoader(t)
			s := newStand(t, func(o *Options) { with(o); o.Settings.Rules = mustRules("90%:recycle") })
			id := s.trainer(100*rss.MiB, worker1, worker2)
			s.file("ctl", id, `{"v":1,"last":7,"budget":0,"trim":[],"recycle":[{"id":7,"worker":5000011,"mode":"drain"}]}`)
			if c.said != "" {
				s.log(id, c.said)
			}
			s.put(worker1, id.PID, 300*rss.MiB, 0)
			s.put(worker2, id.PID, 400*rss.MiB, 0) // 900 MiB
			s.put(worker3, id.PID, 20*rss.MiB, 0)
			s.peers.heir = true
			s.open(s.holder.begin)
			if got := len(s.recyclesAsked(id)) > 0; got != c.asked || s.flight != nil {
				t.Fatalf("asked %v after the take-over, want %v; in flight %+v", got, c.asked, s.flight)
			}
			if c.then != "" {
				s.log(id, c.then)
				s.full()
			}
			if c.until == 0 {
				if s.later(afterHeir); s.loader.Inherited() {
					t.Error("it is waited for")
				}
				return
			}
			s.later(s.peers.from + c.until - 700*time.Millisecond - s.now()) // this machine may be slow
			s.full()
			if s.flight != nil {
				t.Fatalf("in flight %+v, %v after the take-over", s.flight.decision, s.now())
			}
			s.later(time.Second)
			s.full()
			if f := s.flight; f == nil || f.decision.Action != event.ActionRecycle {
				t.Fatalf("nothing in flight %v after the take-over", s.now())
			}
			if got := s.recyclesAsked(id); got[len(got)-1] != worker2 {
				t.Errorf("asked for %v, want the larger one", got)
			}
		})
	}
}

// TestHeirInAHurry: where the limit is near whoever takes over does not look on for a
// second.
func TestHeirInAHurry(t *testing.T) {
	for _, c := range []struct {
		at, left time.Duration
		waits    bool
	}{
		{500 * time.Millisecond, 0, true}, // nothing grows
		{500 * time.Millisecond, time.Minute, true},
		{500 * time.Millisecond, 2 * time.Second, false},
		{50 * time.Millisecond, 2 * time.Second, true},
		{afterHeir, 0, false},
	} {
		s := newStand(t, withLoader(t))
		s.open(s.holder.begin)
		s.peers.heir, s.peers.from = true, time.Minute
		if waits := s.recycledBefore(time.Minute+c.at, c.left); waits != c.waits {
			t.Errorf("%v after the take-over, %v to the limit: waits %v", c.at, c.left, waits)
		}
	}
}
