package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rsswarden/rsswarden/rss/rsstest/reference"
)

// TestManual: the page is clean and explains each option.
func TestManual(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	page, err := exec.Command(binary, "man").Output()
	must(t, err)
	file := filepath.Join(t.TempDir(), "page.8")
	must(t, os.WriteFile(file, page, 0o644))
	cmd := exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=2000", "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	shown, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("man warns: %v\n%s", err, &stderr)
	}
	words := strings.Join(strings.Fields(string(shown)), " ")
	for _, f := range flags() {
		text := strings.Join(strings.Fields(about[f.Names()[0]]), " ")
		if !strings.Contains(words, "--"+f.Names()[0]) || text == "" || !strings.Contains(words, text) {
			t.Errorf("the manual does not tell of --%s: %q", f.Names()[0], text)
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
