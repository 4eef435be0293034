package screen

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// limitRow is one limit of one node.
type limitRow struct {
	node *node
	*control.Limit
}

// limitRows are the limits that a frame shows: those that bind, the nearest first, then what
// else is half used, then other memory. The pane of limits has all.
func limitRows(nodes []node) []limitRow {
	var all []limitRow
	for i := range nodes {
		for j := range nodes[i].Limits {
			if r := (limitRow{&nodes[i], &nodes[i].Limits[j]}); r.class() < 3 {
				all = append(all, r)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b limitRow) int {
		c := cmp.Compare(a.class(), b.class())
		if c == 0 && a.class() < 2 {
			c = cmp.Or(cmp.Compare(seconds(a.ETA), seconds(b.ETA)), cmp.Compare(b.Ratio(), a.Ratio()))
		}
		return c
	})
	return all
}

// class is how much a limit matters here, 0 the most.
func (l limitRow) class() int {
	switch {
	case l.Binding:
		return 0
	case !l.Name.Memory() && l.Ratio() >= 0.5:
		return 1
	case l.Name.Memory():
		return 2
	}
	return 3
}

func seconds(eta *float64) float64 {
	if eta == nil {
		return math.Inf(1)
	}
	return *eta
}

// label names a limit of a node, with its step or scope where the node has others of that name.
func (n *node) label(l *event.Limit) string {
	name, same := l.Name.Called(), 0
	for i := range n.Limits {
		same += yes(n.Limits[i].Name == l.Name)
	}
	switch {
	case l.PID != 0:
		return fmt.Sprintf("%s %d", name, l.PID)
	case same < 2:
		return name
	case l.Name == event.LimitSlurm && l.Level != "":
		return name + " " + l.Level
	}
	return name + " " + string(l.Scope)
}

// uses is what is used of a limit, in the unit of its size: a range where it is known to lie
// between two values.
func uses(l *event.Limit) (used, size string) {
	if l.Limit == 0 {
		return "-", ""
	}
	used, size, _ = strings.Cut(phrase.Use(l.Name, l.Used, l.Limit), " of ")
	if most, _, _ := strings.Cut(phrase.Use(l.Name, max(l.Used, l.UsedMax), l.Limit), " of "); most != used {
		used += "-" + most
	}
	return used, size
}

// newer is a reading of what is used that is newer than the sample, empty without one.
func newer(l *control.Limit) string {
	if l.Now == nil {
		return ""
	}
	then := l.Limit
	then.Used, then.UsedMax = *l.Now, *l.Now
	was, _ := uses(&l.Limit)
	if now, _ := uses(&then); now != was {
		return "now " + now
	}
	return ""
}

func percent(l *event.Limit) string {
	if l.Limit == 0 {
		return "-"
	}
	return text.Percent(l.Ratio())
}

// Trend says where a limit goes: when it will be full as forecast, else how fast it was
// measured to change.
func Trend(l *control.Limit) string {
	switch {
	case l.ETA != nil && l.Name == event.LimitTime:
		return "ends " + text.About(max(0, *l.ETA))
	case l.ETA != nil:
		return "full " + text.About(max(0, *l.ETA))
	case l.Name.Counts() && l.Growth != nil:
		return fmt.Sprintf("%+.0f/s", *l.Growth)
	}
	return trend(l.Growth, l.Limit.Limit)
}

// trend is a measured change. In a minute, steady is less than a hundredth of the limit.
func trend(perSecond *float64, limit rss.Bytes) string {
	if perSecond == nil {
		return "-"
	}
	rate := math.Abs(*perSecond)
	switch {
	case rate < 1 || 60*rate < 0.01*float64(limit):
		return "steady"
	case *perSecond < 0:
		return "-" + phrase.Rate(rss.Bytes(rate))
	}
	return "+" + phrase.Rate(rss.Bytes(rate))
}

// ends is what happens at a limit, in two words.
func ends(l *event.Limit) string {
	switch {
	case l.Name == event.LimitUser:
		return "yours only"
	case l.Name == event.LimitThrottle:
		return "slows only"
	case l.ByJobSum():
		return "Slurm cancels"
	case l.Name == event.LimitSlurm, l.Name == event.LimitTime:
		return "Slurm kills"
	case l.Name.Memory():
		return "kernel kills"
	}
	who, by, _ := strings.Cut(l.Enforcer, ", by ") // "kernel, by SIGBUS, or ENOSPC of write"
	by, _, _ = strings.Cut(cmp.Or(by, who), ",")
	return by
}

// severity is how near a limit is, for its colour. What slows only is never red.
func severity(l *event.Limit) Style {
	ratio := l.Ratio()
	switch {
	case ratio >= 0.9 && l.Name != event.LimitThrottle:
		return Red
	case ratio >= event.NearShare:
		return Amber
	case l.Binding:
		return Green
	}
	return Plain
}

const barWidth = 20

var limitColumns = []gridColumn{
	{}, {gap: 1}, {gap: 1, least: barWidth, drop: 5}, {gap: 1, least: 5, right: true}, {gap: 2, least: 17, drop: 3, right: true},
	{gap: 2, drop: 2}, {gap: 2, least: 9, drop: 4}, {gap: 2, drop: 6},
}

// limits draws the first n limits, a line each.
func (d *drawing) limits(n int) {
	list := limitRows(d.m.nodes)
	list = list[:min(n, len(list))]
	rows := make([][]string, len(list))
	for i, r := range list {
		l := &r.Limit.Limit
		used, size := uses(l)
		if size != "" {
			used += " of " + size
		}
		rows[i] = []string{"", r.node.label(l), "", percent(l), used, newer(r.Limit), Trend(r.Limit), ends(l)}
		if len(d.m.nodes) > 1 {
			rows[i][0] = r.node.name
		}
		if r.node.missing {
			d.put(0, d.y+i, 1, Bold, "!")
		}
	}
	top := d.y
	at := d.grid(limitColumns, rows, func(row int) Style {
		if list[row].Binding {
			return Bold
		}
		return Plain
	})
	for i := range list {
		if at[2] > 0 {
			d.bar(at[2], top+i, &list[i].Limit.Limit)
		}
	}
}

// gridColumn is one column of a grid: as wide as its widest text, and at least so wide. One
// that is empty is left out.
type gridColumn struct {
	gap   int // from the column before
	least int
	drop  int // see fit
	right bool
}

// grid draws rows of texts, a line each. It returns where each column is, 0 for one that is
// not there.
func (d *drawing) grid(columns []gridColumn, rows [][]string, style func(row int) Style) []int {
	type placed struct {
		gridColumn
		index, width int
	}
	var list []placed
	for i, c := range columns {
		p := placed{c, i, c.least}
		for _, r := range rows {
			p.width = max(p.width, text.Columns(r[i]))
		}
		if len(list) == 0 {
			p.gap = 0
		}
		if p.width > 0 {
			list = append(list, p)
		}
	}
	list, _ = fit(list, d.W-1, func(p placed) (width, drop int) { return p.gap + p.width, p.drop })
	at, x := make([]int, len(columns)), 1
	for _, c := range list {
		x += c.gap
		at[c.index] = x
		for i, r := range rows {
			if c.right {
				d.right(x, d.y+i, x+c.width, style(i), r[c.index])
			} else {
				d.put(x, d.y+i, x+c.width, style(i), r[c.index])
			}
		}
		x += c.width
	}
	d.y += len(rows)
	return at
}

// bar draws what is used, and lighter what may be.
func (d *drawing) bar(x, y int, l *event.Limit) {
	if l.Limit == 0 {
		return
	}
	d.put(x, y, x+barWidth, severity(l), d.look.Bar(l.Ratio(), barWidth))
	from, to := int(math.Ceil(min(1, l.Ratio())*barWidth)), int(math.Round(min(1, l.UsedMax.Of(l.Limit))*barWidth))
	if from < to {
		d.put(x+from, y, x+to, severity(l), strings.Repeat("▒", to-from))
	}
}
