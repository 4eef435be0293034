// Package chart draws the timeline of a job as SVG.
package chart

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

//go:embed theme.css
var ThemeCSS string

//go:embed chart.css
var ChartCSS string

// Sizes of a static chart, in CSS pixels.
const (
	ChartWidth  = 960
	plotLeft    = 72.0
	plotRight   = 944.0
	plotTop     = 22.0
	plotHeight  = 210.0
	marksLane   = plotTop + plotHeight + 34 // the middle of what happened
	trimsLane   = marksLane + 24            // … and of workers' own trims
	legendAt    = trimsLane + 24
	PanelHeight = legendAt + 26 // the legend's second row has the signs
	headHeight  = 36.0
	mostPanels  = 8
)

// SVG writes a chart as one file that loads nothing: memory
// by role against the limit, over the time of day, one below the other for
// several runs. It is drawn dark where the viewer prefers that.
func SVG(w io.Writer, headline, title string, t *analysis.Timeline) error {
	runs := Panels(t)
	verdict := wrap(values.Plain(title), 118, 2)
	head := headHeight + 20*float64(len(verdict))
	height := head + PanelHeight*float64(len(runs)) + 40
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-labelledby="t">`,
		ChartWidth, height, ChartWidth, height)
	fmt.Fprintf(&b, `<title id="t">%s</title><style>%s%s</style>`, escape(strings.Join(verdict, " ")), ThemeCSS, ChartCSS)
	fmt.Fprintf(&b, `<rect %s width="100%%" height="100%%"/>`, svgClass("paper"))
	fmt.Fprintf(&b, `<text %s x="16" y="24" font-size="12">%s</text>`, svgClass("axis"), escape(headline))
	for i, line := range verdict {
		fmt.Fprintf(&b, `<text %s x="16" y="%d" font-size="15" font-weight="600">%s</text>`, svgClass("text"), 46+20*i, escape(line))
	}
	for i := range runs {
		fmt.Fprintf(&b, `<g transform="translate(0 %.0f)">`, head+PanelHeight*float64(i))
		WritePanel(&b, t, runs[i], len(t.Runs) > 1)
		b.WriteString(`</g>`)
	}
	note := "Areas: summed RSS by role; a page that processes share counts in each. "
	if n := len(t.Runs) + t.LeftOut - len(runs); n > 0 {
		note += fmt.Sprintf("%d more runs are not drawn.", n)
	}
	fmt.Fprintf(&b, `<text %s x="16" y="%.0f" font-size="11">%s</text></svg>`+"\n", svgClass("axis"), height-16, escape(note))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("cannot write svg: %w", err)
	}
	return nil
}

// Panels are the runs that have a static chart: where there are too many those that
// came nearest to their limits, in their order.
func Panels(t *analysis.Timeline) []*analysis.RunSeries {
	var all []*analysis.RunSeries
	for i := range t.Runs {
		all = append(all, &t.Runs[i])
	}
	return analysis.Foremost(all, mostPanels, (*analysis.RunSeries).Share)
}

// WritePanel draws one run, its plot, axes and legend, into panelHeight.
func WritePanel(b *strings.Builder, t *analysis.Timeline, s *analysis.RunSeries, named bool) {
	top, limitShown := topOf(s)
	wide := 2.0
	if len(t.Runs) > 2 {
		wide = 4 // the size of a page is for all of them
	}
	columns := int((plotRight - plotLeft) / wide)
	x := func(col float64) float64 { return plotLeft + min(col, float64(columns))*wide }
	y := func(kib float64) float64 {
		return plotTop + plotHeight*(1-kib*float64(rss.KiB)/float64(top))
	}
	if named {
		fmt.Fprintf(b, `<text %s x="16" y="14" font-size="12" font-weight="600">%s</text>`, svgClass("text"), escape(s.Name))
	}
	writeAxes(b, t, top, y)
	if len(s.Levels) == 0 || len(s.Levels[0].Sum) == 0 {
		fmt.Fprintf(b, `<text %s x="%.0f" y="%.0f" font-size="13" text-anchor="middle">no sample was kept</text>`,
			svgClass("axis"), (plotLeft+plotRight)/2, plotTop+plotHeight/2)
		return
	}
	l := &s.Levels[0]
	pieces := dots(s, l, t.Length, columns)
	path := func(class string, fill func(p *pathWriter)) {
		p := pathWriter{x: x, y: y}
		if fill(&p); len(p.b) > 0 {
			fmt.Fprintf(b, `<path %s d="%s"/>`, svgClass(class), p.b)
		}
	}
	below := make([]int64, len(l.Sum))
	for i := range s.Roles {
		if !s.Stacks(s.Primary, s.Roles[i]) {
			continue
		}
		base := append([]int64(nil), below...)
		band := l.Bands[i]
		for k := range below {
			below[k] += band[analysis.BandAnon][k] + band[analysis.BandFile][k] + band[analysis.BandShmem][k]
		}
		path("band "+roleClass(s.Roles[i]), func(p *pathWriter) {
			p.area(pieces, func(d *column) int64 { return base[d.point] }, func(d *column) int64 { return below[d.point] })
		})
	}
	if s.Primary >= 0 {
		writeLimit(b, path, pieces, &s.Limits[s.Primary], limitShown, top, y)
	}
	writeMarks(b, t, s)
	writeTrims(b, t, s)
	writeLegend(b, s, pieces)
}

func writeAxes(b *strings.Builder, t *analysis.Timeline, top rss.Bytes, y func(float64) float64) {
	for _, v := range sizeTicks(top, 6) {
		at := y(float64(v / rss.KiB))
		fmt.Fprintf(b, `<path %s d="M%.0f %.1fH%.0f"/><text %s x="%.0f" y="%.1f" font-size="11" text-anchor="end">%s</text>`,
			svgClass("grid"), plotLeft, at, plotRight, svgClass("axis"), plotLeft-8, at+4, tickText(v))
	}
	ticks, layout := timeTicks(t.Start, t.Length, 9)
	for _, at := range ticks {
		px := plotLeft + (plotRight-plotLeft)*float64(at)/float64(max(t.Length, 1))
		if px > plotRight-12 {
			continue
		}
		fmt.Fprintf(b, `<path %s d="M%.1f %.0fv4"/><text %s x="%.1f" y="%.0f" font-size="11" text-anchor="middle">%s</text>`,
			svgClass("tick"), px, plotTop+plotHeight, svgClass("axis"), px, plotTop+plotHeight+17, t.Start.Add(at).Format(layout))
	}
	fmt.Fprintf(b, `<path %s d="M%.0f %.1fH%.0f"/>`, svgClass("tick"), plotLeft, plotTop+plotHeight, plotRight)
}

// Rungs are the shares of a limit at which the default rules act.
var Rungs = [...]float64{0.8, 0.85, 0.9}

// writeLimit draws what is held against the limit, its rungs, and the limit with what is
// above it up to the top of the plot.
func writeLimit(b *strings.Builder, path func(string, func(*pathWriter)), pieces [][]column, l *event.Limit, shown bool, top rss.Bytes, y func(float64) float64) {
	size := int64(0)
	for _, piece := range pieces {
		for i := range piece {
			size = max(size, piece[i].limit[analysis.LimitSize])
		}
	}
	part := func(share float64) func(*column) int64 {
		return func(d *column) int64 {
			if d.limit[analysis.LimitSize] <= 0 {
				return -1
			}
			return int64(float64(d.limit[analysis.LimitSize]) * share)
		}
	}
	if shown {
		path("beyond", func(p *pathWriter) {
			p.area(pieces, func(d *column) int64 { return max(d.limit[analysis.LimitSize], 0) }, func(*column) int64 { return int64(top / rss.KiB) })
		})
		for _, share := range Rungs {
			path("rung", func(p *pathWriter) { p.line(pieces, part(share)) })
		}
	}
	path("span", func(p *pathWriter) { p.area(pieces, of(analysis.LimitLow), of(analysis.LimitUsed)) })
	path("range", func(p *pathWriter) { p.area(pieces, of(analysis.LimitUsed), of(analysis.LimitMost)) })
	for _, c := range []struct {
		class string
		of    int
	}{{"charged", analysis.LimitCharged}, {"working", analysis.LimitWorking}} {
		if has(pieces, c.of) {
			path(c.class, func(p *pathWriter) { p.line(pieces, of(c.of)) })
		}
	}
	path("used", func(p *pathWriter) { p.line(pieces, of(analysis.LimitUsed)) })
	if size == 0 {
		return
	}
	at, text := plotTop-6, fmt.Sprintf("limit %s, above this chart ↑", (rss.Bytes(size)*rss.KiB).Typed())
	if shown {
		path("limit", func(p *pathWriter) { p.line(pieces, part(1)) })
		at, text = y(float64(size))-5, "limit "+(rss.Bytes(size)*rss.KiB).Typed()
	}
	fmt.Fprintf(b, `<text %s x="%.0f" y="%.1f" font-size="11" font-weight="600" text-anchor="end">%s</text>`,
		svgClass("limittext"), plotRight, at, escape(LimitTitle(l)+" · "+text))
}

// has says that a column of the primary limit has readings.
func has(pieces [][]column, c int) bool {
	return slices.ContainsFunc(pieces, func(piece []column) bool {
		return slices.ContainsFunc(piece, func(d column) bool { return d.limit[c] > 0 })
	})
}

// sizeTicks returns the ticks from 0 to at most top, powers of two apart: then
// each of them is a round number of KiB, MiB or GiB.
func sizeTicks(top rss.Bytes, most int) []rss.Bytes {
	step := rss.KiB
	for rss.Bytes(most)*step < top {
		step *= 2
	}
	var ticks []rss.Bytes
	for v := rss.Bytes(0); v <= top; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// tickText writes a tick without digits that say nothing: "1.5 GiB", "512 MiB".
func tickText(b rss.Bytes) string {
	if b == 0 {
		return "0"
	}
	unit, name := rss.KiB, " KiB"
	switch {
	case b >= rss.TiB:
		unit, name = rss.TiB, " TiB"
	case b >= rss.GiB:
		unit, name = rss.GiB, " GiB"
	case b >= rss.MiB:
		unit, name = rss.MiB, " MiB"
	}
	return strconv.FormatFloat(float64(b)/float64(unit), 'f', -1, 64) + name
}

// timeSteps are the distances of ticks on an axis of time.
var timeSteps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour,
}

// timeTicks returns round times of day from start on, as distances from it, and
// how they are written.
func timeTicks(start time.Time, length time.Duration, most int) (ticks []time.Duration, layout string) {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if length/s <= time.Duration(most) {
			step = s
			break
		}
	}
	switch {
	case step < time.Minute:
		layout = "15:04:05"
	case step < 24*time.Hour:
		layout = "15:04"
	default:
		layout = "2 Jan"
	}
	_, zone := start.Zone()
	past := time.Duration(start.UnixNano()+int64(zone)*int64(time.Second)) % step
	first := step - past
	if past == 0 {
		first = 0
	}
	for at := first; at <= length; at += step {
		ticks = append(ticks, at)
	}
	return ticks, layout
}

// topOf is where the axis of a run ends: above all that is drawn, and above the
// limit unless that is so far off that nothing else would be seen.
func topOf(s *analysis.RunSeries) (top rss.Bytes, limitShown bool) {
	most, limit := int64(1024), int64(0)
	for i := range s.Levels {
		l := &s.Levels[i]
		most = max(most, slices.Max(append(s.Stack(l, s.Primary), 0)))
		if s.Primary >= 0 {
			p := l.Limits[s.Primary]
			for k, used := range p[analysis.LimitUsed] {
				most, limit = max(most, used, p[analysis.LimitMost][k]), max(limit, p[analysis.LimitSize][k])
			}
		}
	}
	if limit > 0 && limit <= 4*most {
		return rss.Bytes(max(most, limit)) * rss.KiB / 100 * 108, true
	}
	return rss.Bytes(most) * rss.KiB / 100 * 112, false
}

// escape makes text safe inside an element and inside an attribute in double
// quotes, in HTML and XML alike.
func escape(s string) string { return escaper.Replace(values.Plain(s)) }

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// wrap breaks a text into at most most lines of width characters; what is left over
// is cut.
func wrap(s string, width, most int) []string {
	lines := values.Wrap(s, width)
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] += " …"
	}
	for i := range lines {
		lines[i] = values.Cut(lines[i], width+2)
	}
	return lines
}
