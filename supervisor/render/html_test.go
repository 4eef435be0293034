package render

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// hostile is what a field may hold, with what else ends an element, a script or a template.
const hostile = recordtest.Hostile + "<!--<script>]]>\u2028\u2029';alert(1)//{{.}}${1}\\u003c/script\\u003e&lt;"

// TestHostileRecords: whatever is in any field of a record, and in Slurm's answer, no
// form of the report lets it reach a terminal or the markup of a page.
func TestHostileRecords(t *testing.T) {
	oom := find(t, "kernel, the command")
	for name, of := range map[string]struct {
		runs []*record.Run
		said *analysis.SlurmSays
	}{
		"carried":    {runs: []*record.Run{scenetest.CarriedRun()}},
		"killed":     {[]*record.Run{oom.scene.Run()}, oom.said},
		"overmemory": {[]*record.Run{find(t, "OverMemoryKill").scene.Run()}, find(t, "OverMemoryKill").said},
		"requeued":   {runs: []*record.Run{find(t, "requeue=").scene.Run()}},
		"maps":       {runs: []*record.Run{find(t, "maps").scene.Run()}},
		"journal":    {runs: []*record.Run{scenetest.AsJournal(t, find(t, "time limit").scene.Run())}},
		"grown":      {runs: []*record.Run{scenetest.GrownScene().Run()}},
		"ranks":      {runs: scenetest.Ranks()},
		"nodes":      {runs: scenetest.OomOnN2()},
	} {
		t.Run(name, func(t *testing.T) {
			table := name == "maps" || name == "journal" // each sample is a line of the others' too
			clean := shown(t, of.runs, of.said, table)
			kinds := 0
			recordtest.Poison(hostile, func(kind string) {
				kinds++
				if len(of.runs) > 1 && kind != "" && !strings.HasPrefix(kind, "Meta.") {
					return // the fields are those of one run; what joins runs goes by who they are
				}
				for form, text := range shown(t, of.runs, of.said, table) {
					if bad := recordtest.Shows(text); len(bad) > 0 {
						t.Errorf("%s, %q, in %d lines: %.300q", form, kind, len(bad), bad[0])
					}
					if form == "page" || form == "svg" {
						if n, want := strings.Count(text, "<img"), strings.Count(clean[form], "<img"); n != want {
							t.Errorf("%s, %q: %d images, not %d", form, kind, n, want)
						}
						if n, want := strings.Count(text, "<script"), strings.Count(clean[form], "<script"); n != want {
							t.Errorf("%s, %q: %d scripts, not %d", form, kind, n, want)
						}
						if strings.Contains(text, ` onmouseover="`) || strings.ContainsAny(text, "\u2028\u2029") {
							t.Errorf("%s, %q: an attribute or the end of a line is in it", form, kind)
						}
					}
				}
			}, append(recordtest.Runs(of.runs), of.said)...)
			if kinds < 20 {
				t.Errorf("only %d kinds of strings", kinds)
			}
		})
	}
}

// shown is every form of a report that people read, the table of all samples if asked for.
func shown(t *testing.T, runs []*record.Run, said *analysis.SlurmSays, withTable bool) map[string]string {
	t.Helper()
	rep := explained(analysis.Input{Runs: runs, Slurm: said, Now: scenetest.Noon.Add(time.Hour), Timeline: true})
	var text, advice, table, page, svg bytes.Buffer
	if withTable {
		wardentest.NoError(t, CSV(&table, runs))
	}
	for _, err := range []error{
		Text(&text, rep, values.Style{}, true), WriteAdvice(&advice, 1, rep.Advice, values.Style{}), HTML(&page, rep), SVG(&svg, rep),
	} {
		wardentest.NoError(t, err)
	}
	return map[string]string{"text": text.String(), "advice": advice.String(), "csv": table.String(), "page": page.String(), "svg": svg.String()}
}

// pageReport is a report of runs with what is drawn.
func pageReport(runs ...*record.Run) *analysis.Result {
	return explained(analysis.Input{Runs: runs, Now: scenetest.Noon.Add(time.Hour), Timeline: true})
}

func writeBoth(t *testing.T, rep *analysis.Result) (page, svg string) {
	t.Helper()
	var h, s bytes.Buffer
	wardentest.NoError(t, HTML(&h, rep))
	wardentest.NoError(t, SVG(&s, rep))
	wellFormed(t, s.Bytes())
	return h.String(), s.String()
}

func wellFormed(t *testing.T, b []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

// TestPageLoadsNothing: no address is in a page but the name space of SVG.
func TestPageLoadsNothing(t *testing.T) {
	page, svg := writeBoth(t, pageReport(scenetest.DrawnRun{Node: "n", Length: time.Minute, Every: time.Second, Workers: 2, Limit: rss.GiB, To: 1}.Build()))
	for _, doc := range []string{page, svg} {
		doc = strings.ReplaceAll(doc, "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http:", "https:", "//cdn", "@import", "url(//", "fetch(", "XMLHttp", "WebSocket", "eval(", "innerHTML", " style="} {
			if strings.Contains(doc, bad) {
				t.Errorf("%q is in the page", bad)
			}
		}
	}
}

const pageBound = 3 << 20

// TestPagesAreSmall: the budget is the page's, not each run's.
func TestPagesAreSmall(t *testing.T) {
	var ranks []*record.Run
	for i := range 40 {
		ranks = append(ranks, scenetest.DrawnRun{
			Node: fmt.Sprint("node", i/8), Task: i, Length: time.Hour, Every: time.Second, Workers: 3, Limit: 4 * rss.GiB, From: 0.3, To: 0.9,
		}.Build())
	}
	for name, c := range map[string]struct {
		runs    []*record.Run
		leftOut int
	}{
		"24 h at 1 s, 16 processes": {[]*record.Run{scenetest.DayRun().Build()}, 0},
		"40 runs of 1 h":            {ranks, 8},
	} {
		begin := time.Now()
		rep := pageReport(c.runs...)
		page, svg := writeBoth(t, rep)
		first := &rep.Timeline.Runs[0]
		t.Logf("%s: page %.2f MiB, svg %.2f MiB, %d points of %v, made in %v", name, float64(len(page))/(1<<20), float64(len(svg))/(1<<20),
			len(first.Levels[0].Sum), first.Levels[0].Step, time.Since(begin).Round(time.Millisecond))
		if len(page) > pageBound || rep.Timeline.LeftOut != c.leftOut || len(first.Procs) == 0 {
			t.Errorf("%s: %d bytes, %d runs left out, %d processes of the first", name, len(page), rep.Timeline.LeftOut, len(first.Procs))
		}
	}
}

// TestSeriesOneClock: runs that began at different moments share one clock, and
// a journal's role sums are drawn like processes.
func TestSeriesOneClock(t *testing.T) {
	first := scenetest.DrawnRun{Node: "a", After: time.Minute, Length: 3 * time.Minute, Every: time.Second, Workers: 2, Limit: rss.GiB, To: 0.5}.Build()
	b := record.NewBuilder(record.Meta{Node: "b", Start: scenetest.Dawn})
	b.Sample(&record.Sample{At: 5 * time.Second, Roles: []record.RoleSum{{Role: rss.RoleWorker, Count: 3, RSS: rss.GiB}}})
	second := b.Run()
	tl := pageReport(first, second).Timeline
	if !tl.Start.Equal(scenetest.Dawn) || tl.Length != 4*time.Minute || tl.Runs[0].From != time.Minute {
		t.Errorf("start %v, length %v, first from %v", tl.Start, tl.Length, tl.Runs[0].From)
	}
	if at := tl.Runs[0].Levels[0].From; at != time.Minute {
		t.Errorf("points from %v", at)
	}
	if m := tl.Runs[0].Marks; len(m) == 0 || m[len(m)-1].At != 4*time.Minute || m[len(m)-1].Kind != analysis.MarkExit {
		t.Errorf("last mark %+v", m)
	}
	data, err := timelineJSON(tl)
	wardentest.NoError(t, err)
	var back map[string]any
	wardentest.NoError(t, json.Unmarshal(data, &back))
}

// TestSeriesOfNothing: a run that ended before its first sample is drawn too.
func TestSeriesOfNothing(t *testing.T) {
	for _, runs := range [][]*record.Run{nil, {record.NewBuilder(record.Meta{Start: scenetest.Dawn}).Run()}} {
		rep := pageReport(runs...)
		if n := len(rep.Timeline.Runs); n != len(runs) {
			t.Errorf("%d runs of %d", n, len(runs))
		}
		writeBoth(t, rep)
	}
}

var (
	noText  = regexp.MustCompile(`(?s)<(script|style|svg|title).*?</(script|style|svg|title)>`)
	tags    = regexp.MustCompile(`<[^>]*>`)
	inText  = regexp.MustCompile(`\d[\d.,:]*`)
	scripts = regexp.MustCompile(`(?s)<script type="application/json" id="(report|data)">(.*?)</script>`)
)

// TestPageNumbersAreThoseOfTheReport: a page has no number of its own. Each is in the JSON
// that it embeds, which is that of report --json, or of its chart.
func TestPageNumbersAreThoseOfTheReport(t *testing.T) {
	for name, runs := range map[string][]*record.Run{
		"kept":   {scenetest.CarriedRun()},
		"oom":    {find(t, "kernel, the command").scene.Run()},
		"grown":  {scenetest.GrownScene().Run()},
		"hour":   {hourRun().Build()},
		"nodes":  scenetest.OomOnN2(),
		"twice":  scenetest.SecondAttempt(),
		"counts": {find(t, "maps").scene.Run()},
	} {
		t.Run(name, func(t *testing.T) {
			rep := pageReport(runs...)
			page, _ := writeBoth(t, rep)
			asJSON, err := json.Marshal(rep)
			wardentest.NoError(t, err)
			if head := Headline(&rep.Brief); values.Columns(head) > 60 {
				t.Errorf("a headline of %d columns: %s", values.Columns(head), head)
			}
			if n := strings.Count(page, " data-copy="); n != len(rep.Advice) {
				t.Errorf("%d lines to copy, %d of advice", n, len(rep.Advice))
			}
			if !strings.Contains(page, string(values.JSON(asJSON))) {
				t.Error("the page has another report than report --json")
			}
			numbersOf(t, page, rep).cover(t, html.UnescapeString(tags.ReplaceAllString(noText.ReplaceAllString(page, " "), " ")))
		})
	}
}

// numbersOf are the numbers of the documents that a page embeds.
func numbersOf(t *testing.T, page string, rep *analysis.Result) *numbers {
	t.Helper()
	seen := &numbers{has: map[string]bool{}, zone: rep.Start.Location(), start: rep.Timeline.Start}
	for _, part := range scripts.FindAllStringSubmatch(page, -1) {
		d := json.NewDecoder(strings.NewReader(part[2]))
		d.UseNumber()
		var doc any
		wardentest.NoError(t, d.Decode(&doc))
		seen.add("", doc)
	}
	return seen
}

// cover wants each number of a text to be among them.
func (k *numbers) cover(t *testing.T, shown string) {
	t.Helper()
	for _, at := range inText.FindAllStringIndex(shown, -1) {
		if n := strings.TrimRight(shown[at[0]:at[1]], ".,:"); !k.has[n] {
			t.Errorf("%s is not in the JSON: …%s…", n, strings.Join(strings.Fields(shown[max(at[0]-60, 0):min(at[1]+30, len(shown))]), " "))
		}
	}
}

// numbers are the numbers of a JSON document, in the ways in which a page writes them.
type numbers struct {
	has   map[string]bool
	zone  *time.Location
	start time.Time
}

func (k *numbers) text(s string) {
	for _, n := range inText.FindAllString(s, -1) {
		k.has[strings.TrimRight(n, ".,:")] = true
	}
}

func (k *numbers) add(key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, e := range v {
			k.add(name, e)
		}
		for _, names := range [][2]string{{"used_bytes", "limit_bytes"}, {"used", "limit_count"}} {
			used, _ := v[names[0]].(json.Number)
			limit, _ := v[names[1]].(json.Number)
			if u, err := used.Float64(); err == nil {
				if l, err := limit.Float64(); err == nil && l > 0 {
					k.text(values.Percent(u / l))
				}
			}
		}
	case []any:
		k.text(fmt.Sprint(len(v)))
		for _, e := range v {
			k.add(key, e)
		}
	case string:
		k.text(v)
		if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
			k.text(at.In(k.zone).Format("2 2006-01-02 15:04:05 -07:00"))
			k.text(at.In(k.start.Location()).Format("2 2006-01-02 15:04:05 -07:00"))
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return
		}
		k.text(v.String())
		switch {
		case strings.HasSuffix(key, "bytes"):
			k.text(rss.Bytes(f).String())
			for _, unit := range []rss.Bytes{rss.GiB, rss.MiB, rss.KiB} {
				k.text(fmt.Sprintf("%.0f %.1f", f/float64(unit), f/float64(unit)))
			}
		case strings.HasSuffix(key, "_s"):
			k.text(values.Seconds(f) + fmt.Sprintf(" %.0f %.1f %.2f", f/60, f, f))
		case f >= 0 && f < 100 && strings.ContainsAny(v.String(), ".e"), key == "share", key == "ratio":
			k.text(values.Percent(f))
		case key == "t" || key == "from" || key == "to" || key == "peak_at":
			at := time.Duration(f) * time.Millisecond
			k.text(values.Span(at) + k.start.Add(at).Format(" 2 15:04:05"))
		case f >= 0:
			k.text(values.Digits(uint64(f)))
		}
	}
}
