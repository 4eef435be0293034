package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// activityLines tell what is being done, what was asked for here, and the newest
// outcomes, as many as there is room for.
func (m *Model) activityLines() []string {
	var lines []string
	for i := range m.doing {
		lines = append(lines, "asked "+m.doing[i].told(m.now))
	}
	where := func(n *node) string {
		if len(m.nodes) > 1 {
			return n.name + " "
		}
		return ""
	}
	type told struct {
		at   time.Time
		text string
	}
	var last []told
	busy := false
	for i := range m.nodes {
		n := &m.nodes[i]
		if a := n.Action; a != nil {
			line := fmt.Sprintf("now   %s%s", where(n), a.Action)
			if len(a.PIDs) > 0 {
				line += " of " + text.List(a.PIDs, 4)
			}
			lines = append(lines, fmt.Sprintf("%s, %s, for %s", line, by(a.Rule), since(n.Time, a.Since)))
			busy = true
		}
		for j := range n.Last {
			o := &n.Last[j]
			last = append(last, told{o.Time, o.Time.In(m.Zone).Format(time.TimeOnly) + " " + where(n) + outcome(o)})
		}
	}
	slices.SortStableFunc(last, func(a, b told) int { return b.at.Compare(a.at) })
	if !busy && len(last) == 0 {
		return append(lines, "now   nothing"+m.known())
	}
	for _, t := range last {
		lines = append(lines, "last  "+t.text)
	}
	return lines
}

// known says since when what was done is known: a leader knows of none before it.
func (m *Model) known() string {
	var from time.Time
	who := "this leader"
	for i := range m.nodes {
		if s := m.nodes[i].Since; s.After(from) {
			from = s
		}
	}
	switch {
	case from.IsZero():
		return ""
	case len(m.nodes) > 1:
		who = "the last"
	}
	return fmt.Sprintf("; nothing was done since %s, when %s began to lead", from.In(m.Zone).Format(time.TimeOnly), who)
}

func (m *Model) activityCount() int {
	if m.Nobody() {
		return 0
	}
	return len(m.activityLines())
}

func (d *drawing) activity(y, n int) {
	lines := d.m.activityLines()
	for i := range min(n, len(lines)) {
		style := Plain
		if strings.HasPrefix(lines[i], "now   ") && d.m.busy() || strings.HasPrefix(lines[i], "asked ") {
			style = Bold
		}
		d.put(0, y+i, d.W, style, lines[i])
	}
}

func (m *Model) busy() bool {
	return slices.ContainsFunc(m.nodes, func(n node) bool { return n.Action != nil })
}

func by(rule string) string {
	if rule == "" || rule == "asked for" {
		return "asked for"
	}
	return "by " + rule
}

// outcome says the outcome of an action.
func outcome(o *control.Outcome) string {
	who := o.Name()
	if o.PID != 0 {
		who = fmt.Sprintf("%s of %d", who, o.PID)
	}
	if o.Rule == event.AskedFor {
		who += ", asked for"
	}
	who += ": "
	if !o.OK {
		return who + "not done: " + reason(o.Reason, o.Detail)
	}
	line := who + "done"
	if o.Freed > 0 || o.Before > 0 && !o.Action.Asks() {
		line += fmt.Sprintf(", freed %v", o.Freed)
	}
	if o.Paused > 0 {
		line += ", trainer paused " + text.Seconds(o.Paused)
	} else if o.Duration > 0 {
		line += " in " + text.Seconds(o.Duration)
	}
	if o.Detail != "" {
		line += " (" + o.Detail + ")"
	}
	return line
}
