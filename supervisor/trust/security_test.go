package trust

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tableRows are the rows of the Markdown tables of a text that have so many cells, without
// heads.
func tableRows(text string, cells int) (rows [][]string) {
	head := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			head = true
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if strings.HasPrefix(row[0], "---") {
			head = false
		} else if !head && len(row) == cells {
			rows = append(rows, row)
		}
	}
	return rows
}

// testName is a test as documents name it: `supervisor/loader.TestOwner`.
var testName = regexp.MustCompile("`([a-z0-9/]+\\.(?:Test|Fuzz)[A-Z][^`]*)`")

func securityText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(root + "/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSecurityClaims: each claim of SECURITY.md names tests that show it, and they are
// there.
func TestSecurityClaims(t *testing.T) {
	text := securityText(t)
	claims := tableRows(text, 2)
	if len(claims) < 40 {
		t.Fatalf("%d claims", len(claims))
	}
	for _, claim := range claims {
		named := testName.FindAllStringSubmatch(claim[1], -1)
		if len(named) == 0 || len(named) != len(strings.Fields(claim[1])) {
			t.Errorf("not shown by tests alone: %q", claim)
		}
	}
	var names []string
	for _, m := range testName.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	wantTests(t, "SECURITY.md", names)
	// A parser that is new is of somebody's input.
	all, err := there()
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		own := strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "slurm/slurmtest.") // what nobody else writes
		if strings.Contains(name, ".Fuzz") && !own && !slices.Contains(names, name) {
			t.Errorf("SECURITY.md does not name %s", name)
		}
	}
}
