package tell

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// serving is a stand that clients can ask.
func serving(t *testing.T) *stand {
	t.Helper()
	s := newStand(t)
	dir, err := os.Open(t.TempDir())
	wardentest.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	wardentest.NoError(t, s.Status.Serve(dir))
	t.Cleanup(s.Status.Close)
	return s
}

// one is a rank with one process.
func one(size rss.Bytes) *Standing {
	return &Standing{
		View:  &view.View{Sample: rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 7, Start: 1}, RSS: size, State: 'S'}}}},
		Ranks: []control.Rank{{PID: 7}}, NoHook: "no loader hook",
		Step: func(rss.ProcID) string { return "0" }, Counts: func(rss.ProcID) (int, int) { return -1, 3 },
	}
}

// TestStatusIsMadeWhenAsked: a client that asks while nothing changes costs the loop
// nothing.
func TestStatusIsMadeWhenAsked(t *testing.T) {
	s := serving(t)
	made := 0
	ask := func() *control.Status {
		got := make(chan *control.Status, 1)
		go func() {
			st, err := s.Status.Source().Status(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- st
		}()
		for {
			select {
			case r := <-s.Status.Requests():
				made++
				s.Status.Answer(r, 0, one(rss.MiB))
			case st := <-got:
				return st
			}
		}
	}
	first := ask()
	if ask() != first || made != 1 {
		t.Errorf("made %d times for two that asked", made)
	}
	if s.Status.Changed(); ask() == first || made != 2 {
		t.Errorf("made %d times, want again after a change", made)
	}
}

// TestStatusOfOneRank: its processes are summed, and what is not known is not told.
func TestStatusOfOneRank(t *testing.T) {
	s := newStand(t)
	s.Status.Of(0, one(rss.MiB))
	st := s.Status.Of(2*time.Second, one(3*rss.MiB))
	k, p := st.Ranks[0], st.Procs[0]
	if k.RSS != 3*rss.MiB || k.Procs != 1 || k.Growth != float64(rss.MiB) || k.Hook != "off" || k.Why != "no loader hook" {
		t.Errorf("rank %+v", k)
	}
	if p.Growth != float64(rss.MiB) || p.Maps != 0 || p.FDs != 3 || p.PSS != nil || p.State != "S" || p.Task != 0 {
		t.Errorf("process %+v", p)
	}
	if st := s.Status.Of(3*growthKept, one(4*rss.MiB)); st.Procs[0].Growth != 0 {
		t.Errorf("growth %v since long ago", st.Procs[0].Growth)
	}
}

// TestOutcomes: the newest are kept, with what was decided.
func TestOutcomes(t *testing.T) {
	s := newStand(t)
	for i := range 2 * mostOutcomes {
		s.Status.Outcome(&event.Decision{Action: event.ActionSignal, Arg: "USR1", Rule: event.AskedFor, By: 5}, event.Outcome{Decision: uint64(i), OK: true})
	}
	last := s.Status.Of(0, one(rss.MiB)).Last
	if len(last) != mostOutcomes || last[0].Decision != 2*mostOutcomes-1 || last[0].Name() != "signal=USR1" || last[0].By != 5 {
		t.Errorf("%+v", last)
	}
}

// TestAskedAfterTheEnd: a run that has ended answers nobody, though it has answered; one
// whose socket came back does.
func TestAskedAfterTheEnd(t *testing.T) {
	s := serving(t)
	s.Status.made.Store(&control.Status{})
	asked := s.Status.Source()
	s.Status.Close()
	if _, err := asked.Events(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("events: %v", err)
	}
	if _, err := asked.Status(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("status: %v", err)
	}
	dir, err := os.Open(t.TempDir())
	wardentest.NoError(t, err)
	defer dir.Close()
	wardentest.NoError(t, s.Status.Serve(dir))
	if _, err := s.Status.Source().Events(t.Context()); err != nil {
		t.Errorf("events of a socket that came back: %v", err)
	}
}
