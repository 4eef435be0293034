package report

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
)

// writeMarks draws what happened in a lane above the plot. Marks that would
// cover each other become one with their number.
func writeMarks(b *strings.Builder, t *Timeline, s *Strand) {
	lastX, n := -1e9, 0
	var first *Mark
	flush := func() {
		if first == nil {
			return
		}
		kind := string(first.Kind)
		fmt.Fprintf(b, `<g %s><title>%s</title><path class="stem" d="M%.1f %.0fV%.0f" stroke-width="1" stroke-opacity=".3"/><path d="M%.1f %.0fl5 -8h-10z" stroke="none"/>`,
			paint("mark "+kind), escape(markText(first, n)), lastX, plotTop, plotTop+plotHeight, lastX, plotTop)
		if n > 1 {
			fmt.Fprintf(b, `<text x="%.1f" y="%.0f" font-size="10" text-anchor="middle" stroke="none">%d</text>`, lastX, plotTop-11, n)
		}
		b.WriteString(`</g>`)
	}
	for i := range s.Marks {
		m := &s.Marks[i]
		x := plotLeft + (plotRight-plotLeft)*float64(m.At)/float64(max(t.Length, 1))
		if first != nil && x-lastX < 14 {
			n++
			if graver(m.Kind, first.Kind) {
				first, lastX = m, x
			}
			continue
		}
		flush()
		first, lastX, n = m, x, 1
	}
	flush()
}

// graver says that of two marks in one place this is the one to show.
func graver(k, than MarkKind) bool {
	rank := map[MarkKind]int{MarkLimit: 1, MarkDecision: 2, MarkFinding: 3, MarkFault: 4, MarkSignal: 5, MarkRank: 6, MarkExit: 7, MarkOOM: 8}
	return rank[k] > rank[than]
}

func markText(m *Mark, n int) string {
	text := clean(happened(m))
	if result := cameOf(m); result != "" {
		text += ": " + clean(result)
	}
	if n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text
}

// writeLegend names the layers and lines below the plot.
func writeLegend(b *strings.Builder, s *Strand, pieces [][]dot) {
	x, y := plotLeft, plotTop+plotHeight+34.0
	item := func(class, text string, line bool) {
		if line {
			fmt.Fprintf(b, `<path %s d="M%.0f %.1fh14"/>`, paint(class), x, y-3.5)
		} else {
			fmt.Fprintf(b, `<rect %s x="%.0f" y="%.0f" width="10" height="10" rx="2"/>`, paint(class), x+2, y-9)
		}
		fmt.Fprintf(b, `<text %s x="%.0f" y="%.0f" font-size="11">%s</text>`, paint("axis"), x+19, y, escape(text))
		x += 19 + 6.4*float64(len([]rune(text))) + 14
	}
	for _, r := range s.Roles {
		item("band "+roleClass(r.Role), roleTitle(r.Role), false)
	}
	if p := s.primary(); p >= 0 {
		item("used", "used: "+usedMeans(&s.Limits[p].Limit), true)
		if has(pieces, func(d *dot) int64 { return d.charged }) {
			item("charged", "charged", true)
		}
		if has(pieces, func(d *dot) int64 { return d.working }) {
			item("working", "working set", true)
		}
	}
}

// plain are the colours of the light theme, as attributes: a viewer that knows
// no CSS variables shows these, any other the style sheet's.
var plain = map[string]string{
	"paper": `fill="#ffffff"`, "text": `fill="#1c2530"`, "axis": `fill="#5b6675"`,
	"grid": `stroke="#e6e9ee" fill="none"`, "tick": `stroke="#aab2bd" fill="none"`,
	"span": `fill="#1c2530" fill-opacity=".12"`, "range": `fill="#b3372b" fill-opacity=".18"`,
	"charged": `stroke="#1c2530" stroke-opacity=".75" fill="none" stroke-dasharray="2 3"`, "working": `stroke="#1c2530" stroke-opacity=".5" fill="none"`,
	"used": `stroke="#1c2530" fill="none" stroke-width="1.5"`, "limit": `stroke="#b3372b" fill="none" stroke-width="1.5"`,
	"limittext":  `fill="#b3372b"`,
	"band agent": `fill="#98a2b3"`, "band trainer": `fill="#5b86c4"`, "band worker": `fill="#63b3a4"`,
	"band shm": `fill="#c9a35c"`, "band other": `fill="#b9a3c9"`, "band beside": `fill="#d3d8df"`,
	"mark decision": `stroke="#b7791f" fill="#b7791f"`, "mark limit": `stroke="#5b6675" fill="#5b6675"`,
	"mark finding": `stroke="#2f5fa8" fill="#2f5fa8"`, "mark fault": `stroke="#8a4fb0" fill="#8a4fb0"`, "mark signal": `stroke="#8a4fb0" fill="#8a4fb0"`,
	"mark rank": `stroke="#8a4fb0" fill="#8a4fb0"`,
	"mark exit": `stroke="#1c2530" fill="#1c2530"`, "mark oom": `stroke="#b3372b" fill="#b3372b"`,
	"spark": `stroke="#5b86c4" fill="none"`, "sparkfill": `fill="#5b86c4" fill-opacity=".18"`,
}

func paint(class string) string { return plain[class] + ` class="` + class + `"` }

func roleClass(r rss.Role) string {
	if r == rss.RoleShmManager {
		return "shm"
	}
	return string(bandOfRole(r))
}

func roleTitle(r rss.Role) string {
	switch r {
	case rss.RoleTrainer:
		return "trainer"
	case rss.RoleWorker:
		return "loader workers"
	case Beside:
		return "counted beside the tree"
	}
	return string(r)
}
