package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

//go:embed page/page.css
var pageCSS string

//go:embed page/data.js
var dataJS string

//go:embed page/axis.js
var axisJS string

//go:embed page/draw.js
var drawJS string

//go:embed page/tip.js
var tipJS string

//go:embed page/gesture.js
var gestureJS string

//go:embed page/tables.js
var tablesJS string

//go:embed page/main.js
var mainJS string

// WriteHTML writes a report as one file that loads nothing, at most 5 MB. All
// of it can be read without scripts: the tables and a static chart are in the
// file, and the script only puts one that can be zoomed in the chart's place.
//
// Command lines and names of processes are bytes that anybody may have chosen.
// They become text here, and a policy in the page forbids whatever is not its
// own style and its own script.
func WriteHTML(w io.Writer, rep *Report, t *Timeline) error {
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	style := themeCSS + chartCSS + pageCSS
	script := "(() => {\n'use strict';\n" + dataJS + axisJS + drawJS + tipJS + gestureJS + tablesJS + mainJS + "})();\n"
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	fmt.Fprintf(&b, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
		hashOf(script), hashOf(style))
	b.WriteString("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n")
	b.WriteString("<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n")
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n", escape(pageTitle(rep, t)), style)
	writePage(&b, rep, t)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	// encoding/json writes <, > and & as \u003c and so on: no name of a process
	// can end the element.
	for _, part := range []string{`<script type="application/json" id="data">`, string(data), "</script>\n<script>", script, "</script>\n</body>\n</html>\n"} {
		if _, err := io.WriteString(w, part); err != nil {
			return fmt.Errorf("cannot write report: %w", err)
		}
	}
	return nil
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func pageTitle(rep *Report, t *Timeline) string {
	if rep.Job != "" {
		return "Job " + rep.Job + ": " + string(rep.Cause) + " · rsswarden"
	}
	if len(t.Runs) > 0 {
		return t.Runs[0].Name + ": " + string(rep.Cause) + " · rsswarden"
	}
	return "rsswarden report"
}

// writePage writes what is read: from what happened to how it is known.
func writePage(b *strings.Builder, rep *Report, t *Timeline) {
	fmt.Fprintf(b, "<header class=\"top\"><div class=\"what\"><b>rsswarden</b> · %s</div><button type=\"button\" id=\"theme\" class=\"theme script\">Theme</button></header>\n<main>\n",
		escape(headline(rep, t)))
	fmt.Fprintf(b, "<h1><span class=\"dot %s\"></span>%s</h1>\n<p class=\"how\">%s</p>\n", mood(rep), escape(rep.Verdict), escape(certain(rep)))
	at := newClock(rep, t)
	writeFacts(b, rep, at)
	writeTimeline(b, t)
	writeTogether(b, rep, at)
	writeReasons(b, rep, at)
	writeLimits(b, rep, t, at)
	writeRolesActions(b, rep, at)
	writeDecisions(b, t, at)
	writeProcs(b, t, at)
	writeRuns(b, rep)
	b.WriteString("</main>\n<footer><p>RSS of a role is the sum of RSS of its processes: pages that several processes share are counted in each of them. ")
	b.WriteString("What a cgroup limit is compared with is the unreclaimable part of the charge: page cache that can be dropped does not kill. ")
	fmt.Fprintf(b, "Sizes are powers of 1024. Times are %s.</p></footer>\n", escape(at.zone()))
}

// mood is the colour of the dot before the verdict.
func mood(rep *Report) string {
	switch rep.Cause {
	case event.CauseEnded:
		if rep.Outcome == event.VerdictTight || rep.Outcome == event.VerdictNoHelp {
			return "warn"
		}
		return "good"
	case event.CauseRunning, event.CauseDetached:
		return "open"
	case event.CauseStopped, event.CauseRequeued, event.CauseCancelled, event.CauseUnknown, event.CauseTimeLimit:
		return "warn"
	}
	return "bad"
}

func certain(rep *Report) string {
	text := "Cause: " + string(rep.Cause)
	switch rep.Certainty {
	case Seen:
		text += ", seen in the record"
	case Inferred:
		text += ", inferred from the record"
	case Slurm:
		text += ", as Slurm says"
	}
	return text + "."
}

// writeTimeline writes the static charts and what the script needs to replace
// them.
func writeTimeline(b *strings.Builder, t *Timeline) {
	b.WriteString("<section class=\"card\" id=\"timeline\" aria-labelledby=\"timeline-h\">\n<div class=\"bar\"><h2 id=\"timeline-h\">Memory over time</h2>")
	if n := len(t.Runs); n > 1 {
		b.WriteString("<label class=\"pick script\" for=\"run\">run <select id=\"run\">")
		first := fullest(t)
		all := ""
		if n <= 4 {
			all = " selected"
		}
		fmt.Fprintf(b, "<option value=\"-1\"%s>all %d runs</option>", all, n)
		for i := range t.Runs {
			chosen := ""
			if n > 4 && i == first {
				chosen = " selected"
			}
			fmt.Fprintf(b, "<option value=\"%d\"%s>%s</option>", i, chosen, escape(t.Runs[i].Name))
		}
		b.WriteString("</select></label>")
	}
	if len(t.Runs) > 0 {
		b.WriteString("<span class=\"group script\" role=\"group\" aria-label=\"zoom\"><button type=\"button\" id=\"out\" aria-label=\"zoom out\">−</button>" +
			"<button type=\"button\" id=\"in\" aria-label=\"zoom in\">+</button><button type=\"button\" id=\"whole\">Whole run</button>" +
			"<button type=\"button\" id=\"end\">Last 5 min</button></span><button type=\"button\" class=\"script\" id=\"mode\" aria-label=\"switch the axis between time of day and elapsed time\">Axis: time of day</button>")
	}
	b.WriteString("</div>\n<div id=\"charts\">")
	for _, s := range t.panels() {
		fmt.Fprintf(b, "<div class=\"still\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">", chartWidth, panelHeight,
			escape("memory of "+s.Name+" over time"))
		writePanel(b, t, s, len(t.Runs) > 1)
		b.WriteString("</svg></div>\n")
	}
	b.WriteString("</div>\n")
	switch {
	case len(t.Runs) == 0:
		b.WriteString("<p class=\"soft\">No run was read.</p>")
	default:
		b.WriteString("<svg class=\"strip script\" id=\"strip\" aria-hidden=\"true\"></svg>\n" +
			"<p class=\"keys script\">Drag to zoom, Shift-drag to move, double-click for the whole run; the wheel zooms after a click on the chart. Keys: ← → + − 0, n and p for events.</p>\n" +
			"<p class=\"keys touch script\">Touch to read out; two fingers zoom.</p>\n" +
			"<div class=\"sr\" id=\"spoken\" aria-live=\"polite\"></div>\n")
		fmt.Fprintf(b, "<p class=\"soft\">%s</p>\n", escape(resolution(t)))
	}
	b.WriteString("</section>\n")
}

// resolution says what a point of the chart is, and what is not drawn.
func resolution(t *Timeline) string {
	var coarse *Level
	few, thinned := false, false
	for i := range t.Runs {
		few, thinned = few || t.Runs[i].JournalOnly, thinned || t.Runs[i].Thinned
		if l := t.Runs[i].Levels; len(l) > 0 && (coarse == nil || l[0].Step > coarse.Step) {
			coarse = &l[0]
		}
	}
	text := ""
	if coarse != nil {
		text = fmt.Sprintf("A point is the highest of %s", values.Span(coarse.Step))
		if len(t.Runs[0].Levels) > 1 {
			text += ", finer in the last 10 minutes"
		}
		text += "; the layers are the one sample of it whose sum was greatest. The shaded band below the used line reaches down to the lowest."
	}
	if thinned {
		text += " Early samples were thinned: one stands for up to a minute."
	}
	if few {
		text += " Of some runs only the journal was there, which keeps few samples."
	}
	if t.LeftOut > 0 {
		text += fmt.Sprintf(" %d more runs are not drawn.", t.LeftOut)
	}
	return text
}

// fullest is the run that came nearest to its limit.
func fullest(t *Timeline) int {
	best, most := 0, -1.0
	for i := range t.Runs {
		if share := t.Runs[i].share(); share > most {
			best, most = i, share
		}
	}
	return best
}

// share is the most that was used of the limit that is shown first, negative where
// there is none.
func (s *Strand) share() float64 {
	p, most := s.primary(), -1.0
	if p < 0 || len(s.Levels) == 0 {
		return most
	}
	x := &s.Levels[0].Limits[p]
	for k := range x.Used {
		if x.Size[k] > 0 {
			most = max(most, float64(x.Used[k])/float64(x.Size[k]))
		}
	}
	return most
}
