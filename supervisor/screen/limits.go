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
	if l.ETA == nil {
		return "-"
	}
	return text.About(max(0, *l.ETA))
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
