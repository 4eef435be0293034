package supervisor

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// tracing gives the watcher that --trim.
func tracing(m TrimMode) func(*Options) {
	return func(o *Options) { o.Settings.Trim = m }
}

// runs says which program a process of the made-up tree runs.
func (s *stand) runs(pid int, program string) {
	s.t.Helper()
	name := s.fs.Path(fmt.Sprintf("proc/%d/exe", pid))
	_ = os.Remove(name) // it may not be there
	if err := os.Symlink(program, name); err != nil {
		s.t.Fatal(err)
	}
}

// is writes a process of the made-up tree with its name and program.
func (s *stand) is(pid, parent int, comm, program string, file rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: pid, Parent: parent, Start: 1 << 40, Comm: comm, Anon: 10 * rss.MiB, File: file})
	s.runs(pid, program)
}

// pids are those of the processes that would be traced, in this order.
func (s *stand) pids(a event.Accounting) []int {
	list, _ := s.tracees(a)
	var pids []int
	for _, m := range list {
		pids = append(pids, m.ID.PID)
	}
	return pids
}

// known reads until the environment of every process was read.
func (s *stand) known() {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s.read()
		if !slices.ContainsFunc(s.last.Procs, func(p rss.Proc) bool {
			_, read := s.workers.roles.places.of(&p)
			return !read
		}) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("environments are not read")
		}
	}
}

const python = "/usr/bin/python3.11"

// TestWhoIsALoaderWorker: the command is python, and what it started is python
// as well unless a row says otherwise.
func TestWhoIsALoaderWorker(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*stand)
		auto    bool
	}{
		"a fork of the command": {func(*stand) {}, true},
		"the only fork":         {func(s *stand) { s.fs.Remove(fmt.Sprintf("proc/%d", worker3)) }, false},
		"the only one left": {func(s *stand) {
			s.open(s.holder.begin)
			s.known()
			s.pids(event.AccountingRSS)
			s.fs.Remove(fmt.Sprintf("proc/%d", worker3))
		}, true},
		"another program":             {func(s *stand) { s.runs(worker1, "/usr/bin/perl") }, false},
		"one that cannot be read":     {func(s *stand) { s.fs.Remove(fmt.Sprintf("proc/%d/exe", worker1)) }, false},
		"another name":                {func(s *stand) { s.is(worker1, theCommand, "wandb-service", python, 200*rss.MiB) }, false},
		"named by PyTorch 2.6":        {func(s *stand) { s.is(worker1, theCommand, "pt_data_worker", python, 200*rss.MiB) }, true},
		"named so by another program": {func(s *stand) { s.is(worker1, theCommand, "pt_data_worker", "/bin/x", 200*rss.MiB) }, false},
		"an orphan":                   {func(s *stand) { s.is(worker1, 1, "python", python, 200*rss.MiB) }, false},
		"a trainer with workers": {func(s *stand) {
			s.is(worker2, worker1, "python", python, rss.MiB)
		}, false},
		"a trainer between two epochs": {func(s *stand) {
			s.is(worker2, worker1, "python", python, rss.MiB)
			s.open(s.holder.begin)
			s.known()
			s.pids(event.AccountingRSS)
			s.fs.Remove(fmt.Sprintf("proc/%d", worker2))
		}, false},
		"with a helper of another kind": {func(s *stand) { s.is(worker2, worker1, "gzip", "/bin/gzip", rss.MiB) }, true},
		"a rank": {func(s *stand) {
			s.fs.Write(fmt.Sprintf("proc/%d/environ", worker1), "LOCAL_RANK=0\x00")
		}, false},
		"too small": {func(s *stand) { s.is(worker1, theCommand, "python", python, trimFloor+3*rss.MiB) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for mode, want := range map[TrimMode]bool{TrimAuto: c.auto, TrimPtrace: name != "too small"} {
				s := newStand(t, tracing(mode))
				s.runs(theCommand, python)
				s.is(worker1, theCommand, "python", python, 200*rss.MiB)
				s.is(worker3, theCommand, "python", python, rss.MiB)
				c.prepare(s)
				if s.seq == 0 {
					s.open(s.holder.begin)
				}
				s.known()
				if s.last.Find(worker1) == nil {
					want = false // an orphan of before we came is no part of the tree
				}
				if got := slices.Contains(s.pids(event.AccountingRSS), worker1); got != want {
					t.Errorf("--trim %s: %v, want %v", mode, got, want)
				}
			}
		})
	}
}

func TestNeverTracedUnderAuto(t *testing.T) {
	with := withLoader(t)
	s := newStand(t, func(o *Options) { with(o); tracing(TrimAuto)(o) })
	id := s.trainer(20*rss.MiB, worker1)
	s.is(theCommand, theHolder, "python", python, 0)
	s.fs.Put(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", File: 90 * rss.MiB})
	s.fs.Put(rsstest.Process{PID: id.PID, Parent: theCommand, Start: id.Start, Comm: "python", File: 90 * rss.MiB})
	s.runs(id.PID, python)
	s.is(worker1, id.PID, "python", python, 90*rss.MiB) // has the hook
	s.is(worker2, id.PID, "python", python, 90*rss.MiB) // of a pool of its own
	s.is(worker3, theCommand, "python", python, 0)
	s.open(s.holder.begin)
	s.known()
	if got := s.pids(event.AccountingRSS); !slices.Equal(got, []int{worker2}) {
		t.Errorf("traced %v, want the one without the hook", got)
	}
	s.Settings.Trim = TrimPtrace
	if got := s.pids(event.AccountingRSS); len(got) != 4 {
		t.Errorf("--trim ptrace: %v, want trainer and command, too", got)
	}
}

func TestMatchedWorkersAreTraced(t *testing.T) {
	s := opened(t, tracing(TrimAuto))
	s.is(worker1, theCommand, "reader", "/opt/reader", 200*rss.MiB)
	s.read()
	if got := s.pids(event.AccountingRSS); len(got) > 0 {
		t.Fatalf("traced %v", got)
	}
	s.last.Find(worker1).Role = rss.RoleWorker // as --worker-match makes it
	if got := s.pids(event.AccountingRSS); !slices.Equal(got, []int{worker1}) {
		t.Errorf("traced %v", got)
	}
}

// TestTraceesAreInTheOrderOfGain: as the limit counts, which is not as they are
// large.
func TestTraceesAreInTheOrderOfGain(t *testing.T) {
	s := opened(t, tracing(TrimPtrace))
	s.put(worker1, theCommand, 0, 300*rss.MiB)
	s.put(worker2, theCommand, 0, 200*rss.MiB)
	s.put(worker3, theCommand, 0, 100*rss.MiB)
	s.read()
	if got := s.pids(event.AccountingRSS); !slices.Equal(got, []int{worker1, worker2, worker3}) {
		t.Errorf("rss: %v", got)
	}
	for pid, pss := range map[int]rss.Bytes{worker1: 30, worker2: 100, worker3: 50} {
		p := s.last.Find(pid)
		p.PSS = &rss.PSS{PSS: pss * rss.MiB, RSS: p.RSS}
	}
	if got := s.pids(event.AccountingPSS); !slices.Equal(got, []int{worker2, worker3, worker1}) {
		t.Errorf("pss: %v", got)
	}
	s.workers.left[worker2] = 198 * rss.MiB // what the last trim left
	if got := s.pids(event.AccountingRSS); !slices.Equal(got, []int{worker1, worker3}) {
		t.Errorf("after a trim: %v", got)
	}
}

func TestCanTrimByPtrace(t *testing.T) {
	rssLimit := &event.Limit{Accounting: event.AccountingRSS}
	s := opened(t, tracing(TrimAuto))
	s.runs(theCommand, python)
	because := func(want event.Reason) {
		t.Helper()
		s.known()
		if h := s.canTrim(rssLimit); h.OK || h.Reason != want {
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
	if h := s.canTrim(rssLimit); !h.OK || h.Gain != 300*rss.MiB {
		t.Errorf("%+v, want what lies above the floor, 300 MiB", h)
	}
	for _, acc := range []event.Accounting{event.AccountingCgroup, event.AccountingNoShared} {
		if h := s.canTrim(&event.Limit{Accounting: acc}); h.OK || h.Reason != event.ReasonNoHelp {
			t.Errorf("%q: %+v", acc, h)
		}
	}

	s.refuse(s.last.Find(worker1).ID, action.Refused{Reason: event.ReasonDevice})
	s.refuse(s.last.Find(worker2).ID, action.Refused{Reason: event.ReasonTraced, Passing: true})
	because(event.ReasonTraced) // of the one with most
	s.later(action.TracePause)
	s.known()
	if h := s.canTrim(rssLimit); !h.OK || h.Gain != 200*rss.MiB {
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
	if h := s.canTrim(rssLimit); !h.OK {
		t.Errorf("another process with its PID: %+v", h)
	}
	s.tracer.asked = 9
	because(event.ReasonTimeout)
	s.tracer.asked = 0
	s.traceNoMore(event.ReasonGivenUp, "x")
	because(event.ReasonGivenUp)
}

// TestCanTrimAddsUp what the hook and what ptrace can give back.
func TestCanTrimAddsUp(t *testing.T) {
	with := withLoader(t)
	s := newStand(t, func(o *Options) { with(o); tracing(TrimAuto)(o) })
	id := s.trainer(20*rss.MiB, worker1)
	s.runs(id.PID, python)
	s.is(worker1, id.PID, "python", python, 132*rss.MiB)
	s.is(worker2, id.PID, "python", python, 92*rss.MiB)
	s.open(s.holder.begin)
	s.known()
	if h := s.canTrim(s.user()); !h.OK || h.Gain != 160*rss.MiB {
		t.Errorf("%+v, want 100 and 60 MiB", h)
	}
	s.Settings.Trim = TrimPtrace // the hook is asked for nothing
	if h := s.canTrim(s.user()); !h.OK || h.Gain != 160*rss.MiB {
		t.Errorf("%+v, want both by ptrace", h)
	}
	s.Settings.Trim = TrimHook
	if h := s.canTrim(s.user()); !h.OK || h.Gain != 100*rss.MiB {
		t.Errorf("%+v, want that of the hook alone", h)
	}
	s.Settings.Trim = TrimAuto
	s.Attached = &Attached{NoHook: "x"}
	if s.traces() {
		t.Error("what somebody else started would be traced")
	}
}

// TestNotKnownYet: a rank that has just been forked looks like a worker until its
// environment was read.
func TestNotKnownYet(t *testing.T) {
	s := opened(t, tracing(TrimAuto))
	s.runs(theCommand, python)
	s.is(worker1, theCommand, "python", python, 200*rss.MiB)
	s.is(worker3, theCommand, "python", python, rss.MiB)
	s.known()
	p := s.last.Find(worker1)
	s.workers.roles.places.seen[rankKey{p.ID, p.Comm}] = &rankOf{ranks: noRanks}
	if h := s.canTrim(s.user()); h.OK || !h.Later {
		t.Errorf("%+v, want that it is not known yet", h)
	}
	s.environ(worker1, "A=b\x00")
	if h := s.canTrim(s.user()); !h.OK {
		t.Errorf("%+v", h)
	}
}
