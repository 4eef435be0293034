package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// Text writes a report for people: how the run ended, its memory, what was done, why, what
// to ask for next, and where there is more; full adds all that was found. Every line is
// cleaned as it is written, since a record may have been made to hold an escape sequence in
// any of its fields.
func Text(w io.Writer, rep *analysis.Result, style values.Style, full bool) error {
	t := newTextReport(rep, style)
	if len(rep.Runs) == 0 {
		t.para("", "", rep.Verdict)
	} else {
		t.brief(rep, full)
	}
	if full {
		t.full(rep)
	}
	return t.write(w, "report")
}

func newTextReport(rep *analysis.Result, style values.Style) *textReport {
	style.Width = max(style.Columns(), leastWidth)
	t := &textReport{style: style, zone: time.Local}
	if rep != nil && !rep.Start.IsZero() {
		t.zone = rep.Start.Location()
	}
	return t
}

func (t *textReport) write(w io.Writer, what string) error {
	if _, err := io.WriteString(w, t.b.String()); err != nil {
		return fmt.Errorf("cannot write %s: %w", what, err)
	}
	return nil
}

// full writes all that was found, with its sources.
func (t *textReport) full(rep *analysis.Result) {
	t.limits(rep)
	if !nodeByNode(rep) {
		peaks, roles := &rep.Peaks, rep.Roles
		if nodes := rep.LastNodes(); len(nodes) == 1 {
			peaks, roles = &nodes[0].Peaks, nodes[0].Roles
		}
		t.section("peaks of its tree")
		t.peaks(peaks)
		t.section("roles, each at its highest summed RSS")
		t.roles(roles)
	}
	t.section("evidence")
	for _, e := range rep.Evidence {
		t.para("  ", "    ", values.Plain(e))
	}
	t.grew(rep)
	t.eachNode(rep)
	t.notes(rep)
}

// WriteAdvice writes what so many runs come to, as [Text] writes that of one.
func WriteAdvice(w io.Writer, runs int, lines []analysis.AdviceLine, style values.Style) error {
	t := newTextReport(nil, style)
	t.styled(values.Bold, "", "", "next time, from "+values.Count(runs, "run"))
	k := t.block("Next")
	if len(lines) == 0 {
		k.say("", "the runs do not tell: none of them met a limit on memory, or none was watched from start to end")
	}
	for i := range lines {
		k.advice(&lines[i], lines[i].Line, true)
	}
	return t.write(w, "advice")
}

// textReport is a report on its way to a terminal.
type textReport struct {
	b     strings.Builder
	title string // of a section that has no line yet
	style values.Style
	zone  *time.Location
}

// para writes a text broken into lines, the first behind an indent of its own.
func (t *textReport) para(first, indent, s string) { t.styled("", first, indent, s) }

func (t *textReport) styled(paint values.Paint, first, indent, s string) {
	t.begin()
	for i, line := range values.Wrap(s, t.style.Columns()-values.Columns(indent)) {
		in := indent
		if i == 0 {
			in = first
		}
		t.b.WriteString(t.style.Plain(values.Plain(in)) + t.style.Paint(paint, t.style.Plain(values.Plain(line))) + "\n")
	}
}

// line writes one line that fits, cut where it does not.
func (t *textReport) line(format string, args ...any) {
	t.begin()
	t.b.WriteString(t.style.Plain(values.Cut(values.Plain(strings.TrimRight(fmt.Sprintf(format, args...), " ")), t.style.Columns())) + "\n")
}

// section gives what follows a title. Where nothing does it is left out.
func (t *textReport) section(title string) { t.title = title }

func (t *textReport) begin() {
	if t.title != "" {
		t.b.WriteString("\n" + t.style.Paint(values.Bold, values.Plain(t.title)) + "\n")
		t.title = ""
	}
}

// clock is a time of day; a report's first line has the date.
func (t *textReport) clock(at time.Time) string {
	if at.IsZero() {
		return "between two samples"
	}
	return at.In(t.zone).Format(time.TimeOnly)
}

const (
	// mostLimits and mostShown bound what a terminal shows of a job of many
	// ranks: the fullest limits, the first runs.
	mostLimits = 6
	// leastFill is how full a limit must have been to be shown at length.
	leastFill = 0.05
	mostShown = 12
)

// limits writes each limit with who enforces it, where it was read, and how it
// was used over the run.
func (t *textReport) limits(rep *analysis.Result) {
	list := fullestOnNode(rep)
	slices.SortStableFunc(list, func(a, b analysis.Limit) int { return cmp.Compare(b.Ratio(), a.Ratio()) })
	t.section("limits")
	shown := min(len(list), mostLimits)
	for shown > 1 && list[shown-1].Ratio() < leastFill {
		shown--
	}
	for i := range list[:shown] {
		l := &list[i]
		line := fmt.Sprintf("  %-18s at most %s at %s", limitName(rep, list, i), phrase.Fill(l.Name, l.Used, l.Limit.Limit), t.clock(l.At))
		if len([]rune(line)) > t.style.Columns() {
			t.para("  ", "    ", line)
		} else {
			t.line("%s", line)
		}
		t.styled(values.Dim, "    ", "    ", values.Plain(against(&l.Limit)))
		if line, scale := sparkline(l.Spark); line != "" {
			t.line("    %s  %s over %s", line, scale, values.Span(l.To.Sub(l.From)))
		}
		if l.Slowed > 0 {
			t.line("    the kernel slowed allocations down %s", values.Times(int(l.Slowed)))
		}
		if l.Note != "" {
			t.styled(values.Dim, "    ", "    ", values.Plain(values.JoinLines(l.Note)))
		}
	}
	if rest := list[shown:]; len(rest) > 0 {
		var names []string
		for i := range rest {
			if name := string(rest[i].Name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		t.para("  ", "    ", fmt.Sprintf("and %s, at most %s full: %s", values.Count(len(rest), "limit"), values.Percent(rest[0].Ratio()), strings.Join(names, ", ")))
	}
}

// fullestOnNode is of each limit its fullest reading by the tasks of one node:
// they are under the same one.
func fullestOnNode(rep *analysis.Result) []analysis.Limit {
	type place struct {
		node string
		event.LimitID
		each int
	}
	at := map[place]int{}
	var out []analysis.Limit
	for n, l := range analysis.JoinLimits(rep.Limits) {
		if len(rep.Attempts) > 0 && runOf(rep, l.Run).Restart != rep.Attempts[len(rep.Attempts)-1].Restart {
			continue // that attempt has its line
		}
		p := place{runOf(rep, l.Run).Node, l.ID(), 0}
		if analysis.ApartOf(l.Scope) {
			p.each = n
		}
		i, ok := at[p]
		switch {
		case !ok:
			at[p] = len(out)
			out = append(out, l)
		case l.Ratio() > out[i].Ratio():
			out[i] = l
		}
	}
	return out
}

func runOf(rep *analysis.Result, id string) *analysis.Run {
	for i := range rep.Runs {
		if rep.Runs[i].ID == id {
			return &rep.Runs[i]
		}
	}
	return &analysis.Run{}
}

// sparkline draws shares, a column each, and says what its height stands for. A
// column without a reading is blank.
func sparkline(shares []float64) (line, scale string) {
	top := 1.0
	for _, v := range shares {
		top = max(top, v)
	}
	var b strings.Builder
	seen := false
	for _, v := range shares {
		if v < 0 {
			b.WriteByte(' ')
			continue
		}
		seen = true
		b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(int(v/top*8), 7)])
	}
	if !seen {
		return "", ""
	}
	return b.String(), "0 to " + values.Percent(top)
}

func (t *textReport) peaks(p *analysis.Peaks) {
	for _, e := range []struct {
		p          *analysis.Peak
		name, note string
	}{
		{p.RSS, event.AccountingRSS.Sum(), "shared pages once for each process"},
		{p.PSS, event.AccountingPSS.Sum(), "shared pages divided among them"},
		{p.NoShared, "RSS less shared", "no mapped file, no shared memory"},
		{p.Cgroup, "of the cgroup", "unreclaimable part of its charge"},
	} {
		if e.p == nil {
			continue
		}
		at := "at " + t.clock(e.p.At)
		if e.p.At.IsZero() {
			at = ""
		}
		t.line("  %-16s %9v  %-11s  %s", e.name, e.p.Bytes, at, e.note)
	}
}

func (t *textReport) roles(roles []analysis.Role) {
	if len(roles) == 0 {
		return
	}
	t.line("  %-11s %4s  %9s  %9s  %9s  %9s  %s", "", "most", "RSS", "anon", "file", "shmem", "time")
	for i := range roles {
		r := &roles[i]
		parts := [3]string{r.Anon.String(), r.File.String(), r.Shmem.String()}
		if r.Anon+r.File+r.Shmem == 0 {
			parts = [3]string{"-", "-", "-"}
		}
		t.line("  %-11s %4d  %9v  %9s  %9s  %9s  %s", r.Role, r.Count, r.Peak, parts[0], parts[1], parts[2], t.clock(r.At))
		if of := poolWords(roles, r.Role); of != "" {
			t.line("  %s", of)
		}
	}
}

// actionLine is all that is known of an action of one kind.
func actionLine(a *event.ActionSum) string {
	line := fmt.Sprintf("%s fired %s", a.Action, values.Times(a.Fired))
	if a.Action != event.ActionWarn {
		line += fmt.Sprintf(", worked %s", values.Times(a.Worked))
	}
	if a.Freed > 0 {
		line += fmt.Sprintf(", freed %v", a.Freed)
	}
	if a.Paused > 0 {
		line += ", trainer paused " + values.Span(analysis.Seconds(a.Paused))
	}
	if text := reasons(a); text != "" {
		line += "; did not: " + text
	}
	return line
}

func (t *textReport) notes(rep *analysis.Result) {
	var sources []string
	for i := range rep.Runs {
		sources = append(sources, rep.Runs[i].Sources...)
	}
	t.section("notes")
	for _, n := range rep.Notes {
		if !slices.Contains(missingNotes(rep), n) { // shown above
			t.para("  ", "    ", values.Plain(n))
		}
	}
	for _, s := range sources[:min(len(sources), mostShown)] {
		t.para("  ", "    ", "read: "+values.Plain(s))
	}
}

// limitName tells a limit from the others of a list: by its node where there are
// several runs, and by who recorded it where its node has two of the name.
func limitName(rep *analysis.Result, list []analysis.Limit, i int) string {
	plain := func(l *analysis.Limit) string {
		name := string(l.Name)
		if l.Scope != "" && string(l.Scope) != name {
			name += ", " + string(l.Scope)
		}
		if len(rep.Runs) > 1 {
			name += " on " + values.Plain(runOf(rep, l.Run).Node)
		}
		return name
	}
	name := plain(&list[i])
	for n := range list {
		if n != i && list[n].Level == list[i].Level && list[n].Accounting == list[i].Accounting && plain(&list[n]) == name {
			return name + whose(&list[i])
		}
	}
	return name
}

// whose is ", step 0, task 2", with the other tasks that led after it.
func whose(o *analysis.Limit) string {
	if len(o.Ranks) == 0 {
		return ""
	}
	text := ", " + o.Ranks[0].String()
	var rest []string
	for _, r := range o.Ranks[1:] {
		rest = append(rest, fmt.Sprint(r.Task))
	}
	if len(rest) == 0 {
		return text
	}
	return text + ", then " + strings.Join(rest, ", ")
}

const (
	// grownTitle heads what was found. Not all of it is memory: mappings,
	// descriptors, /dev/shm.
	grownTitle = "what grew, and why"
	// mostFindings, mostBorne and mostAdvised bound what a terminal shows of them,
	// and of each: the rest is in the page and in the JSON.
	mostFindings = 4
	mostBorne    = 2
	mostAdvised  = 3
)

// grew writes why something grew, what speaks for that, and what to write instead.
func (t *textReport) grew(rep *analysis.Result) {
	t.section(grownTitle)
	shown := min(len(rep.Findings), mostFindings)
	for i := range rep.Findings[:shown] {
		d := &rep.Findings[i]
		t.styled(values.Bold, "  ", "    ", findingTitle(d, len(rep.Runs)))
		for _, e := range d.Evidence[:min(len(d.Evidence), mostBorne)] {
			t.para("    ", "    ", values.Plain(e))
		}
		for _, a := range d.Advice[:min(len(d.Advice), mostAdvised)] {
			t.para("    do: ", "        ", values.Plain(a))
		}
	}
	if rest := rep.Findings[shown:]; len(rest) > 0 {
		var names []string
		for i := range rest {
			names = append(names, values.Plain(string(rest[i].Finding)))
		}
		t.para("  ", "    ", fmt.Sprintf("and %s: %s", values.Count(len(rest), "more finding"), strings.Join(names, ", ")))
	}
}

// cureText is what was changed: "done once, in process 4711: 65,536, 1,024 before".
func cureText(c *analysis.Cure) string {
	text := "done " + values.Times(c.Times)
	if !c.OK {
		text = "not done, " + values.Times(c.Times)
	}
	if c.PID != 0 {
		text += fmt.Sprintf(", in process %d", c.PID)
		if c.Times > 1 {
			text += " last"
		}
	}
	if c.OK {
		text += fmt.Sprintf(": %s, %s before", signed(c.After), signed(c.Before))
	}
	if c.Reason != "" {
		text += "; " + c.Reason
	}
	return values.Plain(text)
}

func signed(v int64) string {
	if v < 0 {
		return "-" + values.Digits(-uint64(v))
	}
	return values.Digits(uint64(v))
}

// findingTitle is naming, and in how many runs of a job.
func findingTitle(d *analysis.Diagnosis, runs int) string {
	text := phrase.Found(d.Finding, d.Confidence, d.Bytes, d.Role)
	if runs > 1 {
		text += fmt.Sprintf(", on %d of %s", d.Runs, values.Count(runs, "run"))
	}
	return text
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
