package report

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// TestHostileRecords: whatever stands in any field of a record, and in Slurm's answer, no
// form of the report lets it reach a terminal or the markup of a page.
func TestHostileRecords(t *testing.T) {
	oom := find(t, "kernel, the command")
	for name, of := range map[string]struct {
		runs []*record.Run
		said *SlurmSays
	}{
		"carried":    {runs: []*record.Run{carriedRun()}},
		"killed":     {[]*record.Run{oom.scene.run()}, oom.said},
		"overmemory": {[]*record.Run{find(t, "OverMemoryKill").scene.run()}, find(t, "OverMemoryKill").said},
		"requeued":   {runs: []*record.Run{find(t, "requeue=").scene.run()}},
		"maps":       {runs: []*record.Run{find(t, "maps").scene.run()}},
		"journal":    {runs: []*record.Run{asJournal(t, find(t, "time limit").scene.run())}},
		"grown":      {runs: []*record.Run{grownScene().run()}},
		"ranks":      {runs: ranks()},
		"nodes":      {runs: oomOnN2()},
	} {
		t.Run(name, func(t *testing.T) {
			table := name == "maps" || name == "journal" // each sample is a line of the others' too
			clean := shown(t, of.runs, of.said, table)
			kinds := 0
			recordtest.Poison(recordtest.Hostile, func(kind string) {
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
						if strings.Contains(text, ` onmouseover="`) {
							t.Errorf("%s, %q: an attribute is in it", form, kind)
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
func shown(t *testing.T, runs []*record.Run, said *SlurmSays, withTable bool) map[string]string {
	t.Helper()
	rep := explained(Input{Runs: runs, Slurm: said, Now: noon.Add(time.Hour), Timeline: true})
	var text, advice, table, page, svg bytes.Buffer
	if withTable {
		if err := WriteCSV(&table, runs); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		WriteText(&text, rep, 80, false), WriteAdvice(&advice, 1, rep.Advice, 80, false), WriteHTML(&page, rep), WriteSVG(&svg, rep),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"text": text.String(), "advice": advice.String(), "csv": table.String(), "page": page.String(), "svg": svg.String()}
}

// TestCSVHasNoFormulas: no cell is one that a spreadsheet would evaluate.
func TestCSVHasNoFormulas(t *testing.T) {
	r := find(t, "maps").scene.run()
	r.Procs[0].Comm, r.Meta.Node = "=cmd|'/C x'!A0", "@SUM(1)"
	var b bytes.Buffer
	if err := WriteCSV(&b, []*record.Run{r}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range rows {
		for _, c := range row {
			seen[c] = true
			if c != "" && strings.ContainsRune("=+-@", rune(c[0])) {
				t.Fatalf("a cell is %q", c)
			}
		}
	}
	if !seen["'=cmd|'/C x'!A0"] || !seen["'@SUM(1)"] {
		t.Error("the names are not in it")
	}
}
