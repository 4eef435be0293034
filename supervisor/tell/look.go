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
	f.samples.put(l, f.Run.Interval, f.Costs)
	f.record(l, false)
	f.Textfile.look(l, false, f.Readers.Kills)
}

// BeforeDecision hands on the look that a decision was made on, before it is carried out.
func (f *Fan) BeforeDecision(l *Look) {
	f.samples.put(l, 0, f.Costs)
	f.record(l, true)
}

// AfterDecisions has the metrics hold what was decided.
func (f *Fan) AfterDecisions(l *Look) { f.Textfile.look(l, true, f.Readers.Kills) }

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
	stream := s.out.stream
	if stream == nil && !s.out.Clients.Any() {
		return
	}
	if stream != nil {
		s.dropped += stream.Dropped()
	}
	e := event.Sample{Limits: briefly(l.View.Limits), Procs: map[rss.Role]int{}, Gaps: l.View.Sample.Gaps}
	for i := range l.View.Sample.Procs {
		e.Procs[l.View.Sample.Procs[i].Role]++
	}
	if l.Now-s.costAt >= costEvery {
		s.costAt, e.Ours = l.Now, costs(l.Now)
	}
	e.Head, e.Dropped = s.out.head(event.NameSample), s.dropped
	s.out.Clients.tell(e)
	if stream == nil {
		return
	}
	stream.Put(event.NameSample, e)
	if n := stream.Dropped(); n > 0 {
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
