package store

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestLiveRecord: a run that goes on is read through its watcher, while it writes.
func TestLiveRecord(t *testing.T) {
	place := t.TempDir()
	r, told, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	for range 20 {
		n := 0
		feed(t, r, m.Start, func() bool { n++; return n > 20 })
		run, err := Read(context.Background(), dir, func() *exec.Cmd {
			t.Fatal("a live record was opened")
			return nil
		})
		if err != nil || !run.Live || len(run.Damage) > 0 {
			t.Fatalf("%v, live %v, damage %v", err, run != nil && run.Live, run)
		}
		if len(samplesOf(run)) == 0 {
			t.Error("no samples")
		}
	}
	r.Event(event.NameExit, event.Exit{Head: event.Head{V: 1, Time: time.Now(), Event: event.NameExit}})
	r.Close(5 * time.Second)
	if run := readBack(t, dir); run.Live || run.Exit() == nil {
		t.Errorf("after its end: live %v, exit %v", run.Live, run.Exit())
	}
	if len(told.all) > 0 {
		t.Error(told.all)
	}
}

// TestSlowReader: a reader of a live record that stops reading does not delay the end of
// the run.
func TestSlowReader(t *testing.T) {
	place := t.TempDir()
	r, _, m := recorderIn(t, place, t.TempDir())
	dir := filepath.Join(place, m.ID)
	feed(t, r, m.Start, func() bool { return answersAt(dir) })
	n := 0
	feed(t, r, m.Start, func() bool { n++; return n > 1500 }) // more than a socket holds
	c, err := dialLive(dirAt(t, dir))
	must(t, err)
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r.Close(10 * time.Second)
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("closing took %v", d)
	}
}
