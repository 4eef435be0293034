package supervisor

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// twoSteps are a leader in step 0 and a follower in step 1, with these commands, where a
// limit of the cgroup of one step is nearly full.
func twoSteps(t *testing.T, ours, theirs rss.ProcID, full string) (s, other *rankStand) {
	t.Helper()
	dir := runtimeDir(t)
	s = newRank(t, nil, dir, 0, "0", ours, "90%:stop")
	s.leads()
	other = newRank(t, s, dir, 1, "1", theirs, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses(full, 950)
	s.full()
	return s, other
}

// TestStopOfAnotherRanksStep: a stop of a step that only other ranks are in is an
// order to them, and KILL to what has not ended; ours goes on, whatever its end.
func TestStopOfAnotherRanksStep(t *testing.T) {
	ours, oursID := sleeper(t)
	deaf := catcher(t)
	s, other := twoSteps(t, oursID, deaf, "1")
	s.told("stopping step 46.1: SIGTERM now, SIGKILL in 1 min 00 s (90%:stop)")
	if o := other.ordered(); !o.Stop || o.StopStatus != 137 || o.Grace != time.Minute {
		t.Errorf("ordered %+v", o)
	}
	if s.tell.Sum.Stopped || len(s.holder.overrides) > 0 {
		t.Errorf("ours counts as stopped: %v", s.holder.overrides)
	}
	s.later(2 * time.Minute)
	s.full()
	dead(t, deaf)
	s.fs.End(deaf.PID)
	s.uses("1", 10)
	s.full()
	s.full()
	s.told("stopped step 46.1\n")
	if !running(ours) {
		t.Error("ours was ended")
	}
}

// TestStopOfOurStepAlone: where ranks of another step go on, the end of our command
// is by rsswarden all the same.
func TestStopOfOurStepAlone(t *testing.T) {
	ours, oursID := sleeper(t)
	theirs, theirsID := sleeper(t)
	s, other := twoSteps(t, oursID, theirsID, "0")
	if got := endedBy(t, ours); got != unix.SIGTERM {
		t.Errorf("ours was ended by %v", got)
	}
	if !slices.Equal(s.holder.overrides, []int{137}) {
		t.Errorf("the holder is to end with %v", s.holder.overrides)
	}
	if o := other.ordered(); o.Stop || !running(theirs) {
		t.Errorf("the other step was stopped: %+v", o)
	}
	s.ended(15)
	wardentest.Has(t, s.last(event.NameExit), "by", "rsswarden", "code", 137.0)
}

// TestEndBesideStopOfOthers: a stop of other ranks is not told as done when our
// command ends before they do.
func TestEndBesideStopOfOthers(t *testing.T) {
	_, oursID := sleeper(t)
	s, _ := twoSteps(t, oursID, catcher(t), "1")
	s.ended(9)
	wardentest.Has(t, only(t, s.events(), event.NameOutcome), "ok", false, "reason", string(event.ReasonVanished))
	wardentest.Has(t, s.last(event.NameExit), "by", "command", "signal", "SIGKILL")
}
