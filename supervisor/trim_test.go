package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/settings"
)

// TestTrimByPtraceAheadOfGrowth: what grows fast is trimmed before its rung, by
// what it grows until that takes effect.
func TestTrimByPtraceAheadOfGrowth(t *testing.T) {
	s := tracedStand(t, 100*rss.MiB, 300*rss.MiB)
	s.open(s.holder.begin)
	l := &s.view.Limits[0]
	if got := s.acts.UntilTraced(l); got != 0 || s.acts.InFlight() != nil {
		t.Fatalf("nothing grows, and %v are expected; in flight %+v", got, s.acts.InFlight())
	}
	if p := s.pause(s.now()); p > cadence.TracedPause {
		t.Errorf("the next look is in %v, want one in %v", p, cadence.TracedPause)
	}
	now := s.now()
	s.rate(l).Add(now+time.Second, l.Used+400*rss.MiB)
	s.later(time.Second)
	lead := s.acts.UntilTraced(l)
	if lead < 100*rss.MiB || lead > 200*rss.MiB {
		t.Errorf("at 400 MiB a second %v are expected in half a second", lead)
	}
	for _, a := range []event.Action{event.ActionWarn, event.ActionRecycle} {
		if got := s.acts.Lead(a, l); got != 0 {
			t.Errorf("%s: %v", a, got)
		}
	}
	s.Settings.Trim = settings.TrimHook
	if got := s.acts.Lead(event.ActionTrim, l); got != 0 {
		t.Errorf("by the hook, which has budgets: %v", got)
	}
}

func TestCanTrimByPtrace(t *testing.T) {
	rssLimit := &event.Limit{Accounting: event.AccountingRSS}
	s := opened(t, tracing(settings.TrimAuto))
	s.runs(theCommand, python)
	because := func(want event.Reason) {
		t.Helper()
		s.known()
		if h := s.can(event.ActionTrim, rssLimit); h.OK || h.Reason != want {
			t.Errorf("%+v, want %q", h, want)
		}
	}
	because(event.ReasonNoWorker)
	s.fs.Put(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", File: 200 * rss.MiB})
	because(event.ReasonIsTrainer)
	s.is(worker1, theCommand, "python", python, 30*rss.MiB)
	because(event.ReasonIsTrainer)
	s.put(theCommand, theHolder, 0, 0)
	because(event.ReasonNoWorker) // one fork alone may be a trainer that a script started
	s.is(worker2, theCommand, "python", python, 30*rss.MiB)
	because(event.ReasonNothing)

	s.is(worker1, theCommand, "python", python, 132*rss.MiB)
	s.is(worker2, theCommand, "python", python, 232*rss.MiB)
	s.known()
	if h := s.can(event.ActionTrim, rssLimit); !h.OK || h.Gain != 300*rss.MiB {
		t.Errorf("%+v, want what lies above the floor, 300 MiB", h)
	}
	for _, acc := range []event.Accounting{event.AccountingCgroup, event.AccountingNoShared} {
		if h := s.can(event.ActionTrim, &event.Limit{Accounting: acc}); h.OK || h.Reason != event.ReasonNoHelp {
			t.Errorf("%q: %+v", acc, h)
		}
	}

	s.acts.Tracer.Refuse(s.view.Sample.Find(worker1).ID, action.Refused{Reason: event.ReasonDevice})
	s.acts.Tracer.Refuse(s.view.Sample.Find(worker2).ID, action.Refused{Reason: event.ReasonTraced, Passing: true})
	because(event.ReasonTraced) // of the one with most
	s.later(action.TracePause)
	s.known()
	if h := s.can(event.ActionTrim, rssLimit); !h.OK || h.Gain != 200*rss.MiB {
		t.Errorf("after the pause: %+v, want 200 MiB of the second", h)
	}
	s.fs.End(worker2)
	s.later(time.Hour)
	because(event.ReasonDevice)
	s.fs.End(worker1)
	because(event.ReasonNoWorker)
	s.is(worker1, theCommand, "python", python, 0)
	s.fs.Put(rsstest.Process{PID: worker1, Parent: theCommand, Start: 1<<40 + 1, Comm: "python", File: 132 * rss.MiB})
	s.known()
	if h := s.can(event.ActionTrim, rssLimit); !h.OK {
		t.Errorf("another process with its PID: %+v", h)
	}
	s.acts.Tracer.NoMore(event.ReasonGivenUp, "x")
	because(event.ReasonGivenUp)
}

// TestCanTrimAddsUp what the hook and what ptrace can give back.
func TestCanTrimAddsUp(t *testing.T) {
	s := newStand(t, withLoader(t), tracing(settings.TrimAuto))
	id := s.trainer(20*rss.MiB, worker1)
	s.runs(id.PID, python)
	s.is(worker1, id.PID, "python", python, 132*rss.MiB)
	s.is(worker2, id.PID, "python", python, 92*rss.MiB)
	s.open(s.holder.begin)
	s.known()
	if h := s.can(event.ActionTrim, s.user()); !h.OK || h.Gain != 160*rss.MiB {
		t.Errorf("%+v, want 100 and 60 MiB", h)
	}
	s.Settings.Trim = settings.TrimPtrace // the hook is asked for nothing
	if h := s.can(event.ActionTrim, s.user()); !h.OK || h.Gain != 160*rss.MiB {
		t.Errorf("%+v, want both by ptrace", h)
	}
	s.Settings.Trim = settings.TrimHook
	if h := s.can(event.ActionTrim, s.user()); !h.OK || h.Gain != 100*rss.MiB {
		t.Errorf("%+v, want that of the hook alone", h)
	}
	s.Settings.Trim = settings.TrimAuto
	s.acts.Able = attach.FromOutside("x", nil)
	if h := s.can(event.ActionTrim, s.user()); !h.OK || h.Gain != 100*rss.MiB {
		t.Errorf("%+v: what was started by others would be traced", h)
	}
}
