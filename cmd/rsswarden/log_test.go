package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestLogSteersNoTerminal: in either form of our lines.
func TestLogSteersNoTerminal(t *testing.T) {
	for _, format := range []string{"console", "json"} {
		name := filepath.Join(t.TempDir(), "log")
		f, err := os.Create(name)
		wardentest.NoError(t, err)
		log, flush := newLog(f, text.Style{}, format, false)
		log.Warn("process 7 (" + recordtest.Hostile + ") is large")
		flush(10 * time.Second)
		b, err := os.ReadFile(name)
		wardentest.NoError(t, err)
		if bad := recordtest.Shows(string(b)); len(bad) > 0 || strings.Count(string(b), "\n") != 1 {
			t.Errorf("%s: %q", format, b)
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
