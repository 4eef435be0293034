package supervisor

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestScenesReplayed: the judge decides on the record of each scene what it decided live, to
// the byte.
func TestScenesReplayed(t *testing.T) {
	for name, play := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { recordStands = "" })
			var run *record.Run
			var again *replay.Result
			err := error(nil)
			for range 5 { // on a busy machine the record may not be written within the time that it gets at the end
				recordStands = t.TempDir()
				if run, err = play(t).recorded(); err == nil {
					again, err = replay.Replay(run, replay.Options{})
				}
				if err == nil {
					break
				}
			}
			wardentest.NoError(t, err)
			var got, want []string
			line := func(d replay.Decision) string {
				b, err := json.Marshal(d)
				wardentest.NoError(t, err)
				return string(b)
			}
			for _, e := range run.Events {
				if d, ok := e.Value.(*event.Decision); ok && !d.Asked() {
					want = append(want, line(replay.Decision{Rule: d.Rule, Limit: d.Limit, Action: d.Action, Arg: d.Arg, Used: d.Used, Size: d.LimitSize, ETA: d.ETA}))
				}
			}
			for _, d := range again.Decisions {
				d.At, d.Recorded, d.Freed = 0, nil, 0
				got = append(got, line(d))
			}
			if diff := cmp.Diff(want, got); diff != "" || !*again.Same {
				t.Errorf("decided again (same: %v, missed: %v):\n%s", *again.Same, again.Missed, diff)
			}
		})
	}
}

// recorded reads the record of a stand that has ended. Its events have the real clock's times,
// which know nothing of [stand.later].
func (s *stand) recorded() (*record.Run, error) {
	s.t.Helper()
	run, err := store.Read(context.Background(), filepath.Join(recordStands, s.tell.Run.ID), func() *exec.Cmd {
		return exec.Command("/proc/self/exe", exportRecord)
	})
	if err != nil {
		return nil, err
	}
	for i := range run.Events {
		e := &run.Events[i]
		at := run.Wall(e.At)
		for _, l := range s.leaps {
			if !l.at.After(at) {
				e.At += l.by
			}
		}
	}
	return run, nil
}
