package render

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestWriteCSV: samples of a record, and of a journal, which has roles in place of processes.
func TestWriteCSV(t *testing.T) {
	s := find(t, "maps").scene
	s.Length = 2 * time.Second
	s.Maps = func(time.Duration) int { return 1234 }
	r := s.Run()
	r.Procs[1].Comm = "a,\"b\x1b\n"
	j := scenetest.AsJournal(t, r)
	j.Meta.ID = "journal"
	var b bytes.Buffer
	wardentest.NoError(t, CSV(&b, []*record.Run{r, j}))
	golden.Check(t, "testdata/samples.csv", b.String())
}

// TestCSVHasNoFormulas: no cell is one that a spreadsheet would evaluate.
func TestCSVHasNoFormulas(t *testing.T) {
	r := find(t, "maps").scene.Run()
	r.Procs[0].Comm, r.Meta.Node = "=cmd|'/C x'!A0", "@SUM(1)"
	var b bytes.Buffer
	wardentest.NoError(t, CSV(&b, []*record.Run{r}))
	rows, err := csv.NewReader(&b).ReadAll()
	wardentest.NoError(t, err)
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
