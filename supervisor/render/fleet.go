package render

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// Fleet writes what the jobs of each command, node or user come to.
func Fleet(w io.Writer, f analysis.Fleet, style text.Style) error {
	var b strings.Builder
	t := table{style: style, columns: []column{
		{title: strings.ToUpper(f.By), rest: true}, {title: "JOBS", right: true}, {title: "HOURS", right: true, drop: 4}, {title: "REQUESTED", right: true, drop: 5},
		{title: "USED", right: true, drop: 7}, {title: "WASTED", right: true}, {title: "MEMORY", right: true}, {title: "FAILED", right: true, drop: 3}, {title: "KEPT", right: true, drop: 6},
		{title: "PEAK median", right: true, drop: 1}, {title: "highest", right: true, drop: 2},
	}}
	for i := range f.Lines {
		l := &f.Lines[i]
		oom := cell{strconv.Itoa(l.OutOfMemory()), ""}
		if l.OutOfMemory() > 0 {
			oom.paint = text.Red
		}
		t.add(cell{l.Name, text.Bold}, cell{strconv.Itoa(l.Jobs), ""}, cell{fmt.Sprintf("%.1f", l.Hours), ""},
			cell{ofMeasured(*l, l.Requested), ""}, cell{ofMeasured(*l, l.Used), ""}, cell{ofMeasured(*l, l.Wasted), ""}, oom,
			cell{strconv.Itoa(l.Failed()), ""}, cell{strconv.Itoa(l.Outcomes[event.RunKept]), ""}, cell{shareOf(l.Median), ""}, cell{shareOf(l.Highest), ""})
	}
	t.write(&b)
	for _, line := range slices.Concat(fleetSums(&f), fleetAdvice(&f), f.Notes) {
		writeWrapped(&b, line, style)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ofMeasured is a number of GiB-hours, "-" where no job was measured.
func ofMeasured(l analysis.FleetLine, v float64) string {
	if l.Measured == 0 {
		return "-"
	}
	return gibHours(v)
}

func gibHours(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return text.Digits(uint64(v + 0.5))
}

func shareOf(v float64) string {
	if v == 0 {
		return "-"
	}
	return text.Percent(v)
}

// fleetSums say what the numbers are, and of which jobs.
func fleetSums(f *analysis.Fleet) (lines []string) {
	jobs := text.Count(f.Sum.Jobs, "job")
	if f.Accounted > 0 {
		jobs += ", " + text.Digits(uint64(f.Accounted)) + " of them by AdminComment alone"
	}
	lines = append(lines, jobs+". MEMORY counts oom, slurm-kill and stopped.")
	if f.Sum.Measured > 0 {
		lines = append(lines, fmt.Sprintf("GiB-hours are of %s with a limit and a peak. REQUESTED is limit × run time; USED is peak × run time, an upper bound; WASTED is (limit − peak) × run time, a lower bound.",
			text.Count(f.Sum.Measured, "job")))
	}
	if f.Untold > 0 {
		lines = append(lines, "sacct has "+text.Digits(uint64(f.Untold))+" more, of which no peak is known.")
	}
	return lines
}

// fleetAdvice says how many jobs would profit from what, and why.
func fleetAdvice(f *analysis.Fleet) (lines []string) {
	for _, p := range f.Sum.Profits {
		line := fmt.Sprintf("%s would profit from %s: %s", text.Count(p.Jobs, "job"), p.From, p.Why)
		if p.Saves > 0 {
			line += fmt.Sprintf("; %s GiB-hours", gibHours(p.Saves))
		}
		lines = append(lines, line+".")
	}
	return lines
}

// fleetPage is a fleet as its template sees it.
type fleetPage struct {
	analysis.Fleet
	At          time.Time
	Policy      template.HTMLAttr
	Style       template.CSS
	Sums, Gains []string
}

var fleetTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("fleet").Funcs(template.FuncMap{
		"of": ofMeasured, "share": shareOf, "hours": gibHours, "digits": func(n int) string { return text.Digits(uint64(n)) },
	}).Parse(embedded("fleet.gohtml")))
})

// Title is what the page is about: "jobs by user, the last 30 days".
func (p *fleetPage) Title() string {
	title := "jobs by " + p.By
	if p.Days > 0 {
		title += fmt.Sprintf(", the last %s", text.Count(p.Days, "day"))
	}
	return title
}

// Ends are the outcomes that there are, in their order.
func (p *fleetPage) Ends() (all []event.RunOutcome) {
	for _, o := range event.RunOutcomes {
		if p.Sum.Outcomes[o] > 0 {
			all = append(all, o)
		}
	}
	return all
}

// FleetHTML writes a fleet as one page that loads nothing, as [HTML] does. It embeds the JSON of
// report --by --json.
func FleetHTML(w io.Writer, f analysis.Fleet, now time.Time) error {
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	style := chart.ThemeCSS + chart.ChartCSS + embedded("page.css")
	script := "(() => {\n'use strict';\n" + embedded("element.js", "tables.js", "fleet.js") + "})();\n"
	var b strings.Builder
	if err := fleetTemplate().Execute(&b, &fleetPage{Fleet: f, At: now, Policy: pagePolicy(script, style), Style: template.CSS(style), Sums: fleetSums(&f), Gains: fleetAdvice(&f)}); err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	return writePage(w, b.String(), script, embeddedJSON{"report", data})
}
