package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// shownManual is the page as a reader has it. What man warns of fails the test.
func shownManual(t *testing.T, page string) string {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	file := filepath.Join(t.TempDir(), "page.1")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=2000", "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("man warns: %v\n%s", err, &stderr)
	}
	return string(out)
}

// TestManualTellsAll: each command and each option is in the page, under its own
// heading, and each event, limit, action and status.
func TestManualTellsAll(t *testing.T) {
	shown := shownManual(t, manual(process{}))
	_, rest, _ := strings.Cut(shown, "\nCOMMANDS")
	chapters, _, _ := strings.Cut(rest, "\nRULES\n")
	words := strings.Join(strings.Fields(shown), " ")
	for _, c := range commands(process{}) {
		_, text, found := strings.Cut(chapters, "\n   "+programName+" "+c.Name+"\n")
		if !found {
			t.Errorf("no chapter of %s", c.Name)
			continue
		}
		if next := strings.Index(text, "\n   "+programName+" "); next >= 0 {
			text = text[:next]
		}
		for _, f := range c.Flags {
			name := regexp.MustCompile(`--` + regexp.QuoteMeta(f.Names()[0]) + `\b`)
			if !internal(f) && !name.MatchString(text) {
				t.Errorf("the chapter of %s does not tell of --%s:\n%s", c.Name, f.Names()[0], text)
			}
		}
		for _, l := range append(strings.Split(c.UsageText, "\n"), strings.Split(c.ArgsUsage, "\n")...) {
			if !strings.Contains(shown, l) {
				t.Errorf("the manual does not show %q", l)
			}
		}
	}
	for _, o := range options {
		if text := strings.Join(strings.Fields(o.longHelp()), " "); !strings.Contains(words, text) {
			t.Errorf("of %s the manual does not say %q", o.name, text)
		}
	}
	for _, name := range event.Names() {
		if !regexp.MustCompile(`(?m)^ {7}` + string(name) + `( |$)`).MatchString(shown) {
			t.Errorf("no event %s in the manual", name)
		}
	}
}
