package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRunNumber: the first process of two containers has the same PID.
func TestRunNumber(t *testing.T) {
	dir := t.TempDir()
	of := func(namespace string) int {
		link := filepath.Join(dir, namespace)
		if err := os.Symlink(namespace, link); err != nil {
			t.Fatal(err)
		}
		return runNumber(link, 7)
	}
	if n := of("pid:[4026531836]"); n != 7 {
		t.Errorf("on the node itself %d, want its PID", n)
	}
	if n := runNumber(filepath.Join(dir, "none"), 7); n != 7 {
		t.Errorf("where that cannot be read %d, want its PID", n)
	}
	if a, b := of("pid:[4026532001]"), of("pid:[4026532002]"); a == b || a <= 0 || b <= 0 {
		t.Errorf("in two containers %d and %d", a, b)
	}
}

// TestRunTime: a watcher that is started again goes on with the time of the run,
// whatever somebody has set the clock to since.
func TestRunTime(t *testing.T) {
	w := &watcher{clock: clock{started: time.Now()}}
	for _, set := range []time.Duration{0, time.Hour, -time.Hour} {
		w.Settings.Begun, w.Settings.BegunMono = time.Now().Add(set-90*time.Second), monotonic()-90*time.Second
		if at := w.runTime(); at < 90*time.Second || at > 100*time.Second {
			t.Errorf("after the clock was set by %v the run has lasted %v, want 90 s", set, at)
		}
	}
	w.Settings.Begun, w.Settings.BegunMono = time.Now().Add(time.Hour), 0
	if at := w.runTime(); at < 0 {
		t.Errorf("the run has lasted %v", at)
	}
}
