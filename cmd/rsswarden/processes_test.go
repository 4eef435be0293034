package main

import (
	"strings"
	"testing"
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
