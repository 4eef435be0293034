package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestLogSteersNoTerminal: in either form of our lines.
func TestLogSteersNoTerminal(t *testing.T) {
	for _, format := range []string{"console", "json"} {
		name := filepath.Join(t.TempDir(), "log")
		t.Setenv("COLUMNS", "80")
		f, err := os.Create(name)
		wardentest.NoError(t, err)
		log, flush := newLog(f, text.Style{}, settings.Log{LogFormat: format})
		log.Warn("process 7 (" + recordtest.Hostile + ") is large")
		flush(10 * time.Second)
		b, err := os.ReadFile(name)
		wardentest.NoError(t, err)
		lines, begin := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), "{"
		if format == "console" {
			begin = programName + ": "
		}
		for _, line := range lines {
			if bad := recordtest.Shows(line); len(bad) > 0 || !strings.HasPrefix(line, begin) || begin != "{" && text.Columns(line) > 80 {
				t.Errorf("%s: %q", format, line)
			}
		}
		f.Close()
	}
}

func TestLogTakesLinesAfterItsEnd(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	wardentest.NoError(t, err)
	defer f.Close()
	w := newLossyWriter(f)
	want := ""
	for range 100 {
		line := "a line\n"
		if _, err := w.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		want += line
	}
	w.close(time.Minute)
	b, err := os.ReadFile(f.Name())
	if err != nil || string(b) != want {
		t.Errorf("%d bytes were written before the end (%v), want %d", len(b), err, len(want))
	}
	if _, err := w.Write([]byte("too late\n")); err != nil {
		t.Error(err)
	}
}
