package screen

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// activityLines are what was asked for here, what is being done, and the newest outcomes.
func (m *Model) activityLines() []string {
	var lines []string
	for i := range m.doing {
		lines = append(lines, "asked "+m.doing[i].progress(m.now))
	}
	where := func(n *node) string {
		if len(m.nodes) > 1 {
			return n.name + " "
		}
		return ""
	}
	type ended struct {
		at   time.Time
		text string
	}
	var last []ended
	for i := range m.nodes {
		n := &m.nodes[i]
		if a := n.Action; a != nil {
			lines = append(lines, "now  "+where(n)+doing(a)+", for "+since(n.Time, a.Since))
		}
		for j := range n.Last {
			o := &n.Last[j]
			last = append(last, ended{o.Time, o.Time.In(m.Zone).Format(time.TimeOnly) + " " + where(n) + outcome(o)})
		}
	}
	slices.SortStableFunc(last, func(a, b ended) int { return b.at.Compare(a.at) })
	for _, t := range last {
		lines = append(lines, "last "+t.text)
	}
	return lines
}

// doing says what is being done.
func doing(a *control.Action) string {
	line := string(a.Action)
	if len(a.PIDs) > 0 {
		line += " of " + text.List(a.PIDs, 4)
	}
	if a.Rule == event.AskedFor {
		return line + ", asked for"
	}
	return line + ", by " + a.Rule
}

func (d *drawing) activity(n int) {
	lines := d.m.activityLines()
	for _, line := range lines[:min(n, len(lines))] {
		style := Bold
		if strings.HasPrefix(line, "last ") {
			style = Plain
		}
		d.put(1, d.y, d.W, style, line)
		d.y++
	}
}

// outcome says the outcome of an action, in the words of the log.
func outcome(o *control.Outcome) string {
	if o.Action == "" {
		return o.Name() // of an older leader
	}
	line := phrase.Outcome(&event.Decision{Action: o.Action, Arg: o.Arg}, &o.Outcome, 0)
	if o.Rule == event.AskedFor {
		line += ", " + event.AskedFor
	}
	return line
}
