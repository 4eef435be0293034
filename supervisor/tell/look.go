package tell

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// Look is a full look as the sinks get it. A sink takes what is due.
type Look struct {
	Now   time.Duration // by the watcher's clock
	Took  time.Duration // of the run
	View  *view.View
	Ranks int // that are watched together, 0 where we attached
}

// Readers are what is read only when it is told.
type Readers struct {
	Counts  func(rss.ProcID) (maps, fds int)
	Pace    func(*event.Limit) float64 // see [Summary.Peak]
	Outside func(*event.Limit, *rss.Sample) rss.Bytes
	Kills   func() []limit.Kills
	Costs   func() ([]event.Cost, error) // what the holder and the watcher cost
}

// See takes in each full read for the summary.
func (f *Fan) See(v *view.View) {
	f.Sum.Peak(&v.Sample, v.Limits, f.Readers.Pace)
	f.Sum.Apart(&v.Sample, v.Limits, f.Readers.Outside)
}

// Look hands on a look.
func (f *Fan) Look(l *Look) {
	f.sample(l, f.Run.Interval)
	f.record(l, false)
	f.export(l, false)
}

// BeforeDecision hands on the look that a decision was made on, before it is carried out.
func (f *Fan) BeforeDecision(l *Look) {
	f.sample(l, 0)
	f.record(l, true)
}

// AfterDecisions has the metrics hold what was decided.
func (f *Fan) AfterDecisions(l *Look) { f.export(l, true) }

// Moved gives the record the look at which the ladder has changed without a decision.
func (f *Fan) Moved(l *Look) { f.record(l, true) }

func (f *Fan) record(l *Look, atDecision bool) {
	if f.Record.due(l.Now, max(f.Run.Interval, recordEvery), l.View.Sample.Seq, atDecision) {
		f.Record.To.Sample(&record.Look{
			At: l.Took, AtDecision: atDecision, Sample: &l.View.Sample, Limits: l.View.Limits,
			Self: f.Run.Self, Holder: f.Run.Holder, Counts: f.Readers.Counts,
		})
	}
}

// costEvery is how often a sample tells what we cost ourselves.
const costEvery = time.Minute

// sample puts what the limits stand at, where the last time is so long ago, with the number
// of events that the stream lost. The record has samples of its own.
func (f *Fan) sample(l *Look, every time.Duration) {
	if l.Now-f.sampleAt < every {
		return
	}
	f.sampleAt = l.Now
	if f.stream == nil && !f.Clients.Any() {
		return
	}
	if f.stream != nil {
		f.dropped += f.stream.Dropped()
	}
	s := &l.View.Sample
	e := event.Sample{Limits: briefly(l.View.Limits), Procs: map[rss.Role]int{}, Gaps: s.Gaps}
	for i := range s.Procs {
		e.Procs[s.Procs[i].Role]++
	}
	if l.Now-f.costAt >= costEvery {
		f.costAt, e.Ours = l.Now, f.Costs(l.Now)
	}
	e.Head, e.Dropped = f.head(event.NameSample), f.dropped
	f.Clients.tell(e)
	if f.stream == nil {
		return
	}
	f.stream.Put(event.NameSample, e)
	if n := f.stream.Dropped(); n > 0 {
		f.dropped += n // this one among them: the next has the number
		return
	}
	f.dropped = 0
}

// Costs returns what the holder and the watcher cost.
func (f *Fan) Costs(now time.Duration) []event.Cost {
	costs, err := f.Readers.Costs()
	if err != nil {
		f.Fault(now, "ours", err)
	}
	return costs
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
