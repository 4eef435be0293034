package tell

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// events is what every sink may use: it stamps events and hands each to all sinks in one
// order, beside the lines for people.
type events struct {
	*Log
	Run      Run
	Recorder Recorder // nil where nothing is recorded
	Clients  Clients
	sinks    []Sink
	set      *settings.Settings
	stream   *event.Stream // nil without --events
	seq      uint64        // of the last event
	failed   failures
}

func newEvents(lines Lines, set *settings.Settings, run Run) *events {
	if run.Job != nil && run.Job.Nodes > 1 {
		lines = onNode{lines, run.Node}
	}
	e := &events{Run: run, set: set, failed: failures{queue: make(chan *Failure, 16)}}
	e.Log = NewLog(lines, func() bool { return e.Run.brief() })
	e.stream = event.NewStream(set.Events, event.Line, func(err error) {
		lines.Warn(fmt.Sprintf("%v; the command runs on", err))
	})
	return e
}

// Sink takes the events it says it takes, in order. It never waits, and what it loses it
// counts. One with a method Close(time.Duration) is closed behind the exit event, and may
// take so long to write what it has left.
type Sink interface {
	Takes(event.Name) bool // samples are made only where a sink takes them
	Event(event.Name, any)
}

// Recorder is [store.Recorder] outside tests.
type Recorder interface {
	Sample(*record.Look)
	Event(event.Name, any)
	Begin()
	Close(patience time.Duration)
}

// early is by how much periodic events may come early, with a look that is due.
const early = counts.Tolerance

// Put stamps an event and hands it on.
func (e *events) Put(name event.Name, make func(event.Head) any) {
	v := make(e.head(name))
	for _, sink := range e.sinks {
		if sink.Takes(name) {
			sink.Event(name, v)
		}
	}
}

// Told is the number of the last event, and GoOn has the next be the one after another.
func (e *events) Told() uint64 { return e.seq }

func (e *events) GoOn(told uint64) { e.seq = told }

func (e *events) head(name event.Name) event.Head {
	e.seq++
	return event.Head{V: event.Version, Time: time.Now(), Seq: e.seq, Event: name}
}

// Note gives an event to the record alone. It has no number.
func (e *events) Note(name event.Name, make func(event.Head) any) {
	if e.Recorder != nil {
		e.Recorder.Event(name, make(event.Head{V: event.Version, Time: time.Now(), Event: name}))
	}
}

// partStart is the part of faults in what a run was started with.
const partStart = "start"

// Fault tells once that a part of ours does not work.
func (e *events) Fault(now time.Duration, part string, err error) {
	if !e.Once(part, err.Error()) {
		return
	}
	line := err.Error()
	if part != partStart { // those are about settings, and name what they are about
		line = part + ": " + line
	}
	e.fault(now, part, line)
	e.faultEvent(part, err.Error())
}

// Faults is [events.Fault] of several texts.
func (e *events) Faults(now time.Duration, part string, texts ...string) {
	for _, text := range texts {
		e.Fault(now, part, errors.New(text))
	}
}

func (e *events) faultEvent(part, text string) {
	e.Put(event.NameFault, func(h event.Head) any { return event.Fault{Head: h, Part: part, Error: text} })
}

// CloseSinks has all sinks write the last events, for at most so long.
func (e *events) CloseSinks(within time.Duration) {
	var closing sync.WaitGroup
	for _, sink := range e.sinks {
		if s, ok := sink.(interface{ Close(time.Duration) }); ok {
			closing.Go(func() { s.Close(within) })
		}
	}
	closing.Wait()
}

// Failure is what a sink could not do, from a goroutine of its own.
type Failure struct{ part, text string }

func (f *Failure) Error() string { return f.text }

// failures queues what sinks could not do.
type failures struct {
	ring  func() // says that there is one; nil for nothing
	queue chan *Failure
	lost  atomic.Uint64 // for which there was no room
}

// tell queues a failure. It never waits. A nil queue takes nothing: the caller reports it.
func (q *failures) tell(part, text string) {
	if q == nil {
		return
	}
	select {
	case q.queue <- &Failure{part, text}:
		if q.ring != nil {
			q.ring()
		}
	default:
		q.lost.Add(1)
	}
}

// Failures yields what sinks could not do, for [events.Failed].
func (e *events) Failures() <-chan *Failure { return e.failed.queue }

// RingFailures has a call say that there is one, from any goroutine.
func (e *events) RingFailures(ring func()) { e.failed.ring = ring }

// HearFailures tells of those that wait.
func (e *events) HearFailures(now time.Duration) {
	for {
		select {
		case f := <-e.failed.queue:
			e.Failed(now, f)
		default:
			return
		}
	}
}

// Failed takes in such a failure.
func (e *events) Failed(now time.Duration, f *Failure) {
	e.Fault(now, f.part, f)
	if n := e.failed.lost.Swap(0); n > 0 {
		e.Fault(now, f.part, &Failure{f.part, text.Count(int(n), "failure") + " not shown: too many at once"})
	}
}

// Look is a full look as the sinks get it. A sink takes what is due.
type Look struct {
	Now   time.Duration // by the watcher's clock
	Took  time.Duration // of the run
	View  *view.View
	Ranks int // that are watched together, 0 where we attached
}

// samples are the events that say what limits stand at. The record has samples of its own.
type samples struct {
	out     *events
	at      time.Duration // when the last was due
	costAt  time.Duration // … and told what we cost
	dropped uint64        // events that the stream lost since the last sample in it
}

// costEvery is how often a sample tells what we cost ourselves.
const costEvery = time.Minute

// put hands a sample on, where the last is so long ago, with the number of events that the
// stream lost.
func (s *samples) put(l *Look, every time.Duration, costs func(now time.Duration) []event.Cost) {
	if l.Now-s.at < every {
		return
	}
	s.at = l.Now
	if !slices.ContainsFunc(s.out.sinks, func(k Sink) bool { return k.Takes(event.NameSample) }) {
		return
	}
	s.dropped += s.out.stream.Dropped()
	e := event.Sample{Limits: briefly(l.View.Limits), Procs: map[rss.Role]int{}, Gaps: l.View.Sample.Gaps}
	for i := range l.View.Sample.Procs {
		e.Procs[l.View.Sample.Procs[i].Role]++
	}
	if l.Now-s.costAt >= costEvery {
		s.costAt, e.Ours = l.Now, costs(l.Now)
	}
	s.out.Put(event.NameSample, func(h event.Head) any {
		e.Head, e.Dropped = h, s.dropped
		return e
	})
	if n := s.out.stream.Dropped(); n > 0 {
		s.dropped += n // this one among them: the next has the number
		return
	}
	s.dropped = 0
}

// briefly leaves out of limits beside memory what their limit events have.
func briefly(limits []event.Limit) []event.Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		if l := &limits[i]; !l.Name.Memory() && l.Name != event.LimitTime {
			l.Enforcer, l.UsedSource, l.LimitSource, l.Note = "", "", "", ""
		}
	}
	return limits
}
