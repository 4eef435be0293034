package loader

import (
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader/torchtest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// successor goes on with a training in the place of a watcher that died.
func (tr *training) successor() {
	tr.t.Helper()
	c, err := Open(tr.dir)
	wardentest.NoError(tr.t, err)
	tr.t.Cleanup(c.Close)
	tr.ctl = c
	tr.poll()
}

// TestOldRecycleIsWithdrawn: what a watcher asked of a trainer that was not looking
// is not done after its death, and what the next one asks for is.
func TestOldRecycleIsWithdrawn(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, on *stand) {
		tr := train(t, trainOptions{on: on, args: "--part 200 --step 0.01"})
		worker := tr.some()[0]
		trainer := tr.ctl.Trainers()[0].ID.PID
		wardentest.NoError(t, syscall.Kill(trainer, syscall.SIGSTOP))
		old, err := tr.ctl.Recycle(worker, event.Drain)
		wardentest.NoError(t, err)
		tr.said = nil
		tr.successor()
		if n := tr.ctl.Withdrawn(); n != 1 || tr.ctl.Inherited() {
			t.Errorf("%d withdrawn, inherited %v", n, tr.ctl.Inherited())
		}
		wardentest.NoError(t, syscall.Kill(trainer, syscall.SIGCONT))
		tr.recycle(2, event.Swap)
		if out := tr.finish(); out.Wrong != 0 || out.Errors != 0 {
			t.Errorf("%+v", out)
		}
		for _, s := range tr.said {
			if s.Request == old {
				t.Errorf("said of the old request: %+v", s)
			}
		}
	})
}

// TestOldRecycleOfAnEpoch: what waits for a loader's next epoch is not forgotten with
// the watcher that asked for it, and done once.
func TestOldRecycleOfAnEpoch(t *testing.T) {
	t.Parallel()
	torchtest.Each(t, func(t *testing.T, on *stand) {
		tr := stream(t, on, "--break-at 20")
		old := tr.some()
		id, err := tr.ctl.Recycle(old[0], event.Swap)
		wardentest.NoError(t, err)
		tr.until("an answer", func() bool { return len(tr.heard(event.LoaderAccepted, id)) > 0 })
		tr.said = nil
		tr.successor()
		if n := tr.ctl.Withdrawn(); n != 0 || tr.ctl.Inherited() {
			t.Errorf("%d withdrawn, inherited %v", n, tr.ctl.Inherited())
		}
		tr.until("the end of it", func() bool {
			_, ok := tr.last(id)
			return ok && len(tr.heard(event.LoaderRecycled, 0)) == len(old) // all workers of the loader, in one go
		})
		tr.renew() // and the next one is asked for as ever
		tr.finish()
		if a, r := len(tr.heard(event.LoaderAccepted, id)), len(tr.heard(event.LoaderRecycled, id)); a != 1 || r != 1 {
			t.Errorf("accepted %d times, replaced %d times: %+v", a, r, tr.said)
		}
	})
}

// TestInheritedRequests: of what an earlier watcher asked for stays what was accepted
// and is not answered yet.
func TestInheritedRequests(t *testing.T) {
	s := newScripted(t)
	s.loader(101, 102, 103, 104)
	s.expect(event.LoaderHello, event.LoaderIter)
	_, _, err := s.Trim()
	wardentest.NoError(t, err)
	for worker := 101; worker <= 104; worker++ {
		_, err := s.Recycle(worker, event.Drain)
		wardentest.NoError(t, err)
	}
	s.log(`{"what":"accepted","pid":1,"worker":101,"id":2,"n":1}` + "\n" +
		`{"what":"accepted","pid":1,"worker":102,"id":3,"n":1,"why":"` + string(event.ReasonDeferred) + `"}` + "\n" +
		`{"what":"accepted","pid":1,"worker":103,"id":4,"n":1}` + "\n" + `{"what":"recycled","pid":1,"worker":103,"new":105,"id":4,"n":1}` + "\n")
	successor, err := Open(s.dir)
	wardentest.NoError(t, err)
	defer successor.Close()
	wardentest.NoError(t, successor.SetBudget(100*rss.MiB))
	s.Control = successor
	s.Poll(true)
	want := ctl{V: 1, Last: 5, Budget: 100 * rss.MiB, Trim: []ctlSeveral{}, Recycle: []ctlRecycle{{2, 101, event.Drain}, {3, 102, event.Drain}}}
	if got := s.ctl(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if n := successor.Withdrawn(); n != 1 || !successor.Inherited() {
		t.Errorf("%d withdrawn, inherited %v", n, successor.Inherited())
	}
	s.log(`{"what":"recycled","pid":1,"worker":101,"new":106,"id":2,"n":1}` + "\n")
	s.expect(event.LoaderRecycled)
	if successor.Inherited() {
		t.Error("it is waited for what has ended")
	}
	if id, err := successor.Recycle(104, event.Swap); err != nil || id != 6 {
		t.Errorf("request %d, %v", id, err)
	}
	if got, want := s.ctl().Recycle, []ctlRecycle{{3, 102, event.Drain}, {6, 104, event.Swap}}; !reflect.DeepEqual(got, want) {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
}

// TestInheritedAfterAll: what was accepted may follow megabytes.
func TestInheritedAfterAll(t *testing.T) {
	s := newScripted(t)
	s.loader(101)
	s.expect(event.LoaderHello, event.LoaderIter)
	id, err := s.Recycle(101, event.Drain)
	wardentest.NoError(t, err)
	line := `{"what":"trimmed","pid":101,"worker":101}` + "\n"
	s.log("%s", strings.Repeat(line, (maxBehind+2)*readChunk/len(line)+1)+`{"what":"accepted","pid":1,"worker":101,"id":1,"n":1}`+"\n")
	successor, err := Open(s.dir)
	wardentest.NoError(t, err)
	defer successor.Close()
	s.Control = successor
	successor.Poll(true)
	if err := successor.SetBudget(rss.GiB); err != nil || !successor.Inherited() {
		t.Errorf("%v, inherited %v before all was read", err, successor.Inherited())
	}
	if c := s.ctl(); c.Budget != 0 || len(c.Recycle) != 1 {
		t.Errorf("%+v before all was read", c)
	}
	for range 4 {
		successor.Poll(true)
	}
	if c := s.ctl(); c.Budget != rss.GiB || len(c.Recycle) != 1 || c.Recycle[0].ID != id || successor.Withdrawn() != 0 {
		t.Errorf("%+v, %d withdrawn", c, successor.Withdrawn())
	}
}
