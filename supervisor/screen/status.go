package screen

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Status is what the command status prints: of several runs a line each, unless all of each
// is asked for; else of each run the front of its frame, and the rules.
func Status(statuses []control.Status, look text.Style, zone *time.Location, details bool) []*Frame {
	if len(statuses) > 1 && !details {
		return []*Frame{runs(statuses, look)}
	}
	var all []*Frame
	for _, st := range statuses {
		m := New(look.Columns(), 0, look)
		m.Zone = zone
		m, _ = m.Update(Answer{Statuses: []control.Status{st}, At: st.Time})
		all = append(all, statusFrame(m))
	}
	return all
}

// statusFrame draws one run without its processes.
func statusFrame(m Model) *Frame {
	n := &m.nodes[0]
	facts := n.facts(m.W, m.Zone)
	limits := len(limitRows(m.nodes))
	d := drawing{Frame: newFrame(m.W, 4+limits+len(facts)+len(m.notices()), m.Look), m: &m}
	d.header("rsswarden")
	for _, notice := range m.notices() {
		d.put(0, d.y, d.W, Amber, "! "+notice)
		d.y++
	}
	d.limits(limits)
	d.sums(1)
	d.activity(1)
	for _, line := range facts {
		d.put(0, d.y, d.W, Plain, line)
		d.y++
	}
	d.trimmed()
	return d.Frame
}

// facts are the rules, why a rank has no hook, and the receivers of alerts, broken to lines.
func (n *node) facts(width int, zone *time.Location) (lines []string) {
	add := func(name, format string, args ...any) {
		lines = append(lines, folded(fmt.Sprintf(" %-5s ", name)+fmt.Sprintf(format, args...), width)...)
	}
	if rules := n.ladder(); rules != "" {
		add("rules", "%s", rules)
	}
	for i := range n.Ranks {
		if r := &n.Ranks[i]; r.Why != "" {
			add("hook", "%s in process %d: %s", r.Hook, r.PID, r.Why)
		}
	}
	for i := range n.Alerts {
		add("alert", "%s", alerts(&n.Alerts[i], zone))
	}
	return lines
}

// alerts is what became of the alerts for one receiver.
func alerts(a *control.Alerts, zone *time.Location) string {
	line := fmt.Sprintf("%s: %d firing, %d sent", a.Receiver, a.Firing, a.Sent)
	for _, n := range []struct {
		n    int
		what string
	}{{a.Untold, "not sent yet"}, {a.Failed, "failed"}, {a.Lost, "lost"}} {
		if n.n > 0 {
			line += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	if a.Held {
		line += ", held: too little memory is left to send"
	}
	if a.SentAt != nil {
		line += "; last sent " + a.SentAt.In(zone).Format(time.TimeOnly)
	}
	if a.Error != "" && a.FailedAt != nil {
		line += "; failed " + a.FailedAt.In(zone).Format(time.TimeOnly) + ": " + a.Error
	}
	return line
}

var runColumns = []gridColumn{
	{}, {gap: 1}, {gap: 2, drop: 5}, {gap: 2, drop: 4}, {gap: 2, drop: 3}, {gap: 2, right: true}, {gap: 1, right: true},
	{gap: 2, drop: 2, right: true}, {gap: 2, drop: 1}, {gap: 2, drop: 6},
}

// runs draws a table of several runs.
func runs(statuses []control.Status, look text.Style) *Frame {
	m, _ := New(look.Columns(), 0, look).Update(Answer{Statuses: statuses})
	rows := [][]string{{"", "JOB", "NODE", "RANKS", "LIMIT", "USED", "", "PEAK", "TREND", "LAST ACTION"}}
	for i := range m.nodes {
		rows = append(rows, m.nodes[i].line(look))
	}
	if !slices.ContainsFunc(m.nodes, func(n node) bool { return n.Node != m.nodes[0].Node }) {
		for _, r := range rows {
			r[2] = ""
		}
	}
	d := drawing{Frame: newFrame(m.W, len(rows)+1, look), m: &m}
	d.grid(runColumns, rows, func(row int) Style {
		if row == 0 {
			return Dim
		}
		return Plain
	})
	d.put(0, d.y, d.W, Plain, text.Count(len(m.nodes), "run")+". Details: "+details(m.nodes))
	return d.Frame
}

// line is one run in the table of several.
func (n *node) line(look text.Style) []string {
	line := []string{look.Glyph("…"), cmp.Or(n.Job, "-"), n.Node, n.rankNumbers(), "none found", "-", "", "-", "-", "-"}
	if rows := limitRows([]node{*n}); len(rows) > 0 {
		l := rows[0].Limit
		if i := slices.IndexFunc(rows, func(r limitRow) bool { return r.Limit.Name == event.LimitUser }); i > 0 && l.Name == event.LimitNode && l.Ratio() < event.NearShare {
			l = rows[i].Limit // the peak is of it too
		}
		used, size := uses(&l.Limit)
		copy(line[4:], []string{n.label(&l.Limit) + " " + size, used, percent(&l.Limit), n.peak(), Trend(l)})
	}
	switch {
	case n.Action != nil:
		line[9] = string(n.Action.Action) + " now"
	case len(n.Last) > 0:
		line[9] = n.Last[0].Name() + " " + since(n.Time, n.Last[0].Time)
	}
	return line
}

// rankNumbers are the numbers of the ranks, "0-3"; of a run outside Slurm its PID.
func (n *node) rankNumbers() string {
	var tasks []int
	for i := range n.Ranks {
		if t := n.Ranks[i].Task; t >= 0 {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 && len(n.Ranks) > 0 {
		return fmt.Sprintf("pid %d", n.Ranks[0].PID)
	}
	slices.Sort(tasks)
	if n := len(tasks) - 1; n > 0 && tasks[n]-tasks[0] == n {
		return fmt.Sprintf("%d-%d", tasks[0], tasks[n])
	}
	return cmp.Or(text.List(tasks, 3), "-")
}

// details is what to type for all of one run.
func details(nodes []node) string {
	job, pid := "", ""
	for i := range nodes {
		if n := &nodes[i]; n.Job != "" {
			job = cmp.Or(job, "--job "+n.Job)
		} else if len(n.Ranks) > 0 {
			pid = cmp.Or(pid, fmt.Sprintf("--pid %d", n.Ranks[0].PID))
		}
	}
	if job != "" && pid != "" {
		pid = " (or " + pid + ")"
	}
	return "rsswarden status " + job + pid + ", rsswarden top"
}
