package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/text"
)

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

// hint is a key and what it does. The greatest drop goes first where there is no
// room.
type hint struct {
	key, text string
	drop      int
}

var (
	tableKeys = []hint{
		{"?", "help", 0}, {"Tab", "view", 2}, {"s", "sort", 4}, {"/", "filter", 5}, {"i", "inspect", 6}, {"l", "limits", 9},
		{"R", "recycle", 3}, {"T", "trim", 7}, {"C", "checkpoint", 8}, {"space", "freeze", 10}, {"q", "quit", 0},
	}
	paneKeys = []hint{{"q", "back", 0}, {"PgDn", "more", 1}, {"^C", "quit", 0}}
)

func (d *drawing) keys(y int, list []hint) {
	list = slices.Clone(list)
	for {
		total, worst := -1, 0
		for i, h := range list {
			total += len(h.key) + len(h.text) + 2
			if h.drop > list[worst].drop {
				worst = i
			}
		}
		if total <= d.W || list[worst].drop == 0 {
			break
		}
		list = slices.Delete(list, worst, worst+1)
	}
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
