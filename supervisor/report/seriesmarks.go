package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Mark is something that happened at one moment.
type Mark struct {
	At   time.Duration
	Kind MarkKind
	// Text is the sentence that people read. It may hold bytes of the user's:
	// signals name their sender.
	Text string
	// Rule, Action, Limit and Used are those of a decision, Result is what came
	// of it, empty where nothing was heard, and OK that it worked.
	Rule   string
	Action event.Action
	Limit  event.LimitName
	Used   rss.Bytes
	Of     rss.Bytes // the limit's size
	Result string
	OK     bool
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
	var found grown
	for i := range r.Events {
		e := &r.Events[i]
		m := Mark{At: offset + e.At}
		switch v := e.Value.(type) {
		case *event.Decision:
			decided[v.ID] = len(list)
			m.Kind, m.Rule, m.Action, m.Limit, m.Used, m.Of = MarkDecision, v.Rule, v.Action, v.Limit, v.Used, v.LimitSize
			m.Text = decisionText(v)
		case *event.Outcome:
			if k, ok := decided[v.Decision]; ok {
				list[k].OK, list[k].Result = v.OK, resultText(v, list[k].Result)
			}
			continue
		case *event.Found:
			if e.At <= time.Second || !v.Name.Row().Amount {
				continue // those of the start are no news
			}
			m.Kind, m.Limit, m.Of = MarkLimit, v.Name, v.Limit.Limit
			m.Text = fmt.Sprintf("limit %s is now %v", v.Name, v.Limit.Limit)
		case *event.Diagnosis:
			if !found.first(v) {
				continue
			}
			m.Kind, m.Text = MarkFinding, "found: "+naming(v.Finding, v.Confidence, v.Bytes, v.Role)
		case *event.Rank:
			if m.Text = rankText(v); m.Text == "" || v.What == event.RankLeads && e.At <= time.Second {
				continue
			}
			m.Kind = MarkRank
		case *event.Fault:
			m.Kind, m.Text = MarkFault, fmt.Sprintf("fault in %s: %s; the command runs on", v.Part, unbroken(v.Error))
		case *event.Signal:
			m.Kind, m.Text = MarkSignal, signalText(v)
		case *event.Exit:
			m.Kind, m.Text = MarkExit, exitText(v)
			if len(v.Kernel) > 0 || v.Verdict == event.VerdictOOM {
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

func decisionText(d *event.Decision) string {
	text := fmt.Sprintf("%s on %s", d.Rule, d.Limit)
	if d.Asked() {
		text = fmt.Sprintf("%s, asked for by process %d", d.Action, d.By)
	}
	if d.LimitSize > 0 {
		text += " at " + fill(d.Limit, d.Used, d.LimitSize)
	}
	if d.ETA != nil {
		text += ", forecast to be reached in " + values.Span(time.Duration(*d.ETA*float64(time.Second)))
	}
	return text
}

func resultText(o *event.Outcome, before string) string {
	var text string
	switch {
	case o.OK && o.Freed > 0:
		text = fmt.Sprintf("freed %v in %.1f s", o.Freed, o.Duration)
	case o.OK:
		text = "done"
	default:
		text = "did not work: " + string(o.Reason)
		if o.Reason == "" {
			text = "did not work"
		}
	}
	if o.Paused > 0 {
		text += fmt.Sprintf(", trainer paused %.0f ms", 1000*o.Paused)
	}
	if o.Detail != "" && !o.OK {
		text += " (" + unbroken(o.Detail) + ")"
	}
	if before != "" && !strings.Contains(before, text) {
		text = before + "; " + text
	}
	return text
}

// rankText tells what is no everyday news of a rank, empty for the rest.
func rankText(r *event.Rank) string {
	who := rankName(keyOf(r))
	switch {
	case r.What == event.RankLeads:
		return "the watcher of " + who + " leads from here on"
	case !r.Failed():
		return ""
	case r.Signal != nil:
		return who + " ended by " + *r.Signal
	}
	return fmt.Sprintf("%s exited with status %d", who, *r.Code)
}

func signalText(s *event.Signal) string {
	text := s.Signal
	switch {
	case s.Comm != "":
		text += fmt.Sprintf(" from %s (PID %d)", s.Comm, s.Sender)
	case s.Sender != 0:
		text += fmt.Sprintf(" from PID %d", s.Sender)
	default:
		text += " from the kernel or another PID namespace"
	}
	if s.Forwarded {
		text += ", passed on to the command"
	}
	return text
}

func exitText(e *event.Exit) string {
	switch {
	case e.By == "detached":
		return "the watch has ended"
	case e.Signal != nil:
		return "ended by " + *e.Signal
	case e.Code != nil:
		return fmt.Sprintf("exited with status %d", *e.Code)
	}
	return "rsswarden's holder was gone"
}
