package chart

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// writeMarks draws what happened in a lane above the plot. Marks that would
// cover each other become one with their number.
func writeMarks(b *strings.Builder, t *analysis.Timeline, s *analysis.RunSeries) {
	lastX, n := -1e9, 0
	var first *analysis.Mark
	flush := func() {
		if first == nil {
			return
		}
		kind := string(first.Kind)
		fmt.Fprintf(b, `<g %s><title>%s</title><path class="stem" d="M%.1f %.0fV%.0f" stroke-width="1" stroke-opacity=".3"/><path d="M%.1f %.0fl5 -8h-10z" stroke="none"/>`,
			svgClass("mark "+kind), escape(markText(first, n)), lastX, plotTop, plotTop+plotHeight, lastX, plotTop)
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
func graver(k, than analysis.MarkKind) bool {
	order := []analysis.MarkKind{analysis.MarkLimit, analysis.MarkDecision, analysis.MarkFinding, analysis.MarkFault, analysis.MarkSignal, analysis.MarkRank, analysis.MarkExit, analysis.MarkOOM}
	return slices.Index(order, k) > slices.Index(order, than)
}

func markText(m *analysis.Mark, n int) string {
	text := values.Plain(Happened(m))
	if result := CameOf(m); result != "" {
		text += ": " + values.Plain(result)
	}
	if n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text
}

// writeLegend names the layers and lines below the plot.
func writeLegend(b *strings.Builder, s *analysis.RunSeries, pieces [][]column) {
	x, y := plotLeft, plotTop+plotHeight+34.0
	item := func(class, text string, line bool) {
		if line {
			fmt.Fprintf(b, `<path %s d="M%.0f %.1fh14"/>`, svgClass(class), x, y-3.5)
		} else {
			fmt.Fprintf(b, `<rect %s x="%.0f" y="%.0f" width="10" height="10" rx="2"/>`, svgClass(class), x+2, y-9)
		}
		fmt.Fprintf(b, `<text %s x="%.0f" y="%.0f" font-size="11">%s</text>`, svgClass("axis"), x+19, y, escape(text))
		x += 19 + 6.4*float64(len([]rune(text))) + 14
	}
	for _, r := range s.Roles {
		item("band "+roleClass(r), RoleTitle(r), false)
	}
	if s.Primary >= 0 {
		item("used", "used: "+UsedMeans(&s.Limits[s.Primary]), true)
		if has(pieces, analysis.Charged) {
			item("charged", "charged", true)
		}
		if has(pieces, analysis.Working) {
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

func svgClass(class string) string { return plain[class] + ` class="` + class + `"` }

func roleClass(r rss.Role) string {
	if r == rss.RoleShmManager {
		return "shm"
	}
	return string(analysis.LayerOfRole(r))
}

func RoleTitle(r rss.Role) string {
	switch r {
	case rss.RoleTrainer:
		return "trainer"
	case rss.RoleWorker:
		return "loader workers"
	case analysis.Beside:
		return "counted beside the tree"
	}
	return string(r)
}

// Happened says in a sentence what a mark is. It may hold bytes of the user's: signals
// name their sender.
func Happened(m *analysis.Mark) string {
	switch v := m.Event.(type) {
	case *event.Decision:
		return decisionText(v)
	case *event.Found:
		return fmt.Sprintf("limit %s is now %v", v.Name, v.Limit.Limit)
	case *event.Diagnosis:
		return "found: " + phrase.Found(v.Finding, v.Confidence, v.Bytes, v.Role)
	case *event.Rank:
		return rankText(v)
	case *event.Fault:
		return fmt.Sprintf("fault in %s: %s; the command runs on", v.Part, values.JoinLines(v.Error))
	case *event.Signal:
		return signalText(v)
	case *event.Exit:
		return exitText(v)
	}
	return ""
}

// CameOf says what came of a decision, empty where that is not known.
func CameOf(m *analysis.Mark) (text string) {
	for _, o := range m.Outcomes {
		text = resultText(o, text)
	}
	return text
}

func decisionText(d *event.Decision) string {
	text := fmt.Sprintf("%s on %s", d.Rule, d.Limit)
	if d.Asked() {
		text = fmt.Sprintf("%s, asked for by process %d", d.Action, d.By)
	}
	if d.LimitSize > 0 {
		text += " at " + phrase.Fill(d.Limit, d.Used, d.LimitSize)
	}
	if d.ETA != nil {
		text += ", forecast to be reached in " + values.Span(time.Duration(*d.ETA*float64(time.Second)))
	}
	return text
}

func resultText(o *event.Outcome, before string) string {
	var text string
	switch {
	case o.OK && o.Freed > 0:
		text = fmt.Sprintf("freed %v in %.1f s", o.Freed, o.Duration)
	case o.OK:
		text = "done"
	default:
		text = "did not work: " + string(o.Reason)
		if o.Reason == "" {
			text = "did not work"
		}
	}
	if o.Paused > 0 {
		text += fmt.Sprintf(", trainer paused %.0f ms", 1000*o.Paused)
	}
	if o.Detail != "" && !o.OK {
		text += " (" + values.JoinLines(o.Detail) + ")"
	}
	if before != "" && !strings.Contains(before, text) {
		text = before + "; " + text
	}
	return text
}

func rankText(r *event.Rank) string {
	who := analysis.RankOf(r).String()
	switch {
	case r.What == event.RankLeads:
		return "the watcher of " + who + " leads from here on"
	case r.Signal != nil:
		return who + " ended by " + *r.Signal
	}
	return fmt.Sprintf("%s exited with status %d", who, *r.Code)
}

func signalText(s *event.Signal) string {
	text := s.Signal
	switch {
	case s.Comm != "":
		text += fmt.Sprintf(" from %s (PID %d)", s.Comm, s.Sender)
	case s.Sender != 0:
		text += fmt.Sprintf(" from PID %d", s.Sender)
	default:
		text += " from the kernel or another PID namespace"
	}
	if s.Forwarded {
		text += ", passed on to the command"
	}
	return text
}

func exitText(e *event.Exit) string {
	switch {
	case e.By == "detached":
		return "the watch has ended"
	case e.Signal != nil:
		return "ended by " + *e.Signal
	case e.Code != nil:
		return fmt.Sprintf("exited with status %d", *e.Code)
	}
	return "rsswarden's holder was gone"
}
