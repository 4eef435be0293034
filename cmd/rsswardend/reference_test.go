package main

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
)

// TestReference: what docs/reference says of the daemon is what the program has.
func TestReference(t *testing.T) {
	p := reference.New("rsswardend", "`rsswardend man` shows the same. What it is for is told in [all jobs of a node](../daemon.md), its metrics in\n[metrics](metrics.md).")
	p.Verbatim(strings.ReplaceAll(usageText, "   ", ""))
	tell(p)
	p.Section("EXAMPLES")
	p.Verbatim(strings.Join(examples, "\n"))
	p.Check(t, "docs/reference/rsswardend.md")
}
