package screen

import (
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

type paneKind int

const (
	rowPane    paneKind = iota // all that is known of a rank or a process
	limitsPane                 // … of the limits and the nodes
	helpPane
)

// pane is a text in the place of the tables.
type pane struct {
	kind paneKind
	row  *row // the last that was known of it
	gone bool
	top  int
}

func (m Model) open(p *pane) Model {
	m.pane, m.mode = p, reading
	return m
}

func (m Model) inspect() Model {
	r := m.marked()
	if r == nil {
		m.message = "there is nothing to inspect"
		return m
	}
	return m.open(&pane{kind: rowPane, row: r})
}

// current is the pane with the row as it is now.
func (m *Model) current() pane {
	p := *m.pane
	if p.row == nil {
		return p
	}
	rows := m.ranks
	if p.row.proc != nil {
		rows = m.procs
	}
	id := p.row.id()
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id() == id }); i >= 0 {
		p.row = &rows[i]
	} else {
		p.gone = true
	}
	return p
}

// paneLines are the lines of the open pane: its title first, then its text, broken
// to the width.
func (m *Model) paneLines() []string {
	p := m.current()
	var text []string
	switch p.kind {
	case limitsPane:
		text = m.limitsText()
	case helpPane:
		text = helpText
	default:
		text = m.rowText(&p)
	}
	var lines []string
	for _, t := range text {
		lines = append(lines, folded(clean(t, m.Look.Unicode), m.W)...)
	}
	return lines
}

func (d *drawing) pane(n int) {
	lines := d.m.paneLines()
	top := max(0, min(d.m.pane.top, len(lines)-n))
	for i, text := range lines[top:min(top+n, len(lines))] {
		style := Plain
		if text != "" && text[0] != ' ' {
			style = Bold
		}
		d.put(0, d.y+i, d.W, style, text)
	}
}

// leastFolded is the narrowest that lines are broken to.
const leastFolded = 10

// folded breaks a line between words, what follows further to the right.
func folded(line string, width int) []string {
	width = max(width, leastFolded)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	// Behind a name the text has a column of its own.
	if name, rest, ok := strings.Cut(line[indent:], "  "); ok && indent > 0 {
		indent += len(name) + 2 + len(rest) - len(strings.TrimLeft(rest, " "))
	} else {
		indent += 2
	}
	if indent > width/2 {
		indent = 2
	}
	var lines []string
	for text.Columns(line) > width {
		r, n, fits, space := []rune(line), 0, 0, 0
		for n+text.Width(r[fits]) <= width {
			n += text.Width(r[fits])
			fits++
			if r[fits] == ' ' && fits > indent {
				space = fits
			}
		}
		if space == 0 { // one long word
			space = max(1, fits)
		}
		lines = append(lines, strings.TrimRight(string(r[:space]), " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(r[space:]), " ")
	}
	return append(lines, line)
}
