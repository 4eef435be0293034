package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// shownManual is the page as a reader sees it. What man warns of fails the test.
func shownManual(t *testing.T, page string) string {
	t.Helper()
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	file := filepath.Join(t.TempDir(), "page.1")
	wardentest.NoError(t, os.WriteFile(file, []byte(page), 0o644))
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

// TestManual: man shows the page without a warning, with each command, its usage and
// examples, and each event. What it says of options is golden in docs/reference.
func TestManual(t *testing.T) {
	shown := shownManual(t, manual(process{}, commands(process{})))
	for _, c := range commands(process{}) {
		for _, l := range slices.Concat([]string{"\n   " + programName + " " + c.Name + "\n"}, strings.Split(c.UsageText, "\n"), strings.Split(c.ArgsUsage, "\n")) {
			if !strings.Contains(shown, l) {
				t.Errorf("the manual does not show %q", l)
			}
		}
	}
	for _, name := range event.Names() {
		if !regexp.MustCompile(`(?m)^ {7}` + string(name) + `( |$)`).MatchString(shown) {
			t.Errorf("no event %s in the manual", name)
		}
	}
}
