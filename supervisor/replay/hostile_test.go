package replay_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

// TestHostileRecords: whatever stands in any field of a record, a replay of it for people
// lets none of it steer a terminal.
func TestHostileRecords(t *testing.T) {
	const length = 2 * time.Minute
	run := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 1, Count: 1, Start: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), To: length, Workers: 2,
		Limit: 4 * rss.GiB, Share: recordtest.Rising(length, 0.3, 0.95), Recycles: []time.Duration{length / 2}, Exit: recordtest.Ended(0, "", event.VerdictCarried),
	}.Run()
	done := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		res, err := replay.Replay(run, replay.Options{Limit: 3 * rss.GiB})
		if err != nil {
			for _, line := range recordtest.Shows(err.Error()) {
				t.Logf("%q: the error is for the command to clean: %.100q", kind, line)
			}
			return
		}
		done++
		var b bytes.Buffer
		if err := res.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if bad := recordtest.Shows(b.String()); len(bad) > 0 {
			t.Errorf("%q: %.300q", kind, bad[0])
		}
	}, run)
	if done < 20 {
		t.Errorf("only %d replays", done)
	}
}
