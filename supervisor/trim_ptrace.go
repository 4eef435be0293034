package supervisor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// tracer has the holder trim processes by ptrace, which Yama allows it as their
// ancestor, and remembers which could not be.
type tracer struct {
	*probe.Reader[planAsk, plan]
	plan     plan
	was      rss.Proc    // the process that was planned for, as it was then
	wakes    *time.Timer // for the action in flight; nil before the first
	asked    uint64      // what the holder is at, 0 for nothing
	askedFor trim.Sized  // what it is at
	times    traceTimes
	pace     trim.Pace
	last     uint64                  // number of the last piece
	off      event.Reason            // why nothing is traced any more in this run
	refused  map[rss.ProcID]*refusal // while they live
}

// refusal is why a process was not traced when it was last tried.
type refusal struct {
	reason event.Reason
	until  time.Duration // may be tried again then; 0 for never
	told   []event.Reason
}

// arrivals are what came for an action in flight since it looked last.
type arrivals struct {
	planned []action.Planned
	taken   []action.Taken
}

// newTracer numbers pieces beyond those of watchers before it: an answer that
// the holder owed to one may come to this one.
func newTracer(plans *probe.Reader[planAsk, plan], attempt int) tracer {
	return tracer{
		Reader: plans, last: uint64(attempt) << 32,
		refused: map[rss.ProcID]*refusal{},
	}
}

// heardPlan takes in the plan that came, if one did, and says whether a full look is
// called for.
func (w *watcher) heardPlan() (full bool) {
	p, ok := w.tracer.Take()
	if !ok {
		return false
	}
	w.tracer.plan = p
	w.came.planned = append(w.came.planned, p.Planned)
	return w.advance()
}

// taken takes the holder's answer to a piece in.
func (w *watcher) taken(a hold.TrimAnswer) {
	if a.ID == 0 || a.ID != w.tracer.asked {
		return // to a watcher before this one
	}
	w.tracer.asked = 0
	if a.Refusal == uint8(trim.None) {
		if f := w.flight; f != nil && !f.taken {
			f.taken = true
			w.tracer.times.add(w.now() - f.began)
		}
		w.tracer.pace.Add(w.tracer.askedFor, a.Dropping)
	}
	w.came.taken = append(w.came.taken, action.Taken{
		Request: a.ID, Refused: refusedBy(trim.Refusal(a.Refusal), ""), Stopped: a.Stop,
	})
}

// advance lets the action in flight go on with what came for it, and says
// whether a full look is called for: it has ended, or needs one.
func (w *watcher) advance() bool {
	f := w.flight
	if f == nil || f.running == nil || f.result != nil {
		w.came = arrivals{}
		return false
	}
	r, done := f.running.Step(w.world(w.now()))
	w.wake(f.running)
	if done {
		f.result, f.until = &r, w.now()+settling
	}
	return done || action.Awaits(f.running)
}

// wake has the loop look at an action again when that asks for it.
func (w *watcher) wake(r action.Running) {
	at, t := action.Wakes(r), &w.tracer
	switch left := max(at-w.now(), 0); {
	case at == 0:
	case t.wakes == nil:
		t.wakes = time.AfterFunc(left, func() { w.bell.Ring(actionDue) })
	default:
		t.wakes.Reset(left)
	}
}

// traced is the watcher as actions see what traces for them.
type traced struct{ *watcher }

func (w traced) Plan(id rss.ProcID) {
	t := &w.tracer
	if t.Busy() {
		return // no action asks while another's plan is read; it would wait for nothing
	}
	t.plan = plan{}
	t.was = rss.Proc{ID: id}
	if p, err := w.observe.Pop.Tree.One(id.PID); err == nil && p.ID == id {
		t.was = p
		if s := w.view.Sample.Find(id.PID); s != nil {
			t.was.PSS, t.was.Private, t.was.Role = s.PSS, s.Private, s.Role
		}
	}
	t.Ask(planAsk{id, w.tracerOf(id.PID), w.ourPIDs()}, true)
}

func (w traced) Take(piece int) (request uint64, pieces int, err error) {
	t := &w.tracer
	if t.asked != 0 || piece >= len(t.plan.pieces) {
		return 0, 0, fmt.Errorf("cannot trim process %d: no piece can be asked for now", t.was.ID.PID)
	}
	p, n := t.pace.Take(t.plan.pieces[piece:])
	t.last++
	err = w.give(hold.TrimRequest{
		ID: t.last, PID: p.ID.PID, Start: p.ID.Start,
		Lo: p.Lo, Hi: p.Hi, Offset: p.Offset, Dev: p.Dev, Inode: p.Inode,
	})
	if err != nil {
		return 0, 0, err
	}
	t.asked, t.askedFor = t.last, p
	return t.last, n, nil
}

// Over measures what the process gave back, and says so.
func (w traced) Over(e action.Traced) rss.Bytes {
	w.refuse(e.ID, e.Refused)
	p, err := w.observe.Pop.Tree.One(e.ID.PID)
	if err != nil || p.ID != e.ID {
		return 0 // with its end went all it had, and not by what we did
	}
	if e.Whole {
		// What no trim could take; some of what was taken is there again by now.
		left := w.tracer.was.File
		for _, piece := range w.tracer.plan.Pieces {
			left = left.Sub(piece)
		}
		w.observe.Workers.Trimmed(e.ID.PID, left)
	}
	if e.Pieces == 0 {
		return 0
	}
	was, freed := &w.tracer.was, w.tracer.was.File.Sub(p.File)
	if f := w.flight; f != nil && !slices.ContainsFunc(f.acted.Procs, func(q rss.Proc) bool { return q.ID == e.ID }) {
		f.acted.Procs = append(f.acted.Procs, *was)
	}
	w.tell.Put(event.NameLoader, func(h event.Head) any {
		return event.LoaderSaid{
			Head: h, What: event.LoaderTrimmed, PID: e.ID.PID, Worker: asWorker(&w.view.Sample, e.ID.PID),
			Freed: freed, By: event.ByPtrace, Stopped: e.Stopped.Seconds(),
		}
	})
	return freed
}

// asWorker is the PID of a process that is known to be a worker, else 0.
func asWorker(s *rss.Sample, pid int) int {
	if p := s.Find(pid); p != nil && p.Role == rss.RoleWorker {
		return pid
	}
	return 0
}

// traceAgain is how long a process is left alone of which something failed on
// our side, or took too long.
const traceAgain = 30 * time.Second

// refuse remembers why a process was not touched, or that it was, and tells each
// reason once.
func (w *watcher) refuse(id rss.ProcID, why action.Refused) {
	t := &w.tracer
	r := t.refused[id]
	if none(why) {
		if r != nil {
			r.until = max(w.now(), 1)
		}
		return
	}
	if why.Reason == event.ReasonVanished {
		return
	}
	if r == nil {
		r = &refusal{}
		t.refused[id] = r
	}
	r.reason, r.until = why.Reason, 0
	switch why.Reason {
	case event.ReasonTimeout, event.ReasonError:
		r.until = w.now() + traceAgain
	}
	if why.Passing {
		r.until = w.now() + action.TracePause
	}
	if !slices.Contains(r.told, why.Reason) {
		r.told = append(r.told, why.Reason)
		w.tell.Put(event.NameLoader, func(h event.Head) any {
			return event.LoaderSaid{
				Head: h, What: event.LoaderRefused, PID: id.PID, Worker: asWorker(&w.view.Sample, id.PID),
				Reason: string(why.Reason), By: event.ByPtrace,
			}
		})
	}
	if why.All {
		w.traceNoMore(why.Reason, string(why.Reason))
	}
}

// Lost ends all tracing: whoever does not answer may hang in it.
func (w traced) Lost(id rss.ProcID) {
	w.traceNoMore(event.ReasonTimeout, fmt.Sprintf("process %d: no answer from the holder within %v", id.PID, action.TakeDeadline))
}

func (w *watcher) traceNoMore(reason event.Reason, text string) {
	w.tracer.off = reason
	w.fault("trim", &said{text + "; nothing is trimmed by ptrace any more in this run"})
}

// tracees returns the processes that a trim by ptrace is worth a stop for, first
// the one that gives most back of what the limit counts. Where there is none,
// Help says why.
func (w *watcher) tracees(a event.Accounting) (list []workers.Usage, why event.Feasibility) {
	t := &w.tracer
	switch {
	case t.off != event.ReasonNone:
		return nil, event.Feasibility{Reason: t.off, Detail: "nothing is trimmed by ptrace any more"}
	case t.Busy() || t.asked != 0:
		return nil, event.Feasibility{Reason: event.ReasonTimeout, Detail: fmt.Sprintf("process %d is not done with yet", t.was.ID.PID)}
	}
	maps.DeleteFunc(t.refused, func(id rss.ProcID, _ *refusal) bool {
		p := w.view.Sample.Find(id.PID)
		return p == nil || p.ID != id
	})
	now, ours := w.now(), w.ourPIDs()
	found := w.observe.Workers.Traceable(a, workers.Tracing{
		All: w.Settings.Trim == settings.TrimPtrace, Least: trim.Least, Tops: w.observe.Pop.Tasks(),
		Never: func(id rss.ProcID) bool { return slices.Contains(ours, id.PID) || w.observe.Pop.Excluded(id) },
	})
	for _, u := range found.List {
		if r := t.refused[u.ID]; r == nil || r.until != 0 && now >= r.until {
			list = append(list, u)
		} else if why.Reason == event.ReasonNone {
			why = event.Feasibility{Reason: r.reason, Detail: fmt.Sprintf("process %d", u.ID.PID)}
		}
	}
	switch {
	case len(list) > 0:
		return list, event.Feasibility{}
	case why.Reason != event.ReasonNone:
		return nil, why
	case found.Trainer:
		return nil, event.Feasibility{Reason: event.ReasonIsTrainer, Later: found.Unread}
	case found.Small:
		return nil, event.Feasibility{Reason: event.ReasonNothing}
	}
	return nil, event.Feasibility{Reason: event.ReasonNoWorker, Detail: "no process looks like a loader worker", Later: found.Unread}
}
