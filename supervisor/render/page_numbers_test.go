package render

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	values "github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
