package roff_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/roff"
)

// TestTextIsTakenAsItIs: what a reader copies from the page is what was written.
func TestTextIsTakenAsItIs(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("no man:", err)
	}
	const odd = `.SH is no request; 'nor is this; a\b --limit "90%" ` + "`x` ^~ $HOME…"
	p := roff.New(roff.Title{Name: "odd", Section: 1, Source: `odd "1.0"`, Manual: "User Commands"})
	p.Section("NAME")
	p.Text("odd \\- a page\n\n" + odd + "\n" + odd)
	p.Term(`--at 'eta<2m:stop'`, odd)
	p.Verbatim(odd + "\n\n  'indented")
	file := filepath.Join(t.TempDir(), "odd.1")
	if err := os.WriteFile(file, []byte(p.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8", "MAN_KEEP_FORMATTING=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if n := strings.Count(string(out), odd); n != 4 || !strings.Contains(string(out), "--at 'eta<2m:stop'") {
		t.Errorf("%d times, want 4:\n%s", n, out)
	}

	stderr.Reset()
	cmd = exec.Command("man", "--warnings", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C", "MAN_KEEP_FORMATTING=")
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	if n := strings.Count(string(out), strings.Replace(odd, "…", "...", 1)); err != nil || stderr.Len() > 0 || n != 4 {
		t.Errorf("in the locale C %d times, want 4: %v\n%s\n%s", n, err, &stderr, out)
	}
}
