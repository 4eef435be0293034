package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// happened says in a sentence what a mark is. It may hold bytes of the user's: signals
// name their sender.
func happened(m *Mark) string {
	switch v := m.Event.(type) {
	case *event.Decision:
		return decisionText(v)
	case *event.Found:
		return fmt.Sprintf("limit %s is now %v", v.Name, v.Limit.Limit)
	case *event.Diagnosis:
		return "found: " + phrase.Found(v.Finding, v.Confidence, v.Bytes, v.Role)
	case *event.Rank:
		return rankText(v)
	case *event.Fault:
		return fmt.Sprintf("fault in %s: %s; the command runs on", v.Part, values.JoinLines(v.Error))
	case *event.Signal:
		return signalText(v)
	case *event.Exit:
		return exitText(v)
	}
	return ""
}

// cameOf says what came of a decision, empty where that is not known.
func cameOf(m *Mark) (text string) {
	for _, o := range m.Outcomes {
		text = resultText(o, text)
	}
	return text
}

func decisionText(d *event.Decision) string {
	text := fmt.Sprintf("%s on %s", d.Rule, d.Limit)
	if d.Asked() {
		text = fmt.Sprintf("%s, asked for by process %d", d.Action, d.By)
	}
	if d.LimitSize > 0 {
		text += " at " + phrase.Fill(d.Limit, d.Used, d.LimitSize)
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
		text += " (" + values.JoinLines(o.Detail) + ")"
	}
	if before != "" && !strings.Contains(before, text) {
		text = before + "; " + text
	}
	return text
}

func rankText(r *event.Rank) string {
	who := keyOf(r).String()
	switch {
	case r.What == event.RankLeads:
		return "the watcher of " + who + " leads from here on"
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
