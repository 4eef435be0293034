package screen

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// limitRow is one limit of one node.
type limitRow struct {
	node *node
	*event.Limit
}

// limitRows lists the limits of all nodes: those that bind first, the nearest of
// them in front, then other memory, then what else is half used, then the rest.
func (m *Model) limitRows() []limitRow {
	var all []limitRow
	for i := range m.nodes {
		for j := range m.nodes[i].Limits {
			all = append(all, limitRow{&m.nodes[i], &m.nodes[i].Limits[j]})
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

// limitCount counts the limits, and those that are shown where lines are few.
func (m *Model) limitCount() (all, matter int) {
	for _, l := range m.limitRows() {
		all++
		if l.class() < 3 {
			matter++
		}
	}
	return all, matter
}

// label names a limit: whose it is, where there may be several of it.
func label(l *event.Limit) string {
	switch {
	case l.PID != 0:
		return fmt.Sprintf("%s %d", l.Name, l.PID)
	case l.Name == event.LimitSlurm && l.Level != "":
		return fmt.Sprintf("%s %s", l.Name, l.Level)
	case string(l.Name) == string(l.Scope), l.Name == event.LimitSHM, l.Name == event.LimitTime:
		return string(l.Name)
	}
	return fmt.Sprintf("%s %s", l.Name, l.Scope)
}

// uses gives used and limit. Where used is known to lie between two values it
// gives both.
func uses(l *event.Limit) string {
	amount := size
	if l.Name.Counts() {
		amount = func(b rss.Bytes) string { return text.Digits(uint64(b)) }
	}
	switch {
	case l.Name == event.LimitTime:
		return "job ends in"
	case l.Limit == 0:
		return "-"
	case l.UsedMax > l.Used && amount(l.UsedMax) != amount(l.Used):
		return amount(l.Used) + "-" + amount(l.UsedMax) + "/" + amount(l.Limit)
	}
	return amount(l.Used) + "/" + amount(l.Limit)
}

func percent(l *event.Limit) string {
	if l.Limit == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*l.Ratio())
}

// fills says when a limit is reached at the present rate; of the job's time,
// when that ends.
func fills(l *event.Limit) string {
	switch {
	case l.Flattens > 0:
		return "flattens"
	case l.ETA == nil:
		return "-"
	}
	return text.About(max(0, *l.ETA))
}

// forecastRange is the range of a forecast, behind it.
func forecastRange(l *event.Limit) string {
	switch {
	case l.ETALow == nil:
		return ""
	case l.ETAHigh == nil:
		return ": " + text.About(*l.ETALow) + " or more, it may flatten before"
	}
	return ": " + text.About(*l.ETALow) + " to " + text.About(*l.ETAHigh)
}

// enforcer is who ends the job, and where there is room by what.
func enforcer(l *event.Limit, room int) string {
	who, _, _ := strings.Cut(l.Enforcer, ",") // "slurmstepd, by OverMemoryKill"
	switch {
	case who == "":
		return "-"
	case text.Columns(l.Enforcer) <= room:
		return l.Enforcer
	}
	return who
}

// severity is how near a limit is, for its colour. What slows only is never red.
func severity(l *event.Limit) Style {
	ratio := l.Ratio()
	switch {
	case l.Name == event.LimitThrottle && ratio >= 0.8, ratio >= 0.8 && ratio < 0.9:
		return Amber
	case ratio >= 0.9:
		return Red
	case l.Binding:
		return Green
	}
	return Plain
}

// limitWidths are the columns of the limits; 0 for one that is not shown.
type limitWidths struct {
	node, label, bar, percent, uses, fills, enforcer, source int
	gap                                                      int // between two
}

func (w *limitWidths) sum() int {
	sum := 2 - w.gap
	for _, n := range []int{w.node, w.label, w.bar, w.percent, w.uses, w.fills, w.enforcer, w.source} {
		if n > 0 {
			sum += n + w.gap
		}
	}
	return sum
}

func (d *drawing) limitWidths(rows []limitRow, titles [8]string, titled bool) limitWidths {
	const shortest, longest = 8, 50 // of a bar
	w, longWho := limitWidths{gap: 1}, 26
	if d.W >= 120 {
		w.gap, longWho = 2, 40
	}
	if titled {
		w.label, w.percent, w.fills = len(titles[1]), len(titles[3]), len(titles[5])
	}
	for _, l := range rows {
		w.percent = max(w.percent, len(percent(l.Limit)))
		w.fills = max(w.fills, len(fills(l.Limit)))
		w.node = max(w.node, text.Columns(l.node.name))
		w.label = max(w.label, text.Columns(label(l.Limit)))
		w.uses = max(w.uses, text.Columns(uses(l.Limit)))
		w.enforcer = max(w.enforcer, text.Columns(enforcer(l.Limit, longWho)))
		w.source = max(w.source, text.Columns(l.Place()))
	}
	w.node, w.label, w.uses, w.enforcer = min(max(w.node, 4), 14), min(max(w.label, 9), 16), max(w.uses, 10), min(max(w.enforcer, 11), longWho)
	if len(d.m.nodes) < 2 {
		w.node = 0
	}
	w.source = max(w.source, len(limitTitles[7]))
	// What matters least goes first: where the limit was read, the bar's length, who
	// enforces it, the bar, the sizes.
	w.bar = shortest
	if d.W < 120 || w.sum() > d.W {
		w.source = 0
	}
	for w.sum() > d.W && w.enforcer > 12 {
		w.enforcer--
	}
	for _, n := range []*int{&w.enforcer, &w.bar, &w.uses} {
		if w.sum() > d.W {
			*n = 0
		}
	}
	if w.bar > 0 {
		w.bar = min(longest, w.bar+d.W-w.sum())
	}
	return w
}

var limitTitles = [8]string{"NODE", "LIMIT", "* binds first", "USED", "USED/LIMIT", "FULL IN", "ENFORCED BY", "LIMIT FROM"}

func (d *drawing) limits(l layout) {
	rows := d.m.limitRows()
	if l.limits == 0 {
		return
	}
	d.y += yes(l.gap)
	titles := limitTitles
	if l.limits < len(rows) {
		titles[1] = fmt.Sprintf("LIMIT %d of %d", l.limits, len(rows))
	}
	w := d.limitWidths(rows[:l.limits], titles, l.titles)
	if l.titles {
		if w.bar < len(titles[2]) {
			titles[2] = "* binds"
		}
		d.limitLine(w, Dim, titles)
		d.y++
	}
	for _, row := range rows[:l.limits] {
		style := Plain
		if row.Binding {
			style = Bold
			d.put(0, d.y, 2, style, "*")
		}
		if row.node.missing {
			d.put(1, d.y, 2, Bold, "!")
		}
		x := d.limitLine(w, style, [8]string{
			row.node.name, label(row.Limit), "", percent(row.Limit), uses(row.Limit), fills(row.Limit), enforcer(row.Limit, w.enforcer), row.Place(),
		})
		if w.bar > 0 && row.Limit.Limit > 0 {
			d.bar(x, w.bar, row.Limit)
		}
		d.y++
	}
}

// limitLine writes the texts of a line and returns where its bar stands.
func (d *drawing) limitLine(w limitWidths, style Style, text [8]string) (bar int) {
	x := 2
	for i, width := range []int{w.node, w.label, w.bar, w.percent, w.uses, w.fills, w.enforcer, w.source} {
		if width == 0 {
			continue
		}
		switch i {
		case 0:
			d.tail(x, d.y, x+width, style, text[i])
		case 3, 4, 5:
			d.right(x, d.y, x+width, style, text[i])
		default:
			if i == 2 {
				bar = x
			}
			d.put(x, d.y, x+width, style, text[i])
		}
		x += width + w.gap
	}
	return bar
}

// bar draws used, and lighter what may be used too.
func (d *drawing) bar(x, width int, l *event.Limit) {
	style := severity(l)
	inner := width - 2
	d.put(x, d.y, x+1, Dim, "[")
	d.put(x+width-1, d.y, x+width, Dim, "]")
	most := l.UsedMax.Of(l.Limit)
	full, maybe := min(1, l.Ratio())*float64(inner), int(math.Round(min(1, most)*float64(inner)))
	for i := range maybe {
		d.put(x+1+i, d.y, x+width-1, style, d.look.either("░", "."))
	}
	n := int(full)
	for i := range n {
		d.put(x+1+i, d.y, x+width-1, style, d.look.either("█", "#"))
	}
	if eighth := int((full - float64(n)) * 8); eighth > 0 && n < inner && d.look.Unicode && maybe <= n+1 {
		d.put(x+1+n, d.y, x+width-1, style, string([]rune("▏▎▍▌▋▊▉")[eighth-1]))
	}
}

// either chooses by what the locale can show.
func (l Look) either(unicode, ascii string) string {
	if l.Unicode {
		return unicode
	}
	return ascii
}
