package supervisor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// TestTrimByPtraceLooksBeforeItIsContent: what was resident is an estimate, and
// others grow.
func TestTrimByPtraceLooksBeforeItIsContent(t *testing.T) {
	s := tracedStand(t, 100*rss.MiB, 700*rss.MiB)
	s.open(s.holder.begin)
	s.plans()
	for n := range 3 { // they give back nothing at all
		r := s.wanted()
		if r.Lo != address(worker2, n) {
			t.Fatalf("request %d: %+v", n, r)
		}
		s.gives(r, 700*rss.MiB, 0)
	}
	if s.acts.InFlight() == nil || len(s.holder.trims) != 1 {
		t.Fatalf("in flight %+v with %v at the holder, want the next piece", s.acts.InFlight(), s.holder.trims)
	}
}

func TestTrimByPtraceGoesOnToTheNext(t *testing.T) {
	s := tracedStand(t, 400*rss.MiB, 50*rss.MiB)
	s.put(theCommand, theHolder, 450*rss.MiB, 0)
	s.open(s.holder.begin)
	s.plans()
	s.refuses(s.wanted(), trim.Device)
	s.plans()
	r := s.wanted()
	if r.PID != worker2 {
		t.Fatalf("request %+v, want the other process", r)
	}
	s.gives(r, 2*rss.MiB, time.Millisecond)
	if s.acts.InFlight() != nil {
		s.full()
	}
	s.doesNot(event.ActionTrim)
	if left := s.leftBy(worker2); left != 1 {
		t.Errorf("left %v: all was taken, and 2 MiB touched again", left)
	}
	if h := s.can(event.ActionTrim, s.user()); h.OK || h.Reason != event.ReasonDevice {
		t.Errorf("then: %+v", h)
	}
	s.acts.Tracer.Refuse(s.view.Sample.Find(worker1).ID, action.Refused{Reason: event.ReasonDevice}) // a second time
	all := s.events()
	e := byPtrace(all)
	if len(e) != 2 || e[0]["what"] != "refused" || e[0]["pid"] != float64(worker1) || e[0]["reason"] != string(event.ReasonDevice) || e[1]["what"] != "trimmed" {
		t.Errorf("loader events %v, want each refusal once", e)
	}
	if o := named(all, event.NameOutcome); !strings.HasSuffix(o[0]["detail"].(string), "; 1 refused (has a GPU or InfiniBand device open)") {
		t.Errorf("outcomes %v", o)
	}
}

func TestTrimByPtraceUnanswered(t *testing.T) {
	s := tracedStand(t, 300*rss.MiB, 500*rss.MiB)
	s.open(s.holder.begin)
	s.plans()
	r := s.wanted()
	s.later(action.TakeDeadline)
	s.full()
	s.doesNot(event.ActionTrim)
	if h := s.can(event.ActionTrim, s.user()); h.OK || h.Reason != event.ReasonTimeout {
		t.Errorf("then: %+v", h)
	}
	s.gives(r, 450*rss.MiB, time.Hour) // too late
	if h := s.can(event.ActionTrim, s.user()); h.OK {
		t.Errorf("after a late answer: %+v", h)
	}
	all := s.events()
	if o := named(all, event.NameOutcome); len(o) == 0 || o[0]["ok"] != false || o[0]["reason"] != string(event.ReasonTimeout) {
		t.Errorf("outcomes %v", o)
	}
	f := named(all, event.NameFault)
	if !slices.ContainsFunc(f, func(e map[string]any) bool { return e["part"] == "trim" }) {
		t.Errorf("faults %v", f)
	}
}

// TestPlanThatHangs: no process is traced until the plan has come, and then it is not used.
func TestPlanThatHangs(t *testing.T) {
	s := tracedStand(t, 300*rss.MiB, 500*rss.MiB)
	release := make(chan struct{})
	s.plansBy(func(a action.PlanAsk) action.Planned {
		<-release
		return action.Planned{ID: a.ID, Pieces: []trim.Piece{{ID: a.ID, Resident: 1}}}
	})
	s.open(s.holder.begin)
	if s.acts.InFlight() == nil {
		t.Fatal("no trim")
	}
	s.later(action.TrimDeadline)
	s.full()
	s.doesNot(event.ActionTrim)
	if h := s.can(event.ActionTrim, s.user()); h.OK || h.Reason != event.ReasonTimeout {
		t.Errorf("while it hangs: %+v", h)
	}
	close(release)
	s.plans()
	if len(s.holder.trims) > 0 {
		t.Errorf("the holder was asked for %v", s.holder.trims)
	}
	if got, _ := s.acts.Tracer.Tracees(event.AccountingRSS); len(got) != 1 || got[0].ID.PID != worker1 {
		t.Errorf("then %+v, want all but the one that hung", got)
	}
}

func TestPtraceIsOffForAll(t *testing.T) {
	s := tracedStand(t, 300*rss.MiB, 500*rss.MiB)
	s.open(s.holder.begin)
	s.plans()
	s.refuses(s.wanted(), trim.Broken)
	if s.acts.InFlight() != nil && s.acts.InFlight().Decision.Action == event.ActionTrim {
		s.full()
	}
	if h := s.can(event.ActionTrim, s.user()); h.OK || h.Reason != event.ReasonGivenUp {
		t.Errorf("%+v", h)
	}
	if len(s.holder.trims) > 0 {
		t.Errorf("the holder was asked for %v", s.holder.trims)
	}
}

// TestHookIsAskedFirst, and ptrace for what is then still too much.
func TestHookIsAskedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		left rss.Bytes // of the worker with the hook
		more bool
	}{"enough": {50 * rss.MiB, false}, "not enough": {390 * rss.MiB, true}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, withLoader(t), tracing(settings.TrimAuto))
			id := s.trainer(100*rss.MiB, worker1)
			s.runs(id.PID, python)
			s.is(worker1, id.PID, "python", python, 400*rss.MiB)
			s.is(worker2, id.PID, "python", python, 270*rss.MiB) // 890 of 1000 MiB
			s.plansBy(func(a action.PlanAsk) action.Planned { return action.Planned{ID: a.ID} })
			s.open(s.holder.begin)
			if s.acts.InFlight() == nil || s.acts.Tracer.Plans.Busy() {
				t.Fatalf("in flight %+v, want the hook's trim first", s.acts.InFlight())
			}
			s.known()
			s.fs.Put(rsstest.Process{PID: worker1, Parent: id.PID, Start: 1 << 40, Comm: "python", Anon: 10 * rss.MiB, File: c.left})
			s.log(id, `"what":"trimmed","id":1,"worker":5000011,"before":419430400,"after":`+map[bool]string{true: "408944640", false: "52428800"}[c.more])
			s.full()
			if s.acts.Tracer.Plans.Busy() != c.more {
				t.Fatalf("a plan was asked for: %v, want %v", s.acts.Tracer.Plans.Busy(), c.more)
			}
			if c.more {
				s.plans()
			}
			s.doesNot(event.ActionTrim)
			if o := named(s.events(), event.NameOutcome); len(o) == 0 || o[0]["ok"] != true {
				t.Errorf("outcomes %v", o)
			}
		})
	}
}

func TestPtraceWritesNoBudget(t *testing.T) {
	s := newStand(t, withLoader(t), tracing(settings.TrimPtrace))
	s.trainer(20*rss.MiB, worker1)
	s.put(worker1, theCommand, 20*rss.MiB, 100*rss.MiB)
	s.open(s.holder.begin)
	if s.observe.Loader.Budget() != 0 {
		t.Error("workers with the hook are to keep to a budget")
	}
}

// TestLoopServesTheTracer runs the loop itself, over processes that give nothing
// back: the larger one is asked for all it has, then the other.
func TestLoopServesTheTracer(t *testing.T) {
	s := tracedStand(t, 300*rss.MiB, 500*rss.MiB)
	s.holder.wants = make(chan hold.TrimRequest)
	s.open(s.holder.begin)
	done := make(chan struct{})
	go func() {
		s.loop()
		close(done)
	}()
	for n := range 16 {
		want := address(worker2, n)
		if n >= 10 {
			want = address(worker1, n-10)
		}
		select {
		case r := <-s.holder.wants:
			if r.Lo != want {
				t.Errorf("request %d is for %x, want %x", n, r.Lo, want)
			}
			s.holder.messages <- hold.TrimAnswer{ID: r.ID}
		case <-time.After(time.Minute):
			t.Fatalf("request %d never came", n)
		}
	}
	s.holder.messages <- hold.Exit{}
	<-done
	if o := named(s.events(), event.NameOutcome); len(o) == 0 || o[0]["freed_bytes"] != 0.0 {
		t.Errorf("outcomes %v", o)
	}
}
