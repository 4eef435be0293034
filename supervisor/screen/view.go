package screen

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// View draws the model.
func (m Model) View() *Frame {
	l := m.layout()
	h := m.H
	if h == 0 {
		h = 16 + l.notices + l.limits + l.sums + l.activity + l.rows[0] + l.rows[1]
	}
	d := drawing{Frame: newFrame(max(1, m.W), h, m.Look), m: &m}
	d.header("rsswarden top")
	for _, text := range m.notices()[:l.notices] {
		d.put(0, d.y, d.W, Amber, "! "+text)
		d.y++
	}
	switch {
	case m.mode == reading, m.mode == asking && m.pane != nil:
		d.y += yes(l.gap)
		d.pane(l.pane)
	case m.Empty():
		d.noRun()
	default:
		d.limits(l.limits)
		d.sums(l.sums)
		for _, v := range []view{ranksView, procsView} {
			if l.rows[v] > 0 {
				d.y += yes(l.gap)
				d.table(v, l)
			}
		}
		d.activity(l.activity)
	}
	if m.Live {
		d.footer(h - 1)
	}
	if m.H == 0 { // what is empty at the end was never needed
		d.trimmed()
	}
	return d.Frame
}

// trimmed takes off empty lines at the end.
func (f *Frame) trimmed() {
	for f.H > 1 && !slices.ContainsFunc(f.line(f.H-1), func(c cell) bool { return c != blank }) {
		f.H--
	}
}

// drawing is a frame with the next line to draw on.
type drawing struct {
	*Frame
	m *Model
	y int
}

// part is a part of a line.
type part struct {
	text  string
	drop  int // see fit
	style Style
	gap   string // before it
}

// header is one line: the program, what is watched, of when it is, and the keys that help
// further.
func (d *drawing) header(program string) {
	m := d.m
	const gap = "   "
	parts := []part{{program + gap, 9, Bold, ""}}
	const dot = " · "
	for i, p := range m.headline() {
		if p.style = Bold; i > 0 {
			p.gap = dot
		}
		parts = append(parts, p)
	}
	if clock, style := m.clock(); clock != "" {
		parts = append(parts, part{clock, 1 - yes(style != Plain), style, gap})
	}
	parts, used := fit(parts, d.W, func(p part) (width, drop int) { return text.Columns(p.gap + p.text), p.drop })
	x := 0
	for _, p := range parts {
		x = d.put(x, d.y, d.W, Bold, p.gap)
		x = d.put(x, d.y, d.W, p.style, p.text)
	}
	for _, keys := range []string{"q quit  ? help", "? help"} {
		if m.Live && m.mode != reading && used+len(gap)+len(keys) <= d.W {
			d.right(x, d.y, d.W, Dim, keys)
			break
		}
	}
	d.y++
}

// headline says what is watched. The front of it stays however narrow the screen is.
func (m *Model) headline() []part {
	if len(m.nodes) == 0 {
		return []part{{text: cmp.Or(jobs(m.Job), "this node")}}
	}
	var names, ids []string
	var begun, now time.Time
	dry := false
	for i := range m.nodes {
		n := &m.nodes[i]
		names, ids = append(names, n.Node), append(ids, n.Job)
		dry = dry || n.DryRun
		if n.Time.After(now) {
			now = n.Time
		}
		for j := range n.Ranks {
			if s := n.Ranks[j].Since; !s.IsZero() && (begun.IsZero() || s.Before(begun)) {
				begun = s
			}
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	names = slices.Compact(names)
	var parts []part
	if what := jobs(ids...); what != "" {
		parts = append(parts, part{text: what})
	}
	switch len(m.ranks) {
	case 0:
	case 1:
		r := &m.ranks[0]
		parts = append(parts, part{text: fmt.Sprintf("%s (%d)", program(r.command), r.pid), drop: yes(len(parts) > 0) * 5})
	default:
		parts = append(parts, part{text: text.Count(len(m.ranks), "rank"), drop: yes(len(parts) > 0) * 6})
	}
	where := strings.Join(names, " ")
	if len(names) > 3 {
		where = text.Count(len(names), "node")
	}
	parts = append(parts, part{text: where, drop: yes(len(parts) > 0) * 4})
	if !begun.IsZero() {
		parts = append(parts, part{text: since(now, begun), drop: 7})
	}
	if dry {
		parts = append(parts, part{text: "dry run", drop: 2})
	}
	return parts
}

// jobs names Slurm jobs, empty for none.
func jobs(ids ...string) string {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return "job " + ids[0]
	}
	return "jobs " + strings.Join(ids, " ")
}

// program is the script of a command, or its program where it has none: in a header both
// tell more than an interpreter.
func program(command string) string {
	words := strings.Fields(command)
	for i, w := range words {
		base := path.Base(w)
		interpreter := i == 0 && slices.ContainsFunc([]string{"python", "torchrun", "bash", "sh", "srun", "env"}, func(s string) bool { return strings.HasPrefix(base, s) })
		if !interpreter && !strings.HasPrefix(w, "-") && (i == 0 || path.Ext(base) != "") {
			return text.Middle(base, 30)
		}
		if w == "-c" || w == "-m" {
			break
		}
	}
	return text.Middle(cmp.Or(strings.Join(words, " "), "a command"), 30)
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
	if m.Empty() {
		return "", Plain
	}
	var newest *node
	for i := range m.nodes {
		if n := &m.nodes[i]; newest == nil || n.age(m.now) < newest.age(m.now) {
			newest = n
		}
	}
	line, age := newest.Time.In(m.Zone).Format(time.TimeOnly), newest.age(m.now)
	if age > m.old() {
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
	if age, names := m.oldest(); len(names) > 0 {
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

// sums draws for the first n nodes the peak and what was done.
func (d *drawing) sums(n int) {
	for i := range d.m.nodes[:n] {
		node := &d.m.nodes[i]
		front := "peak " + node.peak()
		if len(d.m.nodes) > 1 {
			front = node.name + " " + front
		}
		did := node.did()
		for len(did) > 1 && 1+len(front)+7+text.Columns(strings.Join(did, ", ")) > d.W {
			did = did[:len(did)-1] // no number is cut
		}
		x := d.put(1, d.y, d.W, Bold, front)
		if room := d.W - x - 7; room >= text.Columns(did[0]) || room > 20 {
			d.put(x, d.y, d.W, Plain, "   did "+strings.Join(did, ", "))
		}
		d.y++
	}
}

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

// noRun says what a screen without data means.
func (d *drawing) noRun() {
	m := d.m
	d.y++
	line := []string{"asking ..."}
	if !m.answered.IsZero() {
		switch {
		case len(m.errs) > 0:
			line = []string{"No node answers."}
		case m.Job != "":
			line = []string{"No rsswarden run in job " + m.Job + ".", "", "Is it running, and under rsswarden run? squeue --job " + m.Job}
		default:
			line = []string{
				"No rsswarden run on this node.", "",
				"rsswarden run -- COMMAND   starts a command that is watched.",
				"rsswarden top --job ID     shows a job on other nodes.",
			}
		}
		if m.Live {
			line = append(line, "", "Asking again every "+text.Seconds(m.Interval.Seconds())+".")
		}
	}
	for _, t := range line {
		d.put(2, d.y, d.W, Plain, t)
		d.y++
	}
}

// footer is the last line where something is asked or typed. A question takes as many lines
// as it needs: it names all that are meant.
func (d *drawing) footer(y int) {
	m := d.m
	switch {
	case m.mode == asking:
		lines := folded(clean(m.asked.question, m.Look)+"?  y:yes n:no", d.W)
		for i, line := range lines {
			at := y - len(lines) + 1 + i
			d.put(0, at, d.W, Reverse, line+strings.Repeat(" ", max(0, d.W-text.Columns(line))))
		}
	case m.mode == filtering:
		x := d.put(0, y, d.W-1, Bold, "filter: ")
		x = d.put(x, y, d.W-1, Plain, m.filter)
		x = d.put(x, y, d.W, Reverse, " ")
		d.put(x, y, d.W, Dim, "  Enter keeps it, Esc takes it back")
	case m.message != "":
		d.put(0, y, d.W, Bold, m.message)
	case m.mode == reading:
		d.put(0, y, d.W, Dim, "q back  PgDn more  ^C quit")
	}
}
