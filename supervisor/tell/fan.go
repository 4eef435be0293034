// Package tell hands on what a run has to say: lines for people, events for the stream,
// the record and the clients of the control socket. A sink owns its state and takes
// values; it never waits, and what it loses it counts.
package tell

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Fan hands what a run has to say to all sinks that take it.
type Fan struct {
	*events
	Readers  Readers
	Record   Record
	Textfile Textfile
	Alerts   Alerts
	Status   Status
	Findings Findings
	Limits   Limits
	Sum      Summary
	signals  signals
	samples  samples
	judged   uint64 // judgements that have changed what the ladder remembers
}

// New returns a Fan that writes lines, of each node of a job with its name, and events where
// the settings say so.
func New(lines Lines, set *settings.Settings, run Run) *Fan {
	out := newEvents(lines, set, run)
	f := &Fan{
		events: out, Record: Record{out: out}, Textfile: Textfile{out: out}, Alerts: Alerts{out: out, Comment: Comment{out: out}},
		Status: Status{out: out}, Findings: Findings{out: out}, Limits: Limits{out: out}, samples: samples{out: out},
	}
	f.Status.sum = &f.Sum
	f.Textfile.soFar = func() (*event.Limit, *event.Saved) { return f.Sum.peak(), &f.Sum.Saved.Saved }
	out.sinks = append(out.sinks, &f.Sum)
	return f
}

// Readers are what is read only when it is reported.
type Readers struct {
	Counts  func(rss.ProcID) (maps, fds int)
	Pace    func(*event.Limit) float64 // see [Summary.Peak]
	Outside func(*event.Limit, *rss.Sample) rss.Bytes
	Kills   func() []limit.Kills
	Costs   func() ([]event.Cost, error) // what the holder and the watcher cost
}

// See takes in each full read for the summary and the status.
func (f *Fan) See(v *view.View) {
	f.Status.growth.add(v)
	f.Sum.Peak(&v.Sample, v.Limits, f.Readers.Pace)
	f.Sum.Grew(v, &f.Status.growth)
	f.Sum.Apart(&v.Sample, v.Limits, f.Readers.Outside)
}

// Look hands on a look.
func (f *Fan) Look(l *Look) {
	f.Tick(l.Now)
	f.samples.put(l, f.Run.Interval, f.Costs)
	f.record(l, false)
	f.Sum.noteMapped(f.events)
	f.Textfile.look(l, false, f.Readers.Kills, f.Costs)
}

// BeforeDecision hands on the look that a decision was made on, before it is carried out.
func (f *Fan) BeforeDecision(l *Look) {
	f.samples.put(l, 0, f.Costs)
	f.record(l, true)
}

// AfterDecisions has the metrics hold what was decided.
func (f *Fan) AfterDecisions(l *Look) { f.Textfile.look(l, true, f.Readers.Kills, f.Costs) }

// Moved gives the record the look at which the ladder has changed without a decision.
func (f *Fan) Moved(l *Look) { f.record(l, true) }

func (f *Fan) record(l *Look, atDecision bool) {
	if f.Record.due(l.Now, max(f.Run.Interval, recordEvery), l.View.Sample.Seq, atDecision) {
		f.Recorder.Sample(&record.Look{
			At: l.Took, AtDecision: atDecision, Sample: &l.View.Sample, Limits: l.View.Limits,
			Self: f.Run.Self, Holder: f.Run.Holder, Counts: f.Readers.Counts,
		})
	}
}

// Costs returns what the holder and the watcher cost.
func (f *Fan) Costs(now time.Duration) []event.Cost {
	costs, err := f.Readers.Costs()
	if err != nil {
		f.Fault(now, "ours", err)
	}
	return costs
}
