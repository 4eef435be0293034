package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// least is the smallest screen that is drawn on.
const (
	leastWidth  = 30
	leastHeight = 6
)

// View draws the model.
func (m Model) View() *Frame {
	if m.H > 0 && (m.W < leastWidth || m.H < leastHeight) {
		f := newFrame(max(1, m.W), max(1, m.H), m.Look)
		f.put(0, 0, f.W, Plain, fmt.Sprintf("make it %dx%d", leastWidth, leastHeight))
		f.put(0, 1, f.W, Plain, "q quits")
		return f
	}
	l := m.layout()
	h := m.H
	if h == 0 {
		h = 1 + l.notices + yes(l.titles) + l.limits + l.activity + 8 + 2*2 + l.rows[0] + l.rows[1]
	}
	d := drawing{Frame: newFrame(m.W, h, m.Look), m: &m}
	d.header()
	for _, text := range m.notices()[:l.notices] {
		d.put(0, d.y, d.W, Amber, "! "+text)
		d.y++
	}
	bottom := h - yes(l.keys)
	switch {
	case m.mode == reading, m.mode == asking && m.pane != nil:
		d.y += yes(l.gap)
		d.pane(l.pane)
	case m.Nobody():
		d.nobody()
	default:
		d.limits(l)
		for _, v := range []view{ranksView, procsView} {
			if l.rows[v] > 0 || v == m.view && m.H > 0 {
				d.y += yes(l.gap)
				d.table(v, l)
			}
		}
		if m.H == 0 {
			bottom = d.y + 1 + l.activity
		}
		d.activity(bottom-l.activity, l.activity)
	}
	if l.keys {
		d.footer(h - 1)
	}
	if m.H == 0 { // what is empty at the end was never needed
		for f := d.Frame; f.H > 1 && !slices.ContainsFunc(f.line(f.H-1), func(c cell) bool { return c != blank }); f.H-- {
		}
	}
	return d.Frame
}

// drawing is a frame with the next line to draw on.
type drawing struct {
	*Frame
	m *Model
	y int
}

// header is one line: what is watched, who says so, and of when it is.
func (d *drawing) header() {
	m := d.m
	clock, style := m.clock()
	end := d.W
	if clock != "" {
		end = max(0, d.W-text.Columns(clock)-1)
		d.right(0, d.y, d.W, style, clock)
	}
	x := 0
	for i, part := range m.headline(end) {
		if i > 0 {
			x += 2
		}
		x = d.put(x, d.y, end, Bold, part)
	}
	d.y++
}

// headline is the front of the header, what matters least left out until it fits.
func (m *Model) headline(width int) []string {
	type part struct {
		text string
		drop int // see fit
	}
	job := "this node"
	if m.Job != "" {
		job = "job " + m.Job
	}
	if len(m.nodes) == 0 {
		return []string{"rsswarden top", job}
	}
	var names, jobs, leaders, versions []string
	dry := false
	add := func(list *[]string, s string) {
		if s != "" && !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for i := range m.nodes {
		n := &m.nodes[i]
		add(&names, n.Node)
		add(&jobs, n.Job)
		add(&leaders, fmt.Sprint(n.Leader))
		add(&versions, n.Version)
		dry = dry || n.DryRun
	}
	switch {
	case len(jobs) == 1:
		job = "job " + jobs[0]
	case len(jobs) > 1:
		job = "jobs " + strings.Join(jobs, " ")
	case m.Job == "":
		job = "no Slurm job"
	}
	nodes := strings.Join(names, " ")
	if len(names) > 3 {
		nodes = text.Count(len(names), "node")
	}
	leader := "leader " + leaders[0]
	if len(leaders) > 1 {
		leader = "leaders " + strings.Join(leaders, " ")
	}
	version := strings.Join(versions, " and ")
	parts := []part{{"rsswarden", 1}, {version, 2}, {job, 0}, {nodes, 0}, {leader, 3}}
	if len(leaders) > 3 {
		parts = parts[:4]
	}
	if dry {
		parts = append(parts, part{"DRY RUN", 0})
	}
	parts, _ = fit(parts, width+2, func(p part) (width, drop int) { return text.Columns(p.text) + 2, p.drop })
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.text)
	}
	return texts
}

// fit takes out of a list, where there is no room for all, what has the greatest drop
// first; what has 0 stays. It returns the width of the rest too.
func fit[T any](list []T, room int, of func(T) (width, drop int)) ([]T, int) {
	for {
		total, worst, most := 0, 0, 0
		for i, x := range list {
			width, drop := of(x)
			if total += width; drop > most {
				worst, most = i, drop
			}
		}
		if total <= room || most == 0 {
			return list, total
		}
		list = slices.Delete(list, worst, worst+1)
	}
}

// clock is the time of the newest data, and how old it is where it should not be.
func (m *Model) clock() (string, Style) {
	if m.Nobody() {
		return "", Plain
	}
	var newest *node
	for i := range m.nodes {
		if n := &m.nodes[i]; newest == nil || n.age(m.now) < newest.age(m.now) {
			newest = n
		}
	}
	line, age := newest.Time.In(m.Zone).Format(time.TimeOnly), newest.age(m.now)
	switch {
	case !m.frozen.IsZero():
		return fmt.Sprintf(" FROZEN %s ago  %s ", since(m.now, m.frozen), line), Reverse
	case age > m.old():
		return fmt.Sprintf(" %s OLD  %s ", text.About(age.Seconds()), line), Reverse
	}
	return line, Plain
}

// notices are what a reader must know before the numbers below.
func (m *Model) notices() []string {
	var all []string
	if m.answered.IsZero() {
		return nil
	}
	all = append(all, m.errs...)
	if len(m.nodes) > 0 && len(m.errs) == 0 && m.nodes[0].missing {
		all = append(all, "the run or its watcher has ended: last numbers; rsswarden report says how")
	}
	if age, names := m.oldest(); len(names) > 0 && m.frozen.IsZero() {
		whose := strings.Join(names, ", ")
		if len(names) > 3 {
			whose = text.Count(len(names), "node")
		}
		all = append(all, fmt.Sprintf("%s: data up to %s old", whose, text.About(age.Seconds())))
	}
	for i := range m.nodes {
		n := &m.nodes[i]
		if g := n.Gaps; g.Denied+g.Malformed > 0 {
			all = append(all, fmt.Sprintf("%s on %s could not be read: sums are too small", text.Count(g.Denied+g.Malformed, "process"), n.Node))
		}
	}
	return all
}

// nobody tells what a screen without data means.
func (d *drawing) nobody() {
	m := d.m
	d.y++
	line := []string{"asking ..."}
	if !m.answered.IsZero() {
		switch {
		case len(m.errs) > 0:
			line = []string{"No node answers."}
		case m.Job != "":
			line = []string{"No rsswarden leads in job " + m.Job + ".", "", "Is it running, and under rsswarden run? squeue --job " + m.Job}
		default:
			line = []string{
				"No rsswarden leads on this node.", "",
				"rsswarden run -- COMMAND   starts a command that is watched.",
				"rsswarden top --job ID     shows a job on other nodes.",
			}
		}
		if m.Live {
			line = append(line, "", "It is asked again every "+text.Seconds(m.Interval.Seconds())+".")
		}
	}
	for _, t := range line {
		d.put(2, d.y, d.W, Plain, t)
		d.y++
	}
}

// footer is the last line: the keys, or what is being typed. A question takes as
// many lines as it needs: it names all who are meant.
func (d *drawing) footer(y int) {
	m := d.m
	switch {
	case m.mode == asking:
		lines := folded(clean(m.asked.question, m.Look.Unicode)+"?  y:yes n:no", d.W)
		for i, line := range lines {
			at := y - len(lines) + 1 + i
			d.put(0, at, d.W, Reverse, line+strings.Repeat(" ", max(0, d.W-text.Columns(line))))
		}
	case m.mode == filtering:
		x := d.put(0, y, d.W-1, Bold, "filter: ")
		x = d.put(x, y, d.W-1, Plain, m.filter)
		x = d.put(x, y, d.W, Reverse, " ")
		d.put(x, y, d.W, Dim, "  Enter keeps it, Esc takes it back")
	case m.mode == sorting:
		d.sortKeys(y)
	case m.message != "":
		d.put(0, y, d.W, Bold, m.message)
	case m.mode == reading:
		d.keys(y, paneKeys)
	case m.Nobody():
		d.keys(y, []hint{{"?", "help", 0}, {"q", "quit", 0}})
	default:
		d.keys(y, tableKeys)
	}
}

// hint is a key and what it does.
type hint struct {
	key, text string
	drop      int // see fit
}

var (
	tableKeys = []hint{
		{"?", "help", 0}, {"Tab", "view", 2}, {"s", "sort", 4}, {"/", "filter", 5}, {"i", "inspect", 6}, {"l", "limits", 9},
		{"R", "recycle", 3}, {"T", "trim", 7}, {"C", "checkpoint", 8}, {"space", "freeze", 10}, {"q", "quit", 0},
	}
	paneKeys = []hint{{"q", "back", 0}, {"PgDn", "more", 1}, {"^C", "quit", 0}}
)

func (d *drawing) keys(y int, list []hint) {
	list, _ = fit(slices.Clone(list), d.W+1, func(h hint) (width, drop int) { return len(h.key) + len(h.text) + 2, h.drop })
	x := 0
	for _, h := range list {
		x = d.put(x, y, d.W, Bold, h.key)
		x = d.put(x, y, d.W, Dim, ":"+h.text) + 1
	}
}

// sortKeys shows what the table may be sorted by, the choice in brackets.
func (d *drawing) sortKeys(y int) {
	t := &d.m.tables[d.m.view]
	x := d.put(0, y, d.W, Bold, "sort: ")
	var all []string
	at := 0
	for i, c := range columns[d.m.view] {
		all = append(all, c.key)
		if c.key == t.sort {
			at = i
		}
	}
	// Where they do not fit the line begins further on.
	from := 0
	for from < at && x+len(strings.Join(all[from:at+1], " "))+4 > d.W {
		from++
	}
	for i := from; i < len(all); i++ {
		text, style := " "+all[i]+" ", Dim
		if i == at {
			text, style = fmt.Sprintf("[%s]", all[i]), Bold
		}
		if x+len(text) > d.W {
			d.put(d.W-1, y, d.W, Dim, d.ellipsis())
			return
		}
		x = d.put(x, y, d.W, style, text)
	}
}
