package render

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/chart"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

//go:embed page/*.gohtml page/page.css page/*.js
var pageFiles embed.FS

// embedded returns a file of the page, or several, one after the other.
func embedded(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // it is built in
		}
		b.Write(text)
	}
	return b.String()
}

// pageTemplate is made where a page is written: no other command pays for it.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"bytes":    func(n uint64) rss.Bytes { return rss.Bytes(n) },
		"cell":     newPageCell,
		"command":  func(words []string) string { return values.Command(words, mostCommand) },
		"ended":    howEnded,
		"how":      rankHow,
		"join":     func(list []string) string { return strings.Join(list, ", ") },
		"attempt":  func(restart int) int { return restart + 1 },
		"lived":    func(last, from time.Duration) int64 { return (last - from).Milliseconds() },
		"limit":    event.LimitName.Called,
		"list":     func(title string, items []string) pageList { return pageList{title, items} },
		"means":    chart.UsedMeans,
		"number":   func(v rss.Bytes) uint64 { return uint64(v) },
		"optional": func(wanted bool, head string) string { return strings.Repeat(head, b2i(wanted)) },
		"place":    runPlace,
		"role":     chart.RoleTitle,
		"share":    values.Percent,
		"span":     func(at, from time.Duration) string { return values.Span(at - from) },
		"spark":    chart.Spark,
		"table":    newPageTable,
		"use":      phrase.Use,
		"unbroken": values.JoinLines,
	}).Parse(embedded("page.gohtml")))
})

// page is a report as its template sees it.
type page struct {
	*analysis.Result
	T      *analysis.Timeline
	at     clockFace
	Policy template.HTMLAttr
	Style  template.CSS

	Glyph, Headline, Command, Where, Exit, Zone string
	Cure                                        string // what to do where there was none left of something; empty for none
}

// WriteHTML writes a report as one file that loads nothing, at most 3 MiB. All
// of it can be read without scripts: the tables and a static chart are in the
// file, and the script only puts one that can be zoomed in the chart's place.
//
// Command lines and names of processes are bytes that anybody may have chosen.
// The template makes them text, and a policy in the page forbids whatever is not
// its own style and its own script.
func HTML(w io.Writer, rep *analysis.Result) error {
	t := rep.Timeline
	data, err := timelineJSON(t)
	if err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	report, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	style := chart.ThemeCSS + chart.ChartCSS + embedded("page.css")
	script := "(() => {\n'use strict';\n" + embedded("data.js", "axis.js", "element.js", "draw.js", "tip.js", "gesture.js", "tables.js", "main.js") + "})();\n"
	var b strings.Builder
	sum, at := &rep.Brief, newClock(rep, t)
	err = pageTemplate().Execute(&b, &page{
		Result: rep, T: t, at: at, Style: template.CSS(style),
		Policy: pagePolicy(script, style),
		Glyph:  Glyph(sum.Outcome), Headline: Headline(sum), Command: commandName(sum.Command), Where: headline(rep, t), Exit: exitWords(sum.Code, sum.Signal), Zone: zoneName(at.start),
		Cure: cure(sum),
	})
	if err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	return writePage(w, b.String(), script, embeddedJSON{"report", report}, embeddedJSON{"data", data})
}

// pagePolicy lets a page have its own style and script alone.
func pagePolicy(script, style string) template.HTMLAttr {
	return template.HTMLAttr(fmt.Sprintf(
		`content="default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; base-uri 'none'; form-action 'none'"`, hashOf(script), hashOf(style)))
}

// embeddedJSON is a document in a page, by the ID of its element.
type embeddedJSON struct {
	id  string
	doc []byte
}

// writePage writes a page with its documents and its script.
func writePage(w io.Writer, page, script string, docs ...embeddedJSON) error {
	// What does not print is replaced in all of it at once: no value can be forgotten.
	var b strings.Builder
	for line := range strings.Lines(page) {
		b.WriteString(values.Plain(strings.TrimSuffix(line, "\n")) + "\n")
	}
	// encoding/json writes <, > and & as \u003c and so on: no name of a process
	// can end the element.
	for _, d := range docs {
		b.WriteString(`<script type="application/json" id="` + d.id + `">` + string(values.JSON(d.doc)) + "</script>\n")
	}
	b.WriteString("<script>" + script + "</script>\n</body>\n</html>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("cannot write report: %w", err)
	}
	return nil
}

// SVG writes the chart of a report.
func SVG(w io.Writer, rep *analysis.Result) error {
	return chart.SVG(w, headline(rep, rep.Timeline), Glyph(rep.Brief.Outcome)+" "+Ending(&rep.Brief), rep.Timeline)
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// commandName names a command as people do: by the script that an interpreter runs.
func commandName(words []string) string {
	if len(words) == 0 {
		return "rsswarden"
	}
	for _, w := range words[1:] {
		if ext := filepath.Ext(w); ext == ".py" || ext == ".sh" {
			return values.Cut(values.Plain(filepath.Base(w)), 40)
		}
	}
	return values.Cut(values.Plain(filepath.Base(words[0])), 40)
}

func (p *page) Clock(at time.Time) string { return p.at.text(at) }

// Moment is the time of day of a point of the timeline.
func (p *page) Moment(at time.Duration) string { return p.at.text(p.T.Start.Add(at)) }

type panel struct {
	Name, ViewBox string
	Drawn         template.HTML
}

func (p *page) Panels() (all []panel) {
	for _, s := range chart.Panels(p.T) {
		var b strings.Builder
		chart.WritePanel(&b, p.T, s, len(p.T.Runs) > 1)
		all = append(all, panel{s.Name, fmt.Sprintf("0 0 %d %.0f", chart.ChartWidth, chart.PanelHeight), template.HTML(b.String())})
	}
	return all
}

// Resolution says what a point of the chart is, and what is not drawn.
func (p *page) Resolution() string {
	step, text := time.Duration(0), ""
	for i := range p.T.Runs {
		if l := p.T.Runs[i].Levels; len(l) > 0 {
			step = max(step, l[0].Step)
		}
	}
	if step > 0 {
		text = fmt.Sprintf("Each point of the chart is a %s maximum or finer; its areas are the sample with the greatest sum.", values.Span(step))
	}
	if n := p.T.LeftOut; n > 0 {
		text += fmt.Sprintf(" %d more runs are not drawn.", n)
	}
	return text
}

// Fullest is the run that came nearest to its limit.
func (p *page) Fullest() int {
	best, most := 0, -1.0
	for i := range p.T.Runs {
		if share := p.T.Runs[i].Share(); share > most {
			best, most = i, share
		}
	}
	return best
}

// headline is the line above the verdict: which job, when, how long.
func headline(rep *analysis.Result, t *analysis.Timeline) string {
	var parts []string
	if rep.Job != "" {
		parts = append(parts, "job "+values.Plain(rep.Job))
	}
	if rep.Several() {
		parts = append(parts, sizeOf(rep))
	} else if len(t.Runs) > 0 {
		parts = append(parts, t.Runs[0].Name)
	}
	if !rep.Start.IsZero() {
		at := newClock(rep, t)
		parts = append(parts, rep.Start.In(at.start.Location()).Format("2006-01-02 15:04:05")+" "+zoneName(at.start))
		parts = append(parts, values.Span(time.Duration(rep.Duration*float64(time.Second))))
	}
	return strings.Join(parts, " · ")
}

// clockFace writes times of day on the clock of the timeline's start, with the
// day where a report spans more than one.
type clockFace struct {
	start  time.Time
	layout string
}

func newClock(rep *analysis.Result, t *analysis.Timeline) clockFace {
	c := clockFace{t.Start, "15:04:05"}
	if len(t.Runs) == 0 {
		c.start = rep.Start
	}
	if rep.Duration > 20*3600 {
		c.layout = "2 Jan 15:04:05"
	}
	return c
}

func (c clockFace) text(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return at.In(c.start.Location()).Format(c.layout)
}

// pageFact is one of the few numbers that most readers come for, Meter where its share
// is drawn.
type pageFact struct {
	Name, Value, More string
	Meter             bool
	Share             float64
	Extra             bool // More is left out on a phone
}

// Width is the share as the meter shows it.
func (f pageFact) Width() string { return fmt.Sprintf("%.1f", 100*min(f.Share, 1)) }

func (p *page) Facts() (all []pageFact) {
	b := &p.Brief
	peak := pageFact{Name: "Peak", Value: "–", More: "no use of a limit was seen"}
	l := b.Peak
	if b.LackedLimit != nil {
		l = b.LackedLimit
	}
	switch {
	case l != nil && l.Used > 0 && l.Limit > 0:
		peak.Meter, peak.Share, peak.Value = true, l.Ratio(), values.Percent(l.Ratio())
		peak.More = fmt.Sprintf("%s, %s: %s", phrase.Use(l.Name, l.Used, l.Limit), l.Name.Called(), l.Compared())
		if b.Node != "" && len(p.LastNodes()) > 1 {
			peak.More += ", on " + values.Plain(b.Node)
		}
	case b.Most > 0:
		peak.Value, peak.More = phrase.Roughly(b.Most), "summed RSS; no job limit found"
	}
	did, paused := pageFact{Name: "Did", Value: deedWords(b)}, b.Saved.Paused()
	switch {
	case b.Helped == event.HelpedDryRun:
		did.Value, did.More = "nothing", "dry run"
	case did.Value == "":
		did.Value, did.More = "nothing", phrase.Skipped(&b.Saved)
	}
	pause := pageFact{Name: "Trainer paused", Value: values.Seconds(paused)}
	if b.Saved.Recycled > 0 {
		pause.More = "no batch lost"
	}
	return []pageFact{peak, did, pause, {Name: "Duration", Value: took(b.Duration()), More: p.Clock(p.Start) + " to " + p.Clock(p.End), Extra: true}}
}

const (
	// mostRows bounds the decisions that are listed in a page, mostRankRows the ranks.
	mostRows     = 400
	mostRankRows = 1024
	// mostCommand is how much of a command line a page shows: a script of its own is cut.
	mostCommand = 500
)

type pageList struct {
	Title string
	Items []string
}

// pageTable is the head of a table. What may have hundreds of rows scrolls by itself.
type pageTable struct {
	ID, Title string
	Tall      bool
	Sortable  bool
	Heads     []pageHead
}

// pageHead is the head of a column, Sort the kind of its values where it can be sorted by.
type pageHead struct {
	Name, Sort string
	Number     bool
}

// newPageTable reads heads: one that begins with "#" is of numbers, and one that ends
// with "*" can be sorted by. An empty one is left out.
func newPageTable(id, title string, heads ...string) pageTable {
	t := pageTable{ID: id, Title: title, Tall: slices.Contains([]string{"events", "processes", "ranks", "nodes"}, id)}
	for _, h := range heads {
		name, number := strings.CutPrefix(h, "#")
		name, sorts := strings.CutSuffix(name, "*")
		head := pageHead{Name: name, Number: number}
		if sorts {
			t.Sortable, head.Sort = true, []string{"t", "n"}[b2i(number)]
		}
		if name != "" {
			t.Heads = append(t.Heads, head)
		}
	}
	return t
}

// pageCell is a number in a table, Text "–" for none, which a phone leaves out.
type pageCell struct{ Class, Label, Text string }

// newPageCell makes one of a count, of bytes, or of seconds.
func newPageCell(class, label string, v any) pageCell {
	c := pageCell{class, label, "–"}
	switch v := v.(type) {
	case int:
		if v > 0 {
			c.Text = values.Digits(uint64(v))
		}
	case rss.Bytes:
		if v > 0 {
			c.Text = v.String()
		}
	case float64:
		if v > 0 {
			c.Text = values.Seconds(v)
		}
	}
	if c.Text == "–" {
		c.Class += " h"
	}
	return c
}

// JoinedLimits are the limits, those of ranks that led in turn as one, the fullest first.
func (p *page) JoinedLimits() []analysis.Limit {
	list := slices.Clone(analysis.JoinLimits(p.Limits))
	slices.SortStableFunc(list, func(a, b analysis.Limit) int { return cmp.Compare(b.Ratio(), a.Ratio()) })
	return list
}

// Explained says why it ended, where it did not end well.
func (p *page) Explained() string {
	switch p.Brief.Outcome {
	case event.RunOK, event.RunKept, event.RunTight, event.RunOver:
		return ""
	}
	return p.Verdict
}

type pageDeed struct {
	event.ActionSum
	Name, Why string
}

// Deeds are the actions, with the trims that workers made by themselves.
func (p *page) Deeds() (all []pageDeed) {
	s := &p.Brief.Saved
	if s.WorkerTrims > 0 {
		all = append(all, pageDeed{event.ActionSum{Worked: s.WorkerTrims}, "trim by workers", fmt.Sprintf("%v of pages dropped; they stay in the page cache", s.Dropped)})
	}
	for i := range s.Actions {
		all = append(all, pageDeed{s.Actions[i], string(s.Actions[i].Action), reasons(&s.Actions[i])})
	}
	return all
}

// RunName is what the timeline calls a run.
func (p *page) RunName(id string) string {
	for i := range p.T.Runs {
		if p.T.Runs[i].ID == id || slices.Contains(p.T.Runs[i].Also, id) {
			return p.T.Runs[i].Name
		}
	}
	return id
}

// TogetherNotes is what a job of several ranks, nodes or attempts came to.
func (p *page) TogetherNotes() []string { return togetherNotes(p.Result, p.at.start.Location()) }

// ShownRanks are the ranks: those that failed first where there are too many.
func (p *page) ShownRanks() []analysis.Rank {
	list := slices.Clone(p.Ranks)
	if len(list) > mostRankRows {
		slices.SortStableFunc(list, func(a, b analysis.Rank) int {
			return cmp.Or(b2i(b.Failed())-b2i(a.Failed()), cmp.Compare(b.Most(), a.Most()))
		})
	}
	return list[:min(len(list), mostRankRows)]
}

func (p *page) RanksLeftOut() int { return max(len(p.Ranks)-mostRankRows, 0) }

type pageFinding struct {
	Name, Rest string
	*analysis.Diagnosis
}

func (p *page) Found() (all []pageFinding) {
	for i := range p.Findings {
		name, rest, _ := strings.Cut(findingTitle(&p.Findings[i], len(p.Runs)), ", ")
		all = append(all, pageFinding{name, rest, &p.Findings[i]})
	}
	return all
}

// Changed is what was changed before it could go wrong.
func (p *page) Changed() (all []string) {
	for i := range p.Cures {
		c := &p.Cures[i]
		all = append(all, fmt.Sprintf("%s, %s: %s", p.Clock(c.First), c.Remedy, cureText(c)))
	}
	return all
}

type pageEvent struct {
	Of *analysis.RunSeries
	*analysis.Mark
	Run          int
	Text, Result string
}

// Events are the first and the last events of each run.
func (p *page) Events() (all []pageEvent) {
	for i := range p.T.Runs {
		s := &p.T.Runs[i]
		half := p.mostEvents() / 2
		for k := range s.Marks {
			if k < half || k >= len(s.Marks)-half {
				m := &s.Marks[k]
				all = append(all, pageEvent{s, m, i, chart.Happened(m), chart.CameOf(m)})
			}
		}
	}
	return all
}

// mostEvents is how many events of a run are listed.
func (p *page) mostEvents() int { return max(20, mostRows/len(p.T.Runs)) }

// EventsLeftOut counts the events between them.
func (p *page) EventsLeftOut() (n int) {
	for i := range p.T.Runs {
		n += p.T.Runs[i].MarksLeftOut + max(len(p.T.Runs[i].Marks)-p.mostEvents()/2*2, 0)
	}
	return n
}

type pageProcess struct {
	Of *analysis.RunSeries
	*analysis.Trace
	Run, Index int
	Name, Role string
	Spark      template.HTML
}

// Processes are the largest processes of each run.
func (p *page) Processes() (all []pageProcess) {
	for i := range p.T.Runs {
		s := &p.T.Runs[i]
		for k := range s.Procs {
			p := &s.Procs[k]
			name := values.Plain(p.Proc.Comm)
			if strings.TrimSpace(name) == "" {
				name = "(no name)"
			}
			course := make([]float64, len(p.RSS))
			for n, v := range p.RSS {
				course[n] = float64(v)
			}
			all = append(all, pageProcess{s, p, i, k, name, string(analysis.LayerOf(&p.Proc)), chart.Spark(course, float64(p.Peak/rss.KiB))})
		}
	}
	return all
}

func (p *page) ProcessesLeftOut() (n int) {
	for i := range p.T.Runs {
		n += p.T.Runs[i].ProcsLeftOut
	}
	return n
}

func runPlace(r *analysis.Run) string {
	if r.Step == "" {
		return values.Plain(r.Node)
	}
	return place(r.Node, r.Step, r.Task, r.Restart)
}

func howEnded(r *analysis.Run) string {
	text := string(r.Cause)
	if how := exitWords(r.Code, r.Signal); how != "" {
		text += ", " + how
	}
	if r.JournalOnly {
		text += "; journal only"
	}
	for _, d := range r.Damage {
		text += "; " + d
	}
	return text
}

// reasons tells why actions did not work, the most frequent first.
func reasons(a *event.ActionSum) string {
	list := make([]event.Reason, 0, len(a.Reasons))
	for r := range a.Reasons {
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y event.Reason) int {
		if a.Reasons[x] != a.Reasons[y] {
			return a.Reasons[y] - a.Reasons[x]
		}
		return strings.Compare(string(x), string(y))
	})
	var parts []string
	for _, r := range list {
		parts = append(parts, fmt.Sprintf("%s (%d)", a.Action.Why(r), a.Reasons[r]))
	}
	return strings.Join(parts, ", ")
}
