package tell

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

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
	stream := s.out.stream
	if stream == nil && !s.out.Clients.Takes() {
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
	s.out.Clients.Event("", e)
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
