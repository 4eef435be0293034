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
	name, same := phrase.LimitName(l), 0
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

// uses is what is used of a limit, in the limit's unit: a range where it is known to lie
// between two values.
func uses(l *event.Limit) string {
	if l.Limit == 0 {
		return "-"
	}
	low, of, _ := strings.Cut(phrase.Use(l.Name, l.Used, l.Limit), " of ")
	if most, _, _ := strings.Cut(phrase.Use(l.Name, max(l.Used, l.UsedMax), l.Limit), " of "); most != low {
		low += "-" + most
	}
	return low + " of " + of
}

// usedOnly is [uses] without the limit.
func usedOnly(l *event.Limit) string {
	used, _, _ := strings.Cut(uses(l), " of ")
	return used
}

// newer is a reading of what is used that is newer than the sample, empty without one.
func newer(l *control.Limit) string {
	if l.Now == nil {
		return ""
	}
	then := l.Limit
	then.Used, then.UsedMax = *l.Now, *l.Now
	if now := usedOnly(&then); now != usedOnly(&l.Limit) {
		return "now " + now + "  "
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

// limitColumn is one column of the limits.
type limitColumn struct {
	width int // at least, with what parts it from the next
	drop  int // see fit
	right bool
	text  func(limitRow) string
}

const barWidth = 20

func limitColumns(nodes int) []limitColumn {
	list := []limitColumn{
		{0, 0, false, func(r limitRow) string { return r.node.label(&r.Limit.Limit) + " " }},
		{barWidth + 1, 5, false, func(limitRow) string { return "" }},
		{7, 0, true, func(r limitRow) string { return percent(&r.Limit.Limit) + "  " }},
		{19, 3, true, func(r limitRow) string { return uses(&r.Limit.Limit) + "  " }},
		{0, 2, false, func(r limitRow) string { return newer(r.Limit) }},
		{11, 4, false, func(r limitRow) string { return Trend(r.Limit) + "  " }},
		{0, 6, false, func(r limitRow) string { return ends(&r.Limit.Limit) }},
	}
	if nodes > 1 {
		list = slices.Insert(list, 0, limitColumn{0, 0, false, func(r limitRow) string { return r.node.name + " " }})
	}
	return list
}

// limits draws the first n limits, a line each.
func (d *drawing) limits(n int) {
	rows := limitRows(d.m.nodes)
	rows = rows[:min(n, len(rows))]
	list := limitColumns(len(d.m.nodes))
	for i := range list {
		for _, r := range rows {
			list[i].width = max(list[i].width, text.Columns(list[i].text(r)))
		}
	}
	list, _ = fit(list, d.W-1, func(c limitColumn) (width, drop int) { return c.width, c.drop })
	for _, r := range rows {
		style, x := Plain, 1
		if r.Binding {
			style = Bold
		}
		if r.node.missing {
			d.put(0, d.y, 1, Bold, "!")
		}
		for _, c := range list {
			switch {
			case c.width == barWidth+1 && c.drop == 5:
				d.bar(x, &r.Limit.Limit)
			case c.right:
				d.right(x, d.y, x+c.width, style, c.text(r))
			default:
				d.put(x, d.y, x+c.width, style, c.text(r))
			}
			x += c.width
		}
		d.y++
	}
}

// bar draws what is used, and lighter what may be.
func (d *drawing) bar(x int, l *event.Limit) {
	if l.Limit == 0 {
		return
	}
	d.put(x, d.y, x+barWidth, severity(l), d.look.Bar(l.Ratio(), barWidth))
	from, to := int(math.Ceil(min(1, l.Ratio())*barWidth)), int(math.Round(min(1, l.UsedMax.Of(l.Limit))*barWidth))
	if from < to {
		d.put(x+from, d.y, x+to, severity(l), strings.Repeat("▒", to-from))
	}
}
