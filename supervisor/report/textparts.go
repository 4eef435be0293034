package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// mostLimits and mostShown bound what a terminal shows of a job of many
	// ranks: the fullest limits, the first runs.
	mostLimits = 6
	// leastFill is how full a limit must have been to be told at length.
	leastFill = 0.05
	mostShown = 12
)

// limits writes each limit with who enforces it, where it was read, and how it
// was used over the run.
func (t *text) limits(rep *Report) {
	list := fullestOnNode(rep)
	slices.SortStableFunc(list, func(a, b Limit) int {
		switch x, y := a.Ratio(), b.Ratio(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	if len(list) == 0 {
		return
	}
	t.section("limits")
	shown := min(len(list), mostLimits)
	for shown > 1 && list[shown-1].Ratio() < leastFill {
		shown--
	}
	for i := range list[:shown] {
		l := &list[i]
		line := fmt.Sprintf("  %-18s at most %s at %s", limitName(rep, list, i), phrase.Fill(l.Name, l.Used, l.Limit.Limit), t.clock(l.At))
		if len([]rune(line)) > t.width {
			t.para("  ", "    ", line)
		} else {
			t.line("%s", line)
		}
		t.styled(dim, "    ", "    ", clean(against(&l.Limit)))
		if line, scale := sparkline(l.Spark); line != "" {
			t.line("    %s  %s over %s", line, scale, values.Span(l.to.Sub(l.from)))
		}
		if l.Note != "" {
			t.styled(dim, "    ", "    ", clean(values.JoinLines(l.Note)))
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
func fullestOnNode(rep *Report) []Limit {
	type place struct {
		node, level string
		name        event.LimitName
		scope       event.Scope
		accounting  event.Accounting
		each        int
	}
	at := map[place]int{}
	var out []Limit
	for n, l := range rep.joinedLimits() {
		if len(rep.Lives) > 0 && runOf(rep, l.Run).Restart != rep.Lives[len(rep.Lives)-1].Restart {
			continue // that life has its line
		}
		p := place{runOf(rep, l.Run).Node, l.Level, l.Name, l.Scope, l.Accounting, 0}
		if apartOf(l.Scope) {
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

func runOf(rep *Report, id string) *Run {
	for i := range rep.Runs {
		if rep.Runs[i].ID == id {
			return &rep.Runs[i]
		}
	}
	return &Run{}
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

func (t *text) peaks(p *Peaks) {
	if *p == (Peaks{}) {
		return
	}
	t.section("peaks of its tree")
	t.peakTable(p)
}

func (t *text) peakTable(p *Peaks) {
	for _, e := range []struct {
		p          *Peak
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

func (t *text) roles(roles []Role) {
	if len(roles) == 0 {
		return
	}
	t.section("roles, each at its highest summed RSS")
	t.roleTable(roles)
}

func (t *text) roleTable(roles []Role) {
	t.line("  %-11s %4s  %9s  %9s  %9s  %9s  %s", "", "most", "RSS", "anon", "file", "shmem", "time")
	for i := range roles {
		r := &roles[i]
		parts := [3]string{r.Anon.String(), r.File.String(), r.Shmem.String()}
		if r.Anon+r.File+r.Shmem == 0 {
			parts = [3]string{"-", "-", "-"}
		}
		t.line("  %-11s %4d  %9v  %9s  %9s  %9s  %s", r.Role, r.Count, r.Peak, parts[0], parts[1], parts[2], t.clock(r.At))
	}
}

func (t *text) actions(rep *Report) {
	if len(rep.Actions) == 0 && rep.Budget == nil && len(rep.Cures) == 0 {
		return
	}
	if len(rep.Lives) > 0 {
		t.section("actions, of all lives")
	} else {
		t.section("actions")
	}
	t.actionLines(rep.Actions)
	for i := range rep.Cures {
		c := &rep.Cures[i]
		t.para(fmt.Sprintf("  %-10s ", c.Remedy), strings.Repeat(" ", 13), cureText(c))
	}
	if b := rep.Budget; b != nil {
		t.para("  ", "  ", fmt.Sprintf("workers trimmed themselves %s to keep to their budget of mapped file pages, %v given back in all", values.Times(b.Times), b.Freed))
	}
}

func (t *text) actionLines(actions []Action) {
	for i := range actions {
		a := &actions[i]
		line := "fired " + values.Times(a.Fired)
		if a.Action != event.ActionWarn {
			line += fmt.Sprintf(", worked %s", values.Times(a.Worked))
		}
		if a.Freed > 0 {
			line += fmt.Sprintf(", freed %v", a.Freed)
		}
		if a.Paused > 0 {
			line += ", trainer paused " + values.Span(seconds(a.Paused))
		}
		if text := reasons(*a); text != "" {
			line += "; did not: " + clean(text)
		}
		t.para(fmt.Sprintf("  %-10s ", a.Action), strings.Repeat(" ", 13), line)
	}
}

func (t *text) forecast(rep *Report) {
	if rep.Forecast == nil {
		return
	}
	t.section("forecasts")
	t.para("  ", "  ", rep.Forecast.Note)
}

func (t *text) advice(rep *Report) {
	if len(rep.Advice) == 0 {
		return
	}
	t.section("next time")
	t.adviceLines(rep.Advice)
}

func (t *text) adviceLines(lines []Line) {
	for i := range lines {
		l := &lines[i]
		t.styled(bold, "  ", "    ", clean(l.Line))
		why := l.Why
		if l.Risk != nil {
			why += fmt.Sprintf("; of such jobs %s would still die, as far as the runs tell", values.Percent(*l.Risk))
		}
		t.para("    ", "    ", clean(why))
		if l.Evidence != "" {
			t.styled(dim, "    ", "    ", clean(l.Evidence))
		}
	}
}

func (t *text) why(rep *Report) {
	if len(rep.Evidence) == 0 {
		return
	}
	t.section("what the verdict follows from")
	for _, e := range rep.Evidence {
		t.para("  ", "    ", clean(e))
	}
}

func (t *text) runs(rep *Report) {
	if len(rep.Runs) < 2 {
		return
	}
	t.section("runs, each with the most of a memory limit that it used")
	t.line("  %-12s %6s %5s  %9s  %-8s", "node", "step", "task", "used", "end")
	for i := range rep.Runs[:min(len(rep.Runs), mostShown)] {
		r := &rep.Runs[i]
		peak := rss.Bytes(0)
		for j := range rep.Limits {
			if l := &rep.Limits[j]; l.Run == r.ID && l.Name.Row().Amount && l.Name != event.LimitNode {
				peak = max(peak, l.Used)
			}
		}
		t.line("  %-12s %6s %5d  %9v  %s  %s", clean(r.Node), clean(r.Step), r.Task, peak, t.clock(r.End), clean(howEnded(r)))
	}
	if n := len(rep.Runs) - mostShown; n > 0 {
		t.line("  and %s", values.Count(n, "more run"))
	}
}

func (t *text) notes(rep *Report) {
	var sources []string
	for i := range rep.Runs {
		sources = append(sources, rep.Runs[i].Sources...)
	}
	if len(rep.Notes) == len(missingNotes(rep)) && len(sources) == 0 {
		return
	}
	t.section("notes")
	for _, n := range rep.Notes {
		if !slices.Contains(missingNotes(rep), n) { // told above
			t.para("  ", "    ", clean(n))
		}
	}
	for _, s := range sources[:min(len(sources), mostShown)] {
		t.para("  ", "    ", "read: "+clean(s))
	}
}

// limitName tells a limit from the others of a list: by its node where there are
// several runs, and by who recorded it where its node has two of the name.
func limitName(rep *Report, list []Limit, i int) string {
	plain := func(l *Limit) string {
		name := string(l.Name)
		if l.Scope != "" && string(l.Scope) != name {
			name += ", " + string(l.Scope)
		}
		if len(rep.Runs) > 1 {
			name += " on " + clean(runOf(rep, l.Run).Node)
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
func whose(o *Limit) string {
	if len(o.ranks) == 0 {
		return ""
	}
	text := ", " + o.ranks[0].String()
	var rest []string
	for _, r := range o.ranks[1:] {
		rest = append(rest, fmt.Sprint(r.task))
	}
	if len(rest) == 0 {
		return text
	}
	return text + ", then " + strings.Join(rest, ", ")
}
