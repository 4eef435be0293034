package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestManual: man shows the page without a warning. Each option has its text in it, and that
// is golden in docs/reference.
func TestManual(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	page, _, err := wardentest.Output(binary, "man")
	must(t, err)
	file := filepath.Join(t.TempDir(), "page.8")
	wardentest.Write(t, file, page)
	if _, warned, err := wardentest.Output("man", "--warnings", "-l", file); err != nil || warned != "" {
		t.Errorf("man warns: %v\n%s", err, warned)
	}
	for _, f := range flags() {
		if about[f.Names()[0]] == "" {
			t.Errorf("the manual does not tell of --%s", f.Names()[0])
		}
	}
}

// TestHelpFitsAScreen: a user reads it in a terminal.
func TestHelpFitsAScreen(t *testing.T) {
	help, err := exec.Command(binary, "--help").Output()
	must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(help), "\n"), "\n")
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	if len(lines) > 24 || !strings.HasSuffix(string(help), examples[len(examples)-1]+"\n") {
		t.Errorf("%d lines\n%s", len(lines), help)
	}
	for _, f := range flags() {
		if !strings.Contains(string(help), "   --"+f.Names()[0]) {
			t.Errorf("--help does not tell of --%s", f.Names()[0])
		}
	}
}

// TestReference: what docs/reference says of the daemon is what the program has.
func TestReference(t *testing.T) {
	p := reference.New("rsswardend", "`rsswardend man` shows the same. What it is for: [all jobs of a node](../daemon.md); its metrics:\n[metrics](metrics.md).")
	p.Verbatim(strings.ReplaceAll(usageText, "   ", ""))
	tell(p)
	p.Section("EXAMPLES")
	p.Verbatim(strings.Join(examples, "\n"))
	p.Check(t, "docs/reference/rsswardend.md")
}
