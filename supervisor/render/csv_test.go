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
	if err := CSV(&b, []*record.Run{r, j}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), 0x1b) {
		t.Error("an escape in the table")
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(CSVHeader, rows[0]); diff != "" || len(CSVHeader) != columns {
		t.Fatalf("header: %s", diff)
	}
	count := map[string]int{}
	for _, row := range rows[1:] {
		count[row[colKind]]++
		if _, err := time.Parse(time.RFC3339, row[colTime]); err != nil {
			t.Fatal(err)
		}
	}
	// Three samples of four processes and one limit; the first of them again
	// from the journal, with two roles.
	if diff := cmp.Diff(map[string]int{"process": 12, "limit": 4, "role": 2}, count); diff != "" {
		t.Errorf("rows by kind: %s", diff)
	}
	want := map[int]string{
		colTime: "2026-11-20T12:00:00.000Z", colElapsed: "0.000", colKind: "process", colPID: "701", colStart: "9", colComm: "python", colRole: "trainer",
		colExtra: "0", colOurs: "0", colRSS: "681574400", colAnon: "524288000", colMaps: "1234", colFDs: "40", colLimit: "", colETA: "",
	}
	first := rows[slices.IndexFunc(rows, func(row []string) bool { return row[colKind] == "process" })]
	for c, v := range want {
		if first[c] != v {
			t.Errorf("%s is %q, want %q", CSVHeader[c], first[c], v)
		}
	}
}

// TestCSVHasNoFormulas: no cell is one that a spreadsheet would evaluate.
func TestCSVHasNoFormulas(t *testing.T) {
	r := find(t, "maps").scene.Run()
	r.Procs[0].Comm, r.Meta.Node = "=cmd|'/C x'!A0", "@SUM(1)"
	var b bytes.Buffer
	if err := CSV(&b, []*record.Run{r}); err != nil {
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
