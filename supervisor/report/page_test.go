package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// hostile are names that a process may give itself, and command lines.
var hostile = []string{
	"</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(1)>", `"onmouseover="alert(1)`, "a\u2028b\u2029c",
	"\xff\xfe\x00\x1b[31m", "\u202egnp.exe", "]]>", "&lt;b&gt;", "';alert(1)//", "{{.}}${1}", "\\u003c/script\\u003e",
}

func writeBoth(t *testing.T, rep *Report, tl *Timeline) (page, svg string) {
	t.Helper()
	var h, s bytes.Buffer
	rep.Timeline = tl
	if err := WriteHTML(&h, rep); err != nil {
		t.Fatal(err)
	}
	if err := WriteSVG(&s, rep); err != nil {
		t.Fatal(err)
	}
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

func hostilePage(t *testing.T) (page, svg string) {
	b := record.NewBuilder(record.Meta{ID: hostile[0], Node: hostile[0], Start: dawn})
	rep := drawnReport()
	rep.Verdict, rep.Job = strings.Join(hostile, " "), hostile[3]
	rep.Evidence, rep.Notes = hostile, hostile
	rep.Runs = []Run{{ID: hostile[0], Node: hostile[2], Command: hostile, Sources: hostile, Damage: hostile}}
	rep.Slurm.State, rep.Slurm.Reason = hostile[0], hostile[1]
	for i, name := range hostile {
		b.Limit(event.Limit{Name: event.LimitName(name), Scope: event.Scope(name), Enforcer: name, Note: name})
		b.Proc(record.Proc{ID: rss.ProcID{PID: i}, Comm: name, Role: rss.Role(name)})
		b.Event(record.Entry{Value: &event.Signal{Signal: name, Comm: name, Sender: 1}})
		b.Event(record.Entry{Value: &event.Fault{Part: name, Error: name}})
		b.Event(record.Entry{Value: &event.Decision{ID: uint64(i), Rule: name, Limit: event.LimitName(name), Action: event.Action(name)}})
		b.Event(record.Entry{Value: &event.Diagnosis{Finding: event.Finding(name), Confidence: event.Confidence(name), Role: rss.Role(name), Bytes: 1, Evidence: []string{name}, Advice: []string{name}}})
		b.Event(record.Entry{Value: &event.Outcome{Decision: uint64(i), Reason: event.Reason(name), Detail: name}})
		rep.Limits = append(rep.Limits, Limit{Run: name, Limit: event.Limit{Name: event.LimitName(name), Enforcer: name, LimitSource: name, Note: name}})
		rep.Advice = append(rep.Advice, Line{Line: name, Why: name, Evidence: name})
		rep.Findings = append(rep.Findings, Diagnosis{Finding: event.Finding(name), Confidence: event.Confidence(name), Role: rss.Role(name), Bytes: 1, Evidence: []string{name}, Advice: []string{name}})
		rep.Cures = append(rep.Cures, Cure{Remedy: event.Remedy(name), Reason: name})
	}
	for at := range 20 {
		s := &record.Sample{At: time.Duration(at) * time.Second}
		for i := range hostile {
			s.Procs = append(s.Procs, record.Usage{Proc: i, Anon: rss.GiB})
			s.Limits = append(s.Limits, record.Reading{Limit: i, Used: rss.GiB, Size: 2 * rss.GiB})
		}
		b.Sample(s)
	}
	tl := series([]*record.Run{b.Run()})
	return writeBoth(t, rep, &tl)
}

// TestPageTakesHostileNames: names and command lines stay text. That no script
// of theirs runs is seen in TestPageInBrowser.
func TestPageTakesHostileNames(t *testing.T) {
	page, svg := hostilePage(t)
	if n := strings.Count(page, "<script"); n != 2 {
		t.Errorf("%d script elements, want the data and ours", n)
	}
	if n := strings.Count(page, "</script"); n != 2 {
		t.Errorf("%d ends of scripts", n)
	}
	text, _, _ := strings.Cut(page, `<script type="application/json"`)
	for _, doc := range []string{page, text, svg} {
		for _, bad := range []string{"<img", "\u2028", "\u2029", "\u202e", "\x00", "\x1b", ` "onmouseover`, `""onmouseover`} {
			if strings.Contains(doc, bad) {
				t.Errorf("%q is in the page", bad)
			}
		}
	}
}

// TestPageLoadsNothing: no address is in a page but the name space of SVG.
func TestPageLoadsNothing(t *testing.T) {
	tl := series([]*record.Run{drawnRun{node: "n", length: time.Minute, every: time.Second, workers: 2, limit: rss.GiB, to: 1}.build()})
	page, svg := writeBoth(t, drawnReport(), &tl)
	for _, doc := range []string{page, svg} {
		doc = strings.ReplaceAll(doc, "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http:", "https:", "//cdn", "@import", "url(//", "fetch(", "XMLHttp", "WebSocket", "eval(", "innerHTML", " style="} {
			if strings.Contains(doc, bad) {
				t.Errorf("%q is in the page", bad)
			}
		}
	}
}

const pageBound = 5 << 20

func TestPageOfADayIsSmall(t *testing.T) {
	r := dayRun().build()
	begin := time.Now()
	tl := series([]*record.Run{r})
	page, svg := writeBoth(t, drawnReport(dayRun()), &tl)
	l := tl.Runs[0].Levels
	t.Logf("24 h at 1 s, 16 processes: page %.2f MiB, svg %.2f MiB, %d points of %v, made in %v",
		float64(len(page))/(1<<20), float64(len(svg))/(1<<20), len(l[0].Sum), l[0].Step, time.Since(begin).Round(time.Millisecond))
	if len(page) > pageBound {
		t.Errorf("%d bytes", len(page))
	}
	var noted string
	for i := range tl.Runs[0].Procs {
		noted += fmt.Sprint(tl.Runs[0].Procs[i].Step, " ")
	}
	if len(tl.Runs[0].Procs) == 0 {
		t.Error("no process is drawn: ", noted)
	}
}

// TestPageOfManyRunsIsSmall: the budget is the page's, not each run's.
func TestPageOfManyRunsIsSmall(t *testing.T) {
	var runs []*record.Run
	for i := range 40 {
		runs = append(runs, drawnRun{node: fmt.Sprint("node", i/8), task: i, length: time.Hour, every: time.Second, workers: 3, limit: 4 * rss.GiB, from: 0.3, to: 0.9}.build())
	}
	tl := series(runs)
	page, svg := writeBoth(t, drawnReport(), &tl)
	t.Logf("40 runs of 1 h: page %.2f MiB, svg %.2f MiB, points of %v", float64(len(page))/(1<<20), float64(len(svg))/(1<<20), tl.Runs[0].Levels[0].Step)
	if len(page) > pageBound || tl.LeftOut != 8 {
		t.Errorf("%d bytes, %d runs left out", len(page), tl.LeftOut)
	}
}

func dayRun() drawnRun {
	return drawnRun{node: "node7", length: 24 * time.Hour, every: time.Second, workers: 13, limit: 4 * rss.GiB, from: 0.45, to: 0.97}
}
