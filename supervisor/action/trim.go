package action

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// trimming has processes give mapped file pages back: those with the hook first, and by ptrace
// what is then still above the goal.
type trimming struct{ *holderTracer }

func (a trimming) Can(_ event.Rule, l *event.Limit) event.Feasibility {
	if a.Settings.Trim == settings.TrimPtrace && a.traces() {
		return a.canTrace(l)
	}
	hook := a.canTrimByHook(l)
	if !a.traces() {
		return hook
	}
	trace := a.canTrace(l)
	switch {
	case hook.OK || trace.OK:
		return event.Feasibility{OK: true, Gain: hook.Gain + trace.Gain}
	case trace.Reason == event.ReasonNoWorker && hook.Reason == event.ReasonNothing:
		return hook
	case trace.Reason == event.ReasonNoWorker:
		trace.Detail = strings.TrimPrefix(a.Workers.NoHello()+"; "+trace.Detail, "; ")
	}
	return trace
}

// Lead is that of the part which begins first.
func (a trimming) Lead(l *event.Limit) rss.Bytes {
	if lead := a.trimAhead(l); lead > 0 {
		return lead
	}
	if lead := a.growthUntilTraced(l); lead > 0 && a.canTrace(l).OK {
		return lead
	}
	return 0
}

// muchMapped is the share of a limit that workers must have mapped to be trimmed ahead
// of the rung.
const muchMapped = 0.02

// canTrimByHook answers for the part of a trim that is done by the hook.
func (a trimming) canTrimByHook(l *event.Limit) event.Feasibility {
	if !a.Settings.Trim.Hook() || a.Loader == nil {
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: cmp.Or(a.Able.Hook, noHook)}
	}
	mappers := a.Workers.Mappers(l.Accounting)
	if len(mappers) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker, Detail: a.Workers.NoHello()}
	}
	var gain rss.Bytes
	for _, m := range mappers {
		gain += a.Workers.Trimmable(m)
	}
	if gain == 0 {
		return event.Feasibility{Reason: event.ReasonNothing}
	}
	return event.Feasibility{OK: true, Gain: gain}
}

// traces says that processes may be traced: never those that rsswarden did not
// start.
func (a trimming) traces() bool { return a.Settings.Trim.Ptrace() && a.Able.Ptrace == "" }

// tracesFor says that a limit counts what they give back.
func (a trimming) tracesFor(l *event.Limit) bool {
	return a.traces() && event.ActionTrim.Fits(l).OK
}

// canTrace answers for the part of a trim that is done by ptrace.
func (a trimming) canTrace(l *event.Limit) event.Feasibility {
	list, h := a.Tracees(l.Accounting)
	for _, e := range list {
		h.Gain += a.Workers.Trimmable(e)
	}
	h.OK = len(list) > 0
	return h
}

func (a trimming) Begin(f *Flight, l *event.Limit) (Running, Result) {
	var pids []int
	if a.Settings.Trim.Hook() && a.Loader != nil {
		for _, m := range a.Workers.Mappers(l.Accounting) {
			if a.Workers.Trimmable(m) > 0 && a.View.Sample.Find(m.ID.PID) != nil {
				pids = append(pids, m.ID.PID)
			}
		}
	}
	f.actOn(&a.View.Sample, pids)
	var run Running
	switch {
	case !a.traces():
		run = trimByHook(a.Loader, pids, f.Began)
	case len(pids) > 0:
		run = Then(trimByHook(a.Loader, pids, f.Began), func(at World) Running { return a.trace(f, at.Used, at.Now) })
	default:
		run = a.trace(f, f.Before.Used, f.Began)
	}
	if run == nil {
		return nil, Result{Reason: event.ReasonNothing}
	}
	return run, Result{}
}

func (a trimming) targets(cmd *control.Command) []target {
	var pids []int
	for _, m := range a.Workers.Mappers(event.AccountingRSS) {
		pids = append(pids, m.ID.PID)
	}
	return a.hookTargets(cmd, pids)
}

func (a trimming) beginFor(f *Flight, pids []int) (Running, Result) {
	return trimByHook(a.Loader, pids, f.Began), Result{}
}

func (a trimming) instead() string { return "%s does it by ptrace, which needs no hook" }

// trimByHook asks the processes with those PIDs to drop their mapped file pages and
// ends when each has answered or is gone.
func trimByHook(h Hook, pids []int, now time.Duration) Running {
	a := &round{what: event.LoaderTrimmed, words: "%d of %d workers gave back %v of mapped pages", deadline: now + TrimDeadline}
	return a.ask(h.Trim, pids)
}

// trace begins the part of a trim that is done by ptrace, of a limit with the use
// used: nil where there is no need of it.
func (a trimming) trace(f *Flight, used rss.Bytes, now time.Duration) Running {
	goal := a.goalOf(f, used)
	list, _ := a.Tracees(f.Before.Accounting)
	if used < goal.Below || len(list) == 0 {
		return nil
	}
	var all []*Tracee
	for _, m := range list {
		all = append(all, &Tracee{ID: m.ID, Share: m.CountedMapped.Of(m.Mapped)})
	}
	a.flight = f
	return Trace(a.holderTracer, all, goal, now)
}

// firstTraceTime is for how long growth goes on, as long as nothing was trimmed,
// from a look until the first process has given pages back by ptrace: where all
// processors of a node are taken, that is 300 ms.
const firstTraceTime = 500 * time.Millisecond

// traceTimes is the time that it took when it was measured last, and twice that
// counts: some tens of milliseconds where there are processors to spare.
type traceTimes struct{ last time.Duration }

func (t *traceTimes) add(d time.Duration) { t.last = max(d, t.last*3/4) }

func (t *traceTimes) expected() time.Duration {
	if t.last == 0 {
		return firstTraceTime
	}
	return min(2*t.last, 2*firstTraceTime)
}

// mostLead is how far ahead of its rung an action may begin, of the limit.
const mostLead = 0.15

// growthUntilTraced is by how much a limit grows until a trim by ptrace takes effect: 15
// points at most. What has its pages back within a second of each trim, and would
// have stayed below that by itself, is not trimmed for ever.
func (a trimming) growthUntilTraced(l *event.Limit) rss.Bytes {
	if !a.tracesFor(l) {
		return 0
	}
	return min(rss.Bytes(a.View.Latest(l)*a.times.expected().Seconds()), l.Limit.Scale(mostLead))
}

// growthRoom is for how long what grows at the rate seen is to stay below the
// rung: in the processes that are trimmed nothing holds growth back between two
// trims, as the hook's budgets do.
const growthRoom = time.Second

// goalOf is the use at which the rung counts as left, and what is to grow until
// it is met again. A forecast says nothing about amounts.
func (a trimming) goalOf(f *Flight, used rss.Bytes) Goal {
	goal := Goal{Used: used, Lags: f.Before.Accounting == event.AccountingPSS}
	if f.Decision.Asked() {
		return goal
	}
	if need := f.Decision.Rung.Need(&f.Before); need > 0 {
		growth := rss.Bytes(a.View.Latest(&f.Before) * growthRoom.Seconds())
		goal.Below = max(f.Before.Used.Sub(need+growth), 1)
	}
	return goal
}

// trimAhead is how far below its rung a trim by the hook begins: from the rung of the
// warning on, where that gives back much for certain. Above it workers keep to budgets
// that leave each the least, and what many have together then may be all that is left
// for what the trainer needs all at once. slurmstepd kills on it.
func (a trimming) trimAhead(l *event.Limit) rss.Bytes {
	rung, ok := a.Ladder.Rung(event.ActionTrim, l)
	if !ok || l.Name != event.LimitSlurm {
		return 0
	}
	at, ok := a.Ladder.Rung(event.ActionWarn, l)
	if !ok || at >= rung || l.Used < at {
		return 0
	}
	if h := a.canTrimByHook(l); !h.OK || h.Gain < max(event.MinGain(0), l.Limit.Scale(muchMapped)) {
		return 0
	}
	return min(rung-at, l.Limit.Scale(mostLead))
}

// holderTracer has the holder trim processes by ptrace, which Yama allows it as their
// ancestor, and remembers which could not be.
type holderTracer struct {
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
func newTracer(e *Env, probes *probe.Set, attempt int) *holderTracer {
	return &holderTracer{
		Env: e, Plans: newPlanReader(probes, e.Proc, e.Self), last: uint64(attempt) << 32,
		refused: map[rss.ProcID]*traceRefusal{},
	}
}

// PlanAsk names a process, who traces it, and whose processes are ours.
type PlanAsk struct {
	ID     rss.ProcID
	Tracer int
	Ours   []int
}

// newPlanReader reads plans beside the loop: smaps takes the mmap_lock of the process,
// and hangs for as long as another thread holds that.
func newPlanReader(set *probe.Set, proc string, self int) *probe.Reader[PlanAsk, Planned] {
	var memory trim.Planner
	return probe.New(set, func(ask PlanAsk) Planned {
		fault.Point("planner")
		target := memory.Plan(trim.CheckOptions{
			Proc: proc, ID: ask.ID, Tracer: ask.Tracer, Self: self,
			Ours: func(pid int) bool { return slices.Contains(ask.Ours, pid) },
		})
		made := Planned{ID: ask.ID, Refused: refusedBy(target.Refusal, target.Detail)}
		for _, m := range target.Mappings {
			made.Pieces = append(made.Pieces, m.Pieces...)
		}
		return made
	})
}

// refusedBy is a refusal as actions know it. Where the machine or the tracer is
// the reason, no other process fares better.
func refusedBy(r trim.Refusal, detail string) Refused {
	if r == trim.None {
		return Refused{}
	}
	return Refused{
		Reason: r.Reason(), Detail: detail, Passing: r.Passing(),
		Brief: r == trim.NoSleeper || r == trim.Waiting || r == trim.Slow || r == trim.Signalled,
		All:   r == trim.Yama || r == trim.Unsupported || r == trim.Broken,
	}
}

// Asked is the number of the piece that the holder is at, 0 for none.
func (t *holderTracer) Asked() uint64 { return t.asked }

// planned takes in the plan that came, if one did.
func (t *holderTracer) planned() (Planned, bool) {
	p, ok := t.Plans.Take()
	if ok {
		t.plan = p
	}
	return p, ok
}

// taken takes the holder's answer to a piece in, ours false where it was owed to a watcher
// before this one.
func (t *holderTracer) taken(a hold.TrimAnswer) (of Taken, ours bool) {
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

func (t *holderTracer) Plan(id rss.ProcID) {
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

func (t *holderTracer) Take(pieces []trim.Piece) (request uint64, asked int, err error) {
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
func (t *holderTracer) Over(e Tracee) rss.Bytes {
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
	if p := s.Find(pid); p != nil && p.Role.IsWorker() {
		return pid
	}
	return 0
}

// traceAgain is how long a process is left alone of which something failed on
// our side, or took too long.
const traceAgain = 30 * time.Second

// Refuse remembers why a process was not touched, or that it was, and tells each
// reason once.
func (t *holderTracer) Refuse(id rss.ProcID, why Refused) {
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
func (t *holderTracer) Lost(id rss.ProcID) {
	t.NoMore(event.ReasonTimeout, fmt.Sprintf("process %d: no answer from the holder within %v", id.PID, TakeDeadline))
}

// NoMore ends all trimming by ptrace.
func (t *holderTracer) NoMore(reason event.Reason, text string) {
	t.off = reason
	t.Tell.Fault(t.Now(), "trim", errors.New(text+"; nothing is trimmed by ptrace any more in this run"))
}

// Tracees returns the processes that a trim by ptrace is worth a stop for, first
// the one that gives most back of what the limit counts. Where there is none,
// it says why.
func (t *holderTracer) Tracees(a event.Accounting) (list []workers.Usage, why event.Feasibility) {
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
