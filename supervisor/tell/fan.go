// Package tell hands on what a run has to say: lines for people, events for the stream,
// the record and the clients of the control socket. A sink owns its state and takes
// values; it never waits, and what it loses it counts.
package tell

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Fan stamps events and hands each to all sinks that take it, in one order.
type Fan struct {
	*Log
	Run      Run
	set      *settings.Settings
	Readers  Readers
	Record   Record
	Clients  Clients
	Textfile Textfile
	Alerts   Alerts
	Comment  Comment
	Sum      Summary
	Status   Status
	Helps    Helps
	failed   failures
	signals  signals
	findings findings
	limits   limits
	stream   *event.Stream // nil without --events
	seq      uint64        // of the last event
	dropped  uint64        // events that the stream lost since the last sample in it
	sampleAt time.Duration // when the last sample was due
	costAt   time.Duration // … and told what we cost
}

// New returns a Fan that writes lines, of each node of a job with its name, and events where
// the settings say so.
func New(lines Lines, set *settings.Settings, run Run) *Fan {
	if run.Job != nil && run.Job.Nodes > 1 {
		lines = onNode{lines, run.Node}
	}
	f := &Fan{set: set, Run: run, Log: NewLog(lines), findings: findings{}, failed: failures{queue: make(chan *Failure, 16)}}
	if set.Events != "" {
		f.stream = event.NewStream(set.Events, func(err error) {
			lines.Warn(fmt.Sprintf("%v; the command runs on", err))
		})
	}
	return f
}

// Streams says whether events are written to a file.
func (f *Fan) Streams() bool { return f.stream != nil }

// Put stamps an event and hands it on. Where no sink takes events none is made.
func (f *Fan) Put(name event.Name, make func(event.Head) any) {
	if f.stream == nil && f.Record.To == nil && !f.Clients.Any() {
		return
	}
	e := make(f.head(name))
	f.Clients.tell(e)
	if f.stream != nil {
		f.stream.Put(name, e)
	}
	if f.Record.To != nil {
		f.Record.To.Event(name, e)
	}
}

func (f *Fan) head(name event.Name) event.Head {
	f.seq++
	return event.Head{V: event.Version, Time: time.Now(), Seq: f.seq, Event: name}
}

// early is by how much what is told at intervals may come early, with a look that is due.
const early = counts.Tolerance

// Note gives an event to the record alone. It has no number.
func (f *Fan) Note(name event.Name, make func(event.Head) any) {
	if f.Record.To != nil {
		f.Record.To.Event(name, make(event.Head{V: event.Version, Time: time.Now(), Event: name}))
	}
}

// Fault tells once that a part of ours does not work.
func (f *Fan) Fault(now time.Duration, part string, err error) {
	if !f.Once(part, err.Error()) {
		return
	}
	f.fault(now, part, fmt.Sprintf("%s: %v", part, err))
	f.faultEvent(part, err.Error())
}

// Faults is [Fan.Fault] of several texts.
func (f *Fan) Faults(now time.Duration, part string, texts ...string) {
	for _, text := range texts {
		f.Fault(now, part, errors.New(text))
	}
}

// Warnings is [Fan.Fault] of what was met in looking for limits.
func (f *Fan) Warnings(now time.Duration, all []limit.Warning) {
	for _, w := range all {
		f.Faults(now, w.Part, w.Text)
	}
}

func (f *Fan) faultEvent(part, text string) {
	f.Put(event.NameFault, func(h event.Head) any { return event.Fault{Head: h, Part: part, Error: text} })
}

// CloseStream writes the last events, for at most so long.
func (f *Fan) CloseStream(within time.Duration) {
	if f.stream != nil {
		f.stream.Close(within)
	}
}

// Failure is what a sink could not do, from a goroutine of its own.
type Failure struct{ part, text string }

func (f *Failure) Error() string { return f.text }

// failures queues what sinks could not do.
type failures struct {
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
	default:
		q.lost.Add(1)
	}
}

// Failures yields what sinks could not do, for [Fan.Failed].
func (f *Fan) Failures() <-chan *Failure { return f.failed.queue }

// Failed takes in such a failure. A site that refuses the comment is asked once.
func (f *Fan) Failed(now time.Duration, e *Failure) {
	if e.part == commentPart {
		f.Comment.refused = true
	}
	f.Fault(now, e.part, e)
	if n := f.failed.lost.Swap(0); n > 0 {
		f.Fault(now, e.part, &Failure{e.part, text.Count(int(n), "failure") + " not shown: too many at once"})
	}
}
