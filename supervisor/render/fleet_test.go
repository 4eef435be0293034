package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	values "github.com/rsswarden/rsswarden/supervisor/text"
)

// TestFleet draws the sums over jobs, on streams of several kinds and as a page.
func TestFleet(t *testing.T) {
	now := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	var jobs analysis.FleetJobs
	var runs []record.IndexEntry
	for i := range 60 {
		at := now.Add(-time.Duration(i) * time.Hour)
		e := record.IndexEntry{
			V: 1, ID: record.NewID(at, &record.Job{ID: fmt.Sprint(4711 + i)}, "n1", 100+i), Start: at, Job: fmt.Sprint(4711 + i), Outcome: event.RunOutcomes[i%len(event.RunOutcomes)],
			Seconds: float64(i * 997), Limit: event.LimitCgroup, Peak: float64(i) / 50, Size: 64 * rss.GiB, User: []string{"alice", "bob<script>", "\x1b[31mred"}[i%3], Node: fmt.Sprintf("n%d", i%2+1),
			Command: "python3 train.py --epochs 4",
		}
		if i%4 == 0 {
			e.Command, e.Limit, e.Peak = strings.Repeat("very/long/path/", 20)+"name of a script.py", "", 0
		}
		e.IndexSums = []record.IndexSums{{Grew: event.FindingMapped}, {Grew: event.FindingWorkerLeak}, {Enough: 30 * rss.GiB}}[i%3]
		runs = append(runs, e)
	}
	jobs.AddRuns(runs)
	jobs.AddAccounted(&slurm.AccountedJob{ID: "9", State: "COMPLETED", Comment: "JS1:None", User: "carol"})
	jobs.AddAccounted(&slurm.AccountedJob{ID: "10", State: "COMPLETED", Comment: "a note"})

	var all bytes.Buffer
	for _, by := range analysis.FleetBy {
		for _, style := range []values.Style{{Width: 80}, {Width: 120}, {Width: 30}} {
			fmt.Fprintf(&all, "== by %s, %d columns\n", by, style.Width)
			if err := Fleet(&all, jobs.Sum(by, ""), style); err != nil {
				t.Fatal(err)
			}
		}
	}
	var none analysis.FleetJobs
	fmt.Fprintln(&all, "== none")
	if err := Fleet(&all, none.Sum("user", ""), values.Style{}); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(all.String()) {
		if l = strings.TrimSuffix(l, "\n"); values.Columns(l) > 120 || values.Plain(l) != l {
			t.Errorf("too wide, or control characters: %q", l)
		}
	}
	golden.Check(t, "testdata/fleet.txt", all.String())

	// The page: what is a name is no element, and its JSON is that of the sums.
	fleet := jobs.Sum("user", "")
	fleet.Days, fleet.Notes = 30, []string{"may not be read: /home/<b>"}
	var page bytes.Buffer
	if err := FleetHTML(&page, fleet, now); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Contains(text, "bob<script>") || strings.Contains(text, "<b>\n") || strings.Contains(text, "\x1b") || strings.Contains(text, "http:") && !strings.Contains(text, "http://www.w3.org/2000/svg") {
		t.Error("a name is an element, or something is loaded")
	}
	_, doc, _ := strings.Cut(text, `<script type="application/json" id="report">`)
	doc, _, _ = strings.Cut(doc, "</script>")
	var back analysis.Fleet
	if err := json.Unmarshal([]byte(doc), &back); err != nil || back.Sum.Jobs != 61 || back.Lines[0].Wasted != fleet.Lines[0].Wasted {
		t.Errorf("%v %+v", err, back.Sum)
	}
	golden.Check(t, "testdata/fleet.html", text[:strings.Index(text, "<style>")]+text[strings.Index(text, "</style>"):strings.Index(text, `<script type="application/json"`)])
}
