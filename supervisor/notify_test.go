package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// instances counts the inotify instances of this process.
func instances(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

// TestNotifierEnds: it tells of a file as long as that is there, and costs the user
// none of the few instances once nothing is left to tell of.
func TestNotifierEnds(t *testing.T) {
	before := instances(t)
	one, two := t.TempDir(), t.TempDir()
	n, err := newNews(one)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.add(newsMask, two); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	yields(t, n.woken(), 10*time.Second)
	if err := os.WriteFile(filepath.Join(two, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	yields(t, n.woken(), 10*time.Second)
	if err := os.RemoveAll(two); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); instances(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d inotify instances, %d before", instances(t), before)
		}
	}
	if err := n.add(newsMask, t.TempDir()); !errors.Is(err, errNoneLeft) {
		t.Errorf("told of more: %v", err)
	}
}
