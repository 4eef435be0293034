package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestJSONSteersNoTerminal: what --json prints is read on terminals too, and means the
// same to a parser.
func TestJSONSteersNoTerminal(t *testing.T) {
	in := map[string]string{"comm": recordtest.Hostile + "\u007f\u0085\u2066\U000e0001 é 数据"}
	var b bytes.Buffer
	wardentest.NoError(t, writeJSON(&b, in))
	if bad := recordtest.Shows(b.String()); len(bad) > 0 || strings.ContainsAny(b.String(), "\u007f\u0085\u2066\U000e0001") {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), " é 数据") {
		t.Errorf("letters are escaped: %q", b.String())
	}
	var out map[string]string
	wardentest.NoError(t, json.Unmarshal(b.Bytes(), &out))
	if want := map[string]string{"comm": strings.ToValidUTF8(in["comm"], "\ufffd")}; !reflect.DeepEqual(out, want) {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestSentences: an error of several lines is several sentences.
func TestSentences(t *testing.T) {
	err := errors.Join(errors.New("cannot make a"), errors.New("cannot make b\x1b[31m"))
	if got, want := sentences(err.Error()+"\n"), "cannot make a; cannot make b\ufffd[31m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

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

// TestLongCommandLineReachesTheWatcher: what the holder hands to the watcher is
// bounded, and a command line that is longer must not cost the watcher its
// settings.
func TestLongCommandLineReachesTheWatcher(t *testing.T) {
	short := []string{"python", "train.py"}
	if got := clipped(short); len(got) != 2 {
		t.Errorf("%q became %q", short, got)
	}
	long := []string{"python", "train.py"}
	for range 5000 {
		long = append(long, "<"+strings.Repeat("x", 40)+">") // JSON writes < in six bytes
	}
	got := clipped(long)
	size := 0
	for _, a := range got {
		size += len(a)
	}
	if size > 16<<10 || got[0] != "python" || got[len(got)-1] != "..." || len(long) != 5002 {
		t.Errorf("%d arguments became %d of %d bytes, the last is %q", len(long), len(got), size, got[len(got)-1])
	}
}
