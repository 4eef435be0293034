// Package action carries decisions out. An action is begun, looked at again
// with every sample, and ends with a result or at its deadline: nothing here
// blocks or sleeps, so the one goroutine that owns the watcher's state can run
// it, and a trainer that never answers costs nothing but the deadline. Programs
// alone (see [Programs]) have goroutines of their own.
//
// No action here can end a training job behind its back: workers of a PyTorch
// loader are never signalled, only asked through the loader hook, and signals
// go to pools whose owner said (by --worker-signal) that they respawn, and by
// signal= to processes that have a handler for them.
package action

import (
	"os/exec"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/attach"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/tell"
	"github.com/rsswarden/rsswarden/supervisor/trim"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// World is what an action in flight may look at.
type World struct {
	Now    time.Duration // on the clock of Sample.Mono
	Sample *rss.Sample
	Said   []Said // what loaders reported since the last look
	// Used is the certain use of the action's limit, of the same reading as Sample.
	Used rss.Bytes
	// Planned and Taken are what came for a [Stopper] since the last look.
	Planned []Planned
	Taken   []Taken
}

// Said is a report of the loader hook, with the request it answers or 0.
type Said struct {
	event.LoaderSaid
	Request uint64
}

// Planned is what a process has to give back.
type Planned struct {
	ID      rss.ProcID
	Pieces  []trim.Piece // in the order in which they are to be taken
	Refused Refused
}

type Taken struct {
	Request uint64
	Refused Refused
	Stopped time.Duration // how long the process was stopped
}

// Refused says why a process is not touched; the zero value that it is.
type Refused struct {
	Reason event.Reason
	Detail string
	// Passing says that it was only at a bad moment, and Brief that moments
	// change within milliseconds.
	Passing, Brief bool
	// All says that no other process can be touched either.
	All bool
}

// Result is how an action ended. Its caller measures what it freed, by the limit before
// and after.
type Result struct {
	OK     bool
	Reason event.Reason
	Detail string // for people
	PID    int    // the process acted on, 0 for several
	// Paused is how long a trainer paused for it, as the hook measured.
	Paused time.Duration
	// Stopped is how long a process was stopped for it at most, by ptrace.
	Stopped time.Duration
	// Exit is the exit status of a program of exec=, negative for a signal.
	Exit *int
	// Took is how long it took, where the caller cannot tell.
	Took time.Duration
}

// Running is an action that was begun.
type Running interface {
	// Step looks at the world and tells whether the action has ended, and how.
	Step(World) (Result, bool)
}

// Awaits says that an action needs a new sample to go on, and nothing else.
func Awaits(r Running) bool {
	a, ok := r.(interface{ Awaits() bool })
	return ok && a.Awaits()
}

// Wakes is when an action has to be looked at again although nothing has come
// for it, 0 where samples are often enough.
func Wakes(r Running) time.Duration {
	if a, ok := r.(interface{ Wakes() time.Duration }); ok {
		return a.Wakes()
	}
	return 0
}

// Deadlines beyond which an action counts as unanswered. A trainer looks at
// requests between two batches, so a long validation step delays the answer.
const (
	TrimDeadline    = 10 * time.Second
	CollectDeadline = 30 * time.Second // gc.collect walks every object
	RecycleDeadline = 60 * time.Second
	ReplaceDeadline = 60 * time.Second
)

func done(reason event.Reason) (Result, bool) {
	return Result{OK: reason == event.ReasonDone, Reason: reason}, true
}

// Then carries first out and, when that has ended, what next returns: the
// harder way to the same end, or nil where the first was enough.
func Then(first Running, next func(World) Running) Running {
	return &sequence{running: first, next: next}
}

type sequence struct {
	running Running
	next    func(World) Running // nil once it was asked
	first   Result
}

func (a *sequence) Step(w World) (Result, bool) {
	r, done := a.running.Step(w)
	if !done {
		return Result{}, false
	}
	if a.next == nil {
		return a.first.and(r), true
	}
	next := a.next(w)
	if next == nil {
		return r, true
	}
	a.first, a.running, a.next = r, next, nil
	w.Said = nil // they were for the first
	if r, done = next.Step(w); !done {
		return Result{}, false
	}
	return a.first.and(r), true
}

func (a *sequence) Awaits() bool { return Awaits(a.running) }

func (a *sequence) Wakes() time.Duration { return Wakes(a.running) }

// and is the result of two actions, one after the other.
func (r Result) and(next Result) Result {
	all := next
	if r.OK && !next.OK {
		all.OK, all.Reason = true, r.Reason
	}
	all.Detail = join(r.Detail, next.Detail)
	all.Paused, all.Stopped = max(r.Paused, next.Paused), max(r.Stopped, next.Stopped)
	return all
}

// join puts details beside each other, those that say something.
func join(details ...string) string {
	text := ""
	for _, d := range slices.DeleteFunc(details, func(d string) bool { return d == "" }) {
		if text != "" {
			text += "; "
		}
		text += d
	}
	return text
}

// Action is one way to act on a limit. Most can do more, see [Set]: lead is an action that
// takes effect late, begin one that goes on for a while, ask one that only asks another
// process, and obey one that can be asked for by hand.
type Action interface {
	// Can says whether it can help a limit now, and how much it may give back. The limit
	// counts that: [Set.Can] has asked [event.Action.Fits].
	Can(event.Rule, *event.Limit) event.Feasibility
}

type (
	leading interface {
		// Lead is by how much a limit grows until the action takes effect.
		Lead(*event.Limit) rss.Bytes
	}
	beginning interface {
		// Begin begins it. Without a Running it is over at once, with the Result.
		Begin(*Flight, *event.Limit) (Running, Result)
	}
	asking interface {
		// Ask asks. Where it is not over at once its outcome comes later.
		Ask(event.Decision, *event.Limit) (r Result, over bool)
	}
	commanded interface {
		// targets are the processes on which a command is carried out, one target after
		// the other, and beginFor begins one of them. instead says what to do where there
		// is none, with the words for doing it without a leader.
		targets(*control.Command) []target
		beginFor(*Flight, []int) (Running, Result)
		instead() string
	}
)

// target is one step of a command: a worker, or all processes of a rank.
type target struct {
	task int
	pids []int
}

// Flight is the action that was begun and has not ended.
type Flight struct {
	Decision event.Decision
	Running  Running
	Began    time.Duration
	Before   event.Limit // the limit as it was
	Acted    workers.Acted
	target   string // what of a job is meant
	taken    bool   // something was given back by ptrace
	manual   bool   // a user asked for it, no rule
	over     bool
	rate     float64 // by how many bytes a second the limit was approached

	result *Result       // it has ended, and its outcome is being measured
	until  time.Duration // … until then at most
}

// actOn notes processes as they are before they are acted on.
func (f *Flight) actOn(s *rss.Sample, pids []int) {
	for _, pid := range pids {
		if p := s.Find(pid); p != nil {
			f.Acted.Procs = append(f.Acted.Procs, *p)
		}
	}
}

// Env is what all actions share: what was read last, and what they act through. The loop
// fills it in as it finds each part, and nothing here changes it.
type Env struct {
	Settings *settings.Policy
	Able     attach.Abilities
	Proc     string // "/proc"
	Sys      string // "/sys"
	Self     int    // PID of the watcher
	Attempt  int    // of this watcher, from 1
	Lookup   func(string) (string, bool)
	Now      func() time.Duration // the watcher's clock

	*observe.Observer
	View   *view.View
	Ladder *policy.State
	Holder Holder
	Ranks  Ranks
	Tell   *tell.Fan
}

// Holder is the process that started the command.
type Holder interface {
	// Override has it end with a status whatever that of the command is.
	Override(status int) error
	Start(*exec.Cmd) error
}

// Ranks are the ranks of the job on this node, ours among them.
type Ranks interface {
	// Task is the rank that a process belongs to, by SLURM_PROCID, and Key the same by
	// its holder. Others says that it is another rank than ours.
	Task(pid int) int
	Key(pid int) rss.ProcID
	Others(pid int) bool
	// Successor says that another led before us, Has that a rank is on this node, Several that
	// there is another than ours, and Alone that we could not meet others, if there are any.
	Successor() bool
	Has(task int) bool
	Several() bool
	Alone() bool

	// OurPIDs are the holders and watchers of this node, and Tracer the holder that may
	// trace a process, which Trim asks for one piece: [Set.Trimmed] answers.
	OurPIDs() []int
	Tracer(pid int) int
	Trim(hold.TrimRequest) error

	// StopOthers has the commands of the other ranks of a step stopped, and says how
	// many were asked. Stopping says that our own command was asked to end before, and
	// Stops that it is meant by a stop of the step, too.
	StopOthers(step string) int
	Stopping() bool
	Stops(step string) bool

	// Waits says that a recycle must wait for its turn; Recycled notes one.
	Waits(left time.Duration, nodes int) bool
	Recycled(rank rss.ProcID)
	LastRecycled(rank rss.ProcID) time.Duration

	// SaveHandover keeps what the ladder remembers for the next leader.
	SaveHandover()
}

// LeafLimit is the memory limit of the innermost cgroup, nil where none limits.
func (a *Env) LeafLimit() *event.Limit {
	var leaf *event.Limit
	for i := range a.View.Limits {
		l := &a.View.Limits[i]
		if l.Name == event.LimitCgroup && l.Limit > 0 && (leaf == nil || len(l.Level) > len(leaf.Level)) {
			leaf = l
		}
	}
	return leaf
}

// wanted says that a command means a process, and which rank that is of.
func (a *Env) wanted(cmd *control.Command, pid int) (task int, ok bool) {
	task = a.Ranks.Task(pid)
	switch {
	case len(cmd.PIDs) > 0:
		return task, slices.Contains(cmd.PIDs, pid)
	case len(cmd.Ranks) > 0:
		return task, slices.Contains(cmd.Ranks, task)
	}
	return task, true
}
