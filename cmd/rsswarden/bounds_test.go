package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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

func TestLogTakesLinesAfterItsEnd(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
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
