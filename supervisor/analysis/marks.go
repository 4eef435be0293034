package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Mark is something that happened at one moment.
type Mark struct {
	At   time.Duration
	Kind MarkKind
	// Event is *event.Decision, *event.Found, *event.Diagnosis, *event.Rank,
	// *event.Fault, *event.Signal or *event.Exit.
	Event    any
	Outcomes []*event.Outcome // of a decision, as far as they are known
}

// OK says that the action of a decision worked.
func (m *Mark) OK() bool {
	n := len(m.Outcomes)
	return n > 0 && m.Outcomes[n-1].OK
}

// MarkKind says how a mark is drawn.
type MarkKind string

// The kinds of marks.
const (
	MarkDecision MarkKind = "decision"
	MarkLimit    MarkKind = "limit"
	MarkFinding  MarkKind = "finding"
	MarkFault    MarkKind = "fault"
	MarkSignal   MarkKind = "signal"
	MarkRank     MarkKind = "rank"
	MarkExit     MarkKind = "exit"
	MarkOOM      MarkKind = "oom"
)

// mostMarks bounds the marks of all runs of a page.
const mostMarks = 3000

// marks returns what happened in one of n runs. Where that is too much, the
// first and the last decisions stay: they tell how it began and how it ended.
func marks(r *record.Run, offset time.Duration, n int) (list []Mark, left int) {
	decided := map[uint64]int{}
	var found findingsSeen
	for i := range r.Events {
		e := &r.Events[i]
		m := Mark{At: offset + e.At, Event: e.Value}
		switch v := e.Value.(type) {
		case *event.Decision:
			decided[v.ID], m.Kind = len(list), MarkDecision
		case *event.Outcome:
			if k, ok := decided[v.Decision]; ok {
				list[k].Outcomes = append(list[k].Outcomes, v)
			}
			continue
		case *event.Found:
			if e.At <= time.Second || !v.Name.Row().Amount {
				continue // those of the start are no news
			}
			m.Kind = MarkLimit
		case *event.Diagnosis:
			if !found.first(v) {
				continue
			}
			m.Kind = MarkFinding
		case *event.Rank:
			if leads := v.What == event.RankLeads && e.At > time.Second; !leads && (v.What == event.RankLeads || !v.Failed()) {
				continue // everyday news
			}
			m.Kind = MarkRank
		case *event.Fault:
			m.Kind = MarkFault
		case *event.Signal:
			m.Kind = MarkSignal
		case *event.Exit:
			if m.Kind = MarkExit; len(v.Kernel) > 0 || v.Verdict == event.VerdictOOM {
				m.Kind = MarkOOM
			}
		default:
			continue
		}
		list = append(list, m)
	}
	if most := mostMarks / n; len(list) > most {
		left = len(list) - most
		list = append(list[:most/2:most/2], list[len(list)-(most-most/2):]...)
	}
	return list, left
}
