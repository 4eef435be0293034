package action

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// Tracer has the holder trim processes by ptrace, which Yama allows it as their
// ancestor, and remembers which could not be.
type Tracer struct {
	*Env
	// Plans reads what a process has to give back.
	Plans    *probe.Reader[PlanAsk, Planned]
	plan     Planned
	was      rss.Proc   // the process that was planned for, as it was then
	asked    uint64     // what the holder is at, 0 for nothing
	askedFor trim.Piece // what it is at
	times    traceTimes
	flight   *Flight // which traces, or did last
	pace     trim.Pace
	last     uint64                       // number of the last piece
	off      event.Reason                 // why nothing is traced any more in this run
	refused  map[rss.ProcID]*traceRefusal // while they live
}

// traceRefusal is why a process was not traced when it was last tried.
type traceRefusal struct {
	reason event.Reason
	until  time.Duration // may be tried again then; 0 for never
	told   []event.Reason
}

// arrivals are what came for an action in flight since it looked last.
type arrivals struct {
	planned []Planned
	taken   []Taken
}

// newTracer numbers pieces beyond those of watchers before it: an answer that
// the holder owed to one may come to this one.
func newTracer(e *Env, probes *probe.Set, attempt int) *Tracer {
	return &Tracer{
		Env: e, Plans: newPlanReader(probes, e.Proc, e.Self), last: uint64(attempt) << 32,
		refused: map[rss.ProcID]*traceRefusal{},
	}
}

// Asked is the number of the piece that the holder is at, 0 for none.
func (t *Tracer) Asked() uint64 { return t.asked }

// planned takes in the plan that came, if one did.
func (t *Tracer) planned() (Planned, bool) {
	p, ok := t.Plans.Take()
	if ok {
		t.plan = p
	}
	return p, ok
}

// taken takes the holder's answer to a piece in, ours false where it was owed to a watcher
// before this one.
func (t *Tracer) taken(a hold.TrimAnswer) (of Taken, ours bool) {
	if a.ID == 0 || a.ID != t.asked {
		return of, false
	}
	t.asked = 0
	if a.Refusal == uint8(trim.None) {
		if f := t.flight; f != nil && !f.over && !f.taken {
			f.taken = true
			t.times.add(t.Now() - f.Began)
		}
		t.pace.Add(t.askedFor, a.Dropping)
	}
	return Taken{Request: a.ID, Refused: refusedBy(trim.Refusal(a.Refusal), ""), Stopped: a.Stop}, true
}

func (t *Tracer) Plan(id rss.ProcID) {
	if t.Plans.Busy() {
		return // no action asks while another's plan is read; it would wait for nothing
	}
	t.plan = Planned{}
	t.was = rss.Proc{ID: id}
	if p, err := t.Pop.Tree.One(id.PID); err == nil && p.ID == id {
		t.was = p
		if s := t.View.Sample.Find(id.PID); s != nil {
			t.was.PSS, t.was.Private, t.was.Role = s.PSS, s.Private, s.Role
		}
	}
	t.Plans.Ask(PlanAsk{id, t.Ranks.Tracer(id.PID), t.Ranks.OurPIDs()}, true)
}

func (t *Tracer) Take(pieces []trim.Piece) (request uint64, asked int, err error) {
	if t.asked != 0 {
		return 0, 0, fmt.Errorf("cannot trim process %d: no piece can be asked for now", t.was.ID.PID)
	}
	p, n := t.pace.Take(pieces)
	t.last++
	err = t.Ranks.Trim(hold.TrimRequest{
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
func (t *Tracer) Over(e Tracee) rss.Bytes {
	t.Refuse(e.ID, e.Refused)
	p, err := t.Pop.Tree.One(e.ID.PID)
	if err != nil || p.ID != e.ID {
		return 0 // with its end went all it had, and not by what we did
	}
	if e.Whole {
		// What no trim could take; some of what was taken is there again by now.
		left := t.was.File
		for _, piece := range t.plan.Pieces {
			left = left.Sub(piece.Resident)
		}
		t.Workers.Trimmed(e.ID.PID, left)
	}
	if e.Pieces == 0 {
		return 0
	}
	was, freed := &t.was, t.was.File.Sub(p.File)
	if f := t.flight; f != nil && !f.over && !slices.ContainsFunc(f.Acted.Procs, func(q rss.Proc) bool { return q.ID == e.ID }) {
		f.Acted.Procs = append(f.Acted.Procs, *was)
	}
	t.Tell.Put(event.NameLoader, func(h event.Head) any {
		return event.LoaderSaid{
			Head: h, What: event.LoaderTrimmed, PID: e.ID.PID, Worker: asWorker(&t.View.Sample, e.ID.PID),
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

// Refuse remembers why a process was not touched, or that it was, and tells each
// reason once.
func (t *Tracer) Refuse(id rss.ProcID, why Refused) {
	r := t.refused[id]
	if why.Reason == event.ReasonNone {
		if r != nil {
			r.until = max(t.Now(), 1)
		}
		return
	}
	if why.Reason == event.ReasonVanished {
		return
	}
	if r == nil {
		r = &traceRefusal{}
		t.refused[id] = r
	}
	r.reason, r.until = why.Reason, 0
	switch why.Reason {
	case event.ReasonTimeout, event.ReasonError:
		r.until = t.Now() + traceAgain
	}
	if why.Passing {
		r.until = t.Now() + TracePause
	}
	if !slices.Contains(r.told, why.Reason) {
		r.told = append(r.told, why.Reason)
		t.Tell.Put(event.NameLoader, func(h event.Head) any {
			return event.LoaderSaid{
				Head: h, What: event.LoaderRefused, PID: id.PID, Worker: asWorker(&t.View.Sample, id.PID),
				Reason: string(why.Reason), By: event.ByPtrace,
			}
		})
	}
	if why.All {
		t.NoMore(why.Reason, string(why.Reason))
	}
}

// Lost ends all tracing: a tracer that does not answer may hang in it.
func (t *Tracer) Lost(id rss.ProcID) {
	t.NoMore(event.ReasonTimeout, fmt.Sprintf("process %d: no answer from the holder within %v", id.PID, TakeDeadline))
}

// NoMore ends all trimming by ptrace.
func (t *Tracer) NoMore(reason event.Reason, text string) {
	t.off = reason
	t.Tell.Fault(t.Now(), "trim", errors.New(text+"; nothing is trimmed by ptrace any more in this run"))
}

// Tracees returns the processes that a trim by ptrace is worth a stop for, first
// the one that gives most back of what the limit counts. Where there is none,
// it says why.
func (t *Tracer) Tracees(a event.Accounting) (list []workers.Usage, why event.Feasibility) {
	switch {
	case t.off != event.ReasonNone:
		return nil, event.Feasibility{Reason: t.off, Detail: "nothing is trimmed by ptrace any more"}
	case t.Plans.Busy() || t.asked != 0:
		return nil, event.Feasibility{Reason: event.ReasonTimeout, Detail: fmt.Sprintf("process %d is not done with yet", t.was.ID.PID)}
	}
	maps.DeleteFunc(t.refused, func(id rss.ProcID, _ *traceRefusal) bool {
		p := t.View.Sample.Find(id.PID)
		return p == nil || p.ID != id
	})
	now, ours := t.Now(), t.Ranks.OurPIDs()
	found := t.Workers.Traceable(a, workers.Tracing{
		All: t.Settings.Trim == settings.TrimPtrace, Least: trim.Least, Tops: t.Pop.Tasks(),
		Never: func(id rss.ProcID) bool { return slices.Contains(ours, id.PID) || t.Pop.Excluded(id) },
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
