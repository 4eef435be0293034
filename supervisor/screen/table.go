package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

// fitted are the columns of a table that a width has room for, the command taking
// the rest. What the table is sorted by stays.
func (m *Model) fitted(v view) []column {
	list := slices.Clone(columns[v])
	wide := 0
	for i := range list {
		switch list[i].key {
		case "node":
			for j := range m.nodes {
				wide = max(wide, text.Columns(m.nodes[j].name))
			}
			list[i].width = min(max(wide, 4), 14)
		case "role":
			if m.W >= 110 {
				list[i].width = 11
				list[i].cell = func(r *row) string { return string(r.proc.Role) }
			}
		}
	}
	list = slices.DeleteFunc(list, func(c column) bool {
		if c.key == m.tables[v].sort {
			return false
		}
		return c.key == "node" && len(m.nodes) < 2 || c.key == "pss" && !m.knowsPSS()
	})
	for {
		total, worst := 2, -1
		for i, c := range list {
			total += c.width + 1
			if c.drop > 0 && c.key != m.tables[v].sort && (worst < 0 || c.drop > list[worst].drop) {
				worst = i
			}
		}
		if total <= m.W || worst < 0 {
			list[len(list)-1].width += max(0, m.W-total)
			return list
		}
		list = slices.Delete(list, worst, worst+1)
	}
}

func (m *Model) knowsPSS() bool {
	return slices.ContainsFunc(m.procs, func(r row) bool { return r.proc.PSS != nil })
}

// table draws a table with the line that names it.
func (d *drawing) table(v view, l layout) {
	m := d.m
	t := &m.tables[v]
	if l.tabs {
		d.tab(v, l)
		d.y++
	}
	list := m.fitted(v)
	d.titles(v, list)
	d.y++
	end := d.y + l.rows[v]
	for i := t.top; i < len(t.rows) && d.y < end; i++ {
		d.row(list, &t.rows[i])
		if m.Live && v == m.view && i == t.index && m.mode != asking {
			d.put(0, d.y, 1, Plain, ">")
			d.paint(d.y, Reverse)
		} else if m.Live && v == m.view && i == t.index {
			d.put(0, d.y, 1, Bold, ">")
		}
		d.y++
	}
	if len(t.rows) == 0 {
		text := "none"
		if m.filter != "" {
			text = fmt.Sprintf("nothing meets the filter %q", m.filter)
		}
		d.put(2, d.y, d.W, Plain, text)
	}
	if m.H > 0 {
		d.y = end
	} else if len(t.rows) == 0 {
		d.y++
	}
}

// tab names the table, the other, what is left by the filter and the order.
func (d *drawing) tab(v view, l layout) {
	m := d.m
	t := &m.tables[v]
	all := [...]int{ranksView: len(m.ranks), procsView: len(m.procs)}
	name := func(v view) string { return fmt.Sprintf("%s %d", strings.ToUpper(v.String()), all[v]) }
	x := 0
	style := Bold
	alone := m.H > 0 && l.rows[1-v] == 0
	switch {
	case m.Live && alone:
		for _, w := range []view{ranksView, procsView} {
			text, s := " "+name(w)+" ", Dim
			if w == v {
				text, s = "["+name(w)+"]", Bold
			}
			x = d.put(x, d.y, d.W, s, text)
		}
	case m.Live && v == m.view:
		x = d.put(x, d.y, d.W, style, "["+name(v)+"]")
	default:
		x = d.put(x, d.y, d.W, style, " "+name(v))
	}
	if m.filter != "" {
		x = d.put(x, d.y, d.W, Bold, fmt.Sprintf("  %d meet %q", len(t.rows), m.filter))
	}
	order := "  by " + t.sort
	if t.reverse {
		order += ", turned round"
	}
	x = d.put(x, d.y, d.W, Plain, order)
	if n := l.rows[v]; n > 0 && len(t.rows) > n {
		d.right(x+1, d.y, d.W, Plain, fmt.Sprintf("%d-%d of %d", t.top+1, min(t.top+n, len(t.rows)), len(t.rows)))
	}
}

// titles draws the names of the columns, the one that sorts with a mark.
func (d *drawing) titles(v view, list []column) {
	t := &d.m.tables[v]
	x := 2
	for _, c := range list {
		title, style := c.title, Dim
		if c.key == t.sort {
			style = Bold
			mark := d.look.either("▲", "^")
			if c.most != t.reverse {
				mark = d.look.either("▼", "v")
			}
			if c.left {
				title += mark
			} else {
				title = mark + title
			}
		}
		d.aligned(x, c, style, title)
		x += c.width + 1
	}
}

func (d *drawing) row(list []column, r *row) {
	style := Plain
	if r.node.missing {
		style = Dim
		d.put(1, d.y, 2, Bold, "!")
	}
	x := 2
	for _, c := range list {
		d.aligned(x, c, style, c.cell(r))
		x += c.width + 1
	}
}

func (d *drawing) aligned(x int, c column, style Style, text string) {
	switch {
	case !c.left:
		d.right(x, d.y, x+c.width, style, text)
	case c.key == "node":
		d.tail(x, d.y, x+c.width, style, text)
	default:
		d.put(x, d.y, x+c.width, style, text)
	}
}

// tail writes the end of a name that is too long: nodes differ there.
func (d *drawing) tail(x, y, end int, style Style, name string) {
	if room := end - x; len(name) > room && room > 1 {
		name = d.ellipsis() + name[len(name)-room+1:]
	}
	d.put(x, y, end, style, name)
}
