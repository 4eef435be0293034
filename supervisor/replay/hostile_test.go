package replay_test

import (
	"bytes"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

// TestHostileRecords: whatever stands in any field of a record, a replay of it for people
// lets none of it steer a terminal.
func TestHostileRecords(t *testing.T) {
	run := carried(true, 4*rss.GiB, 0)
	done := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		res, err := replay.Replay(run, replay.Options{})
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
