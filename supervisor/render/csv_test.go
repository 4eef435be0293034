package render

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("an escape in the table")
	}
	rows, err := csv.NewReader(&b).ReadAll()
	wardentest.NoError(t, err)
	if diff := cmp.Diff(CSVHeader, rows[0]); diff != "" {
		t.Fatalf("header: %s", diff)
	}
	column := func(name string) int { return slices.Index(CSVHeader, name) }
	count := map[string]int{}
	for _, row := range rows[1:] {
		count[row[column("kind")]]++
		if _, err := time.Parse(time.RFC3339, row[column("time")]); err != nil {
			t.Fatal(err)
		}
	}
	// Three samples of four processes and one limit; the first of them again
	// from the journal, with two roles.
	if diff := cmp.Diff(map[string]int{"process": 12, "limit": 4, "role": 2}, count); diff != "" {
		t.Errorf("rows by kind: %s", diff)
	}
	want := map[string]string{
		"time": "2026-11-20T12:00:00.000Z", "elapsed_s": "0.000", "kind": "process", "pid": "701", "start": "9", "comm": "python", "role": "trainer",
		"extra": "0", "ours": "0", "rss_bytes": "681574400", "anon_bytes": "524288000", "maps": "1234", "fds": "40", "limit": "", "eta_s": "",
	}
	first := rows[slices.IndexFunc(rows, func(row []string) bool { return row[column("kind")] == "process" })]
	for c, v := range want {
		if got := first[column(c)]; got != v {
			t.Errorf("%s is %q, want %q", c, got, v)
		}
	}
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
