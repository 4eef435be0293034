package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Glyphs are the marks of the lane below a chart, as path data around a middle: one for
// each action, and for each other kind of mark.
var Glyphs = map[string]string{
	"warn":    "M0 -4.5L4.8 4H-4.8Z",
	"trim":    "M0 4.5L4.8 -4H-4.8Z",
	"recycle": "M0 -5.2L5.2 0L0 5.2L-5.2 0Z",
	"gc":      "M-4 -4H4V4H-4Z",
	"signal":  "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
	"exec":    "M-4 -4.5L5 0L-4 4.5Z",
	"requeue": "M4 -4.5L-5 0L4 4.5Z",
	"stop":    "M-2 -4.8H2L4.8 -2V2L2 4.8H-2L-4.8 2V-2Z",
	"limit":   "M-4.5 -1.5H4.5V1.5H-4.5Z",
	"finding": "M-1.5 -4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z",
	"other":   "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z",
	"exit":    "M-1.5 -5H1.5V5H-1.5Z",
	"oom":     "M-4.5 -3L-3 -4.5L0 -1.5L3 -4.5L4.5 -3L1.5 0L4.5 3L3 4.5L0 1.5L-3 4.5L-4.5 3L-1.5 0Z",
}

// Glyph names the glyph of a mark, a key of [Glyphs].
func Glyph(m *analysis.Mark) string {
	name := string(m.Kind)
	if action := m.Action(); action != "" {
		name, _, _ = strings.Cut(string(action), "+")
	}
	if Glyphs[name] == "" {
		return "other"
	}
	return name
}

// markClass is the CSS class of a mark: what did not work is hollow.
func markClass(m *analysis.Mark) string {
	if m.Refused() {
		return "mark hollow " + string(m.Kind)
	}
	return "mark " + string(m.Kind)
}

// apart is how many pixels lie between two marks at least: what is nearer becomes one mark
// with its number.
const apart = 20

// writeMarks draws the lane of what happened.
func writeMarks(b *strings.Builder, t *analysis.Timeline, s *analysis.RunSeries) {
	if len(s.Marks) > 0 {
		laneTitle(b, "events", marksLane)
	}
	for i := 0; i < len(s.Marks); {
		first, x, n := &s.Marks[i], timeAt(t, s.Marks[i].At), 0
		from := x
		for ; i < len(s.Marks) && timeAt(t, s.Marks[i].At)-from < apart; i, n = i+1, n+1 {
			if m := &s.Marks[i]; Weight(m) > Weight(first) {
				first, x = m, timeAt(t, m.At)
			}
		}
		fmt.Fprintf(b, `<g %s transform="translate(%.1f %.0f)"><title>%s</title><path d="%s"/>`,
			svgClass(markClass(first)), x, marksLane, escape(markText(first, n)), Glyphs[Glyph(first)])
		if n > 1 {
			fmt.Fprintf(b, `<text %s y="14" font-size="9" text-anchor="middle" stroke="none">%d</text>`, svgClass("axis"), n)
		}
		b.WriteString(`</g>`)
	}
}

// writeTrims draws the strip of workers' own trims: the darker, the more.
func writeTrims(b *strings.Builder, t *analysis.Timeline, s *analysis.RunSeries) {
	if len(s.Trims) == 0 {
		return
	}
	laneTitle(b, "trims", trimsLane)
	const wide = 2
	counts := map[int]int{}
	most := 0
	for _, c := range s.Trims {
		at := int(timeAt(t, c.At) / wide)
		counts[at] += c.Count
		most = max(most, counts[at])
	}
	shades := make([][]byte, Shades)
	for _, at := range slices.Sorted(maps.Keys(counts)) {
		n := (counts[at]*Shades - 1) / most
		shades[n] = fmt.Appendf(shades[n], "M%d %.0fv9h%dv-9z", at*wide, trimsLane-5, wide)
	}
	for i, d := range shades {
		if len(d) > 0 {
			fmt.Fprintf(b, `<path %s fill-opacity="%.2f" d="%s"/>`, svgClass("strip-trim"), float64(i+1)/Shades, d)
		}
	}
}

// Shades is how many densities a strip tells apart.
const Shades = 4

func laneTitle(b *strings.Builder, name string, at float64) {
	fmt.Fprintf(b, `<text %s x="%.0f" y="%.0f" font-size="10" text-anchor="end">%s</text>`, svgClass("axis"), plotLeft-8, at+3, name)
}

func timeAt(t *analysis.Timeline, at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*float64(at)/float64(max(t.Length, 1))
}

// kinds are in the order of what is shown where there is room for one.
var kinds = []analysis.MarkKind{analysis.MarkLimit, analysis.MarkDecision, analysis.MarkFinding, analysis.MarkFault, analysis.MarkSignal, analysis.MarkRank, analysis.MarkExit, analysis.MarkOOM}

// Weight orders the marks of one place: the one that weighs most is shown. What worked is
// before what did not, and a hard action before a mild one.
func Weight(m *analysis.Mark) int {
	weight := 4 * slices.Index(kinds, m.Kind) * len(event.RecordedActions)
	if action := m.Action(); action != "" {
		weight += action.Severity()
	}
	if !m.Refused() {
		weight += 2 * len(event.RecordedActions)
	}
	return weight
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
	x, y := plotLeft, legendAt
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
		if s.Stacks(s.Primary, r) {
			item("band "+roleClass(r), RoleTitle(r), false)
		}
	}
	if s.Primary >= 0 {
		item("used", "used: "+UsedMeans(&s.Limits[s.Primary]), true)
		if has(pieces, analysis.LimitCharged) {
			item("charged", "charged", true)
		}
		if has(pieces, analysis.LimitWorking) {
			item("working", "working set", true)
		}
	}
	sign := func(class, glyph, text string) {
		fmt.Fprintf(b, `<path %s d="%s" transform="translate(%.0f %.0f)"/>`, svgClass("mark "+class+"decision"), Glyphs[glyph], x+7, y-4)
		fmt.Fprintf(b, `<text %s x="%.0f" y="%.0f" font-size="11">%s</text>`, svgClass("axis"), x+19, y, text)
		x += 19 + 6.4*float64(len(text)) + 14
	}
	x, y = plotLeft, legendAt+16
	seen, refused := map[string]bool{}, false
	for i := range s.Marks {
		m := &s.Marks[i]
		if refused = refused || m.Refused(); m.Action() != "" && !seen[Glyph(m)] {
			seen[Glyph(m)] = true
			sign("", Glyph(m), Glyph(m))
		}
	}
	if refused {
		sign("hollow ", "trim", "no effect")
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
	"band shm": `fill="#c9a35c"`, "band other": `fill="#b9a3c9"`, "band beside": `fill="#d3d8df"`, "band rsswarden": `fill="#8d99a8"`,
	"rung": `stroke="#b3372b" stroke-opacity=".3" fill="none"`, "beyond": `fill="#b3372b" fill-opacity=".09"`, "strip-trim": `fill="#3f8f80"`,
	"mark decision": `stroke="#b7791f" fill="#b7791f"`, "mark hollow decision": `stroke="#b7791f" fill="none"`, "mark limit": `stroke="#5b6675" fill="#5b6675"`,
	"mark finding": `stroke="#2f5fa8" fill="#2f5fa8"`, "mark fault": `stroke="#8a4fb0" fill="#8a4fb0"`, "mark signal": `stroke="#8a4fb0" fill="#8a4fb0"`,
	"mark rank": `stroke="#8a4fb0" fill="#8a4fb0"`,
	"mark exit": `stroke="#1c2530" fill="#1c2530"`, "mark oom": `stroke="#b3372b" fill="#b3372b"`,
	"spark": `stroke="#5b86c4" fill="none"`, "sparkfill": `fill="#5b86c4" fill-opacity=".18"`,
}

func svgClass(class string) string { return plain[class] + ` class="` + class + `"` }

func roleClass(r rss.Role) string {
	switch r {
	case rss.RoleShmManager:
		return "shm"
	case rss.RolePoolWorker:
		return string(rss.RoleWorker)
	}
	return string(analysis.LayerOfRole(r))
}

func RoleTitle(r rss.Role) string {
	switch r {
	case rss.RoleTrainer:
		return "trainer"
	case rss.RoleWorker:
		return "loader workers"
	case rss.RolePoolWorker:
		return "pool workers"
	case analysis.Beside:
		return "other processes"
	case analysis.Own:
		return "rsswarden itself"
	}
	return string(r)
}

// Happened says in a sentence what a mark is. It may hold bytes of the user's: signals
// name their sender.
func Happened(m *analysis.Mark) string {
	switch v := m.Event.(type) {
	case *event.Decision:
		return decisionText(v)
	case *event.Outcome:
		return string(v.Action) + " skipped"
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

// CameOf is the result of a decision, empty where unknown.
func CameOf(m *analysis.Mark) (text string) {
	if o, ok := m.Event.(*event.Outcome); ok {
		return o.Action.Why(o.Reason)
	}
	for _, o := range m.Outcomes {
		text = resultText(o, m.Action(), text)
	}
	return text
}

func decisionText(d *event.Decision) string {
	text := d.Rule + " on " + d.Limit.Called()
	if d.Asked() {
		text = fmt.Sprintf("%s, requested by process %d", d.Action, d.By)
	}
	if d.LimitSize > 0 {
		text += " at " + phrase.Fill(d.Limit, d.Used, d.LimitSize)
	}
	if d.ETA != nil {
		text += ", full in " + values.Span(time.Duration(*d.ETA*float64(time.Second)))
	}
	return text
}

func resultText(o *event.Outcome, a event.Action, before string) string {
	var text string
	switch {
	case o.OK && o.Freed > 0:
		text = fmt.Sprintf("freed %v in %.1f s", o.Freed, o.Duration)
	case o.OK:
		text = "done"
	default:
		if text = "did not work"; o.Reason != "" {
			text += ": " + a.Why(o.Reason)
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
		return "the watcher of " + who + " leads from now on"
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
		text += ", forwarded to the command"
	}
	return text
}

func exitText(e *event.Exit) string {
	switch {
	case e.By == "detached":
		return "rsswarden stopped watching"
	case e.Signal != nil:
		return "ended by " + *e.Signal
	case e.Code != nil:
		return fmt.Sprintf("exited with status %d", *e.Code)
	}
	return "exit status unknown: rsswarden's holder died"
}

// LimitTitle names a limit for a heading: "cgroup, step · kernel OOM killer".
func LimitTitle(l *event.Limit) string {
	title := l.Name.Called()
	if l.Scope != "" && string(l.Scope) != title && l.Name != event.LimitUser {
		title += ", " + string(l.Scope)
	}
	if who, _, _ := strings.Cut(values.Plain(l.Enforcer), ","); who != "" {
		title += " · " + who
	}
	return title
}

// UsedMeans says what is compared with a limit, and how shared pages count in it.
func UsedMeans(l *event.Limit) string {
	switch text := l.Compared(); text {
	case event.AccountingRSS.Sum():
		return text + ", shared pages counted in each process"
	case event.AccountingPSS.Sum():
		return text + ", shared pages divided"
	default:
		return text
	}
}
