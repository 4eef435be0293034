package screen

// layout says how many lines each part of a frame has.
type layout struct {
	notices  int
	limits   int    // lines of limits
	titles   bool   // … with a line of titles
	gap      bool   // an empty line between the parts
	tabs     bool   // a line that names the table
	rows     [2]int // lines of rows of each table, 0 for a table that is not shown
	pane     int    // lines of a pane, where one is open
	activity int
	keys     bool
}

// both is the height from which on ranks and processes are shown together; from
// few on they are where ranks need no more than two fifths of the lines.
const (
	both = 40
	few  = 20
)

// layout divides the lines. Rows come last: they have what is left.
func (m *Model) layout() layout {
	limits, matter := m.limitCount()
	notices, activity := len(m.notices()), m.activityCount()
	l := layout{notices: notices, limits: limits, titles: true, gap: true, tabs: true, activity: activity}
	if m.H == 0 {
		l.rows = [2]int{len(m.tables[ranksView].rows), len(m.tables[procsView].rows)}
		return l
	}
	l.keys = m.Live
	h := m.H
	most := func(n int, steps ...int) int { // by height: below 12, 16, 24, 30, both, and above
		for i, below := range []int{12, 16, 24, 30, both} {
			if h < below {
				return min(n, steps[i])
			}
		}
		return min(n, steps[5])
	}
	l.notices = most(notices, 1, 1, 2, 2, 4, 8)
	if h < 30 && matter > 0 {
		limits = matter
	}
	l.limits = most(limits, 2, 2, 3, 4, 6, 12)
	l.activity = most(max(activity, 1), 0, 1, 1, 2, 3, 6)
	l.titles, l.tabs, l.gap = h >= 16 && limits > 0, h >= 12, h >= 30
	l.pane = max(0, h-1-l.notices-yes(l.keys)-yes(l.gap))
	left := h - 1 - l.notices - l.limits - yes(l.titles) - l.activity - yes(l.keys)
	if l.gap {
		left -= 2
		if limits == 0 {
			left++
		}
	}
	table := yes(l.tabs) + 1 // the line of titles
	// By all of the ranks, and without notices: neither a filter nor an error makes
	// a table go.
	left -= 2*table + yes(l.gap)
	ranks, share := max(1, len(m.ranks)), (left+l.notices)*2/5
	if h < few || h < both && ranks > share || left <= share {
		l.rows[m.view] = max(0, left+table+yes(l.gap))
		return l
	}
	l.rows[ranksView] = min(ranks, share)
	l.rows[procsView] = left - l.rows[ranksView]
	return l
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}
