package text

import (
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	names := []string{"limit", "at", "dry-run", "trim", "trim-private", "worker-signal", "quiet"}
	for word, want := range map[string]string{
		"limt": "limit", "limits": "limit", "Limit": "limit", "lmiit": "limit", "dry_run": "dry-run", "DRYRUN": "dry-run",
		"--limit": "limit", "worker.signal": "worker-signal", "trimm": "trim", "trim_priv": "", "At": "at", "it": "at",
		"": "", "x": "", "colour": "", "limitation": "", strings.Repeat("limit", 1000): "",
	} {
		if got := Similar(word, names); got != want {
			t.Errorf("Similar(%.20q) = %q, want %q", word, got, want)
		}
	}
}
