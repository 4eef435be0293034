package supervisor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/cadence"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

const python = "/usr/bin/python3.11"

// tracedStand is a stand, not opened yet, under --trim ptrace with 100 MiB of
// the command's and two processes that have so much mapped. Each is planned for
// in pieces of 50 MiB, the n-th of PID p at address p<<8 + n.
func tracedStand(t *testing.T, file1, file2 rss.Bytes) *stand {
	s := newStand(t, tracing(settings.TrimPtrace))
	s.put(worker1, theCommand, 0, file1)
	s.put(worker2, theCommand, 0, file2)
	size := map[int]rss.Bytes{worker1: file1, worker2: file2}
	s.plansBy(func(a action.PlanAsk) action.Planned {
		p := action.Planned{ID: a.ID}
		for at := rss.Bytes(0); at+50*rss.MiB <= size[a.ID.PID]; at += 50 * rss.MiB {
			p.Pieces = append(p.Pieces, trim.Piece{ID: a.ID, Lo: address(a.ID.PID, len(p.Pieces)), Resident: 50 * rss.MiB})
		}
		return p
	})
	return s
}

func address(pid, piece int) uint64 { return uint64(pid)<<8 + uint64(piece) }

// step does what the loop does with what arrives.
func (s *stand) step(full bool) {
	if full {
		s.full()
	}
}

// plansBy has plans read by the test.
func (s *stand) plansBy(read func(action.PlanAsk) action.Planned) {
	s.acts.Tracer.Plans = probe.New(&s.probes, read)
}

// plans waits for the plan that was asked for and takes it in.
func (s *stand) plans() {
	s.t.Helper()
	if !s.acts.Tracer.Plans.Wait(time.Minute) {
		s.t.Fatal("no plan came")
	}
	s.step(s.acts.Planned())
}

// wanted returns the piece that the holder was asked for last, once.
func (s *stand) wanted() hold.TrimRequest {
	s.t.Helper()
	if len(s.holder.trims) != 1 {
		s.t.Fatalf("the holder has %+v, want one request", s.holder.trims)
	}
	r := s.holder.trims[0]
	s.holder.trims = nil
	return r
}

// gives answers a request. The process has so much left.
func (s *stand) gives(r hold.TrimRequest, left rss.Bytes, stop time.Duration) {
	s.t.Helper()
	s.put(r.PID, theCommand, 0, left)
	s.acts.Trimmed(hold.TrimAnswer{ID: r.ID, Stop: stop})
	s.step(s.acts.Advance())
	if f := s.acts.InFlight(); f != nil && f.Running != nil && action.Wakes(f.Running) != 0 {
		s.rings(actionDue) // it runs for as long as it stood still
		s.step(s.acts.Advance())
	}
}

// rings waits until the bell has rung for this.
func (s *stand) rings(why wake.Cause) {
	s.t.Helper()
	for rung := wake.Cause(0); rung&why == 0; rung = s.bell.Causes() {
		yields(s.t, s.bell.C(), time.Minute)
	}
}

func (s *stand) refuses(r hold.TrimRequest, why trim.Refusal) {
	s.t.Helper()
	s.acts.Trimmed(hold.TrimAnswer{ID: r.ID, Refusal: uint8(why)})
	s.step(s.acts.Advance())
}

// said are the loader events that ptrace caused.
func byPtrace(all []map[string]any) []map[string]any {
	var some []map[string]any
	for _, e := range named(all, event.NameLoader) {
		if e["by"] == event.ByPtrace {
			some = append(some, e)
		}
	}
	return some
}

// tracing gives the watcher that --trim.
func tracing(m settings.TrimMode) func(*Options) {
	return func(o *Options) { o.Settings.Trim = m }
}

// runs says which program a process of the made-up tree runs.
func (s *stand) runs(pid int, program string) {
	s.t.Helper()
	name := s.fs.Path(fmt.Sprintf("proc/%d/exe", pid))
	_ = os.Remove(name) // it may not be there
	wardentest.NoError(s.t, os.Symlink(program, name))
}

// is writes a process of the made-up tree with its name and program.
func (s *stand) is(pid, parent int, comm, program string, file rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: 1 << 40, Comm: comm, Anon: 10 * rss.MiB, File: file})
	s.runs(pid, program)
}

// known reads until the environment of every process was read.
func (s *stand) known() {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for s.read(); s.observe.Workers.Unread(); s.read() {
		if time.Now().After(deadline) {
			s.t.Fatal("environments are not read")
		}
	}
}

// leftBy is what the last trim left a process of mapped pages, as far as that is known.
func (s *stand) leftBy(pid int) rss.Bytes {
	return rss.GiB - s.observe.Workers.Trimmable(workers.Usage{ID: rss.ProcID{PID: pid}, Mapped: rss.GiB, CountedMapped: rss.GiB})
}

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

// TestHandsPanic: a bug in a trim is a refusal, and not the holder's end.
func TestHandsPanic(t *testing.T) {
	do := hands(func(trim.Piece) trim.Answer { panic("a bug") })
	if got, want := do(hold.TrimRequest{PID: 1}), (hold.TrimAnswer{Refusal: uint8(trim.Failed)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
