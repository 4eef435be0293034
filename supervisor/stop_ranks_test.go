package supervisor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestStopOfAnotherRanksStep: a stop of a step that only other ranks are in is an
// order to them, and KILL to what has not ended; ours goes on, whatever its end.
func TestStopOfAnotherRanksStep(t *testing.T) {
	dir := runtimeDir(t)
	ours, oursID := sleeper(t)
	deaf := catcher(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	other := newRank(t, s, dir, 1, "1", deaf, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses("1", 950)
	s.full()
	if want := "stopping step 46.1: SIGTERM now, SIGKILL in 1 min 00 s (90%:stop)"; !strings.Contains(s.stderr(), want) {
		t.Fatalf("%q is not in\n%s", want, s.stderr())
	}
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
	dir := runtimeDir(t)
	ours, oursID := sleeper(t)
	theirs, theirsID := sleeper(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	other := newRank(t, s, dir, 1, "1", theirsID, "90%:stop")
	other.follows()
	s.meets(1, 1)
	s.uses("0", 950)
	s.full()
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
	if last := s.events(); last[len(last)-1]["by"] != "rsswarden" || last[len(last)-1]["code"] != 137.0 {
		t.Errorf("%v", last[len(last)-1])
	}
}

// TestEndBesideStopOfOthers: a stop of other ranks is not told as done when our
// command ends before they do.
func TestEndBesideStopOfOthers(t *testing.T) {
	dir := runtimeDir(t)
	_, oursID := sleeper(t)
	deaf := catcher(t)
	s := newRank(t, nil, dir, 0, "0", oursID, "90%:stop")
	s.leads()
	newRank(t, s, dir, 1, "1", deaf, "90%:stop").follows()
	s.meets(1, 1)
	s.uses("1", 950)
	s.full()
	s.ended(9)
	all := s.events()
	if o := named(all, event.NameOutcome); len(o) != 1 || o[0]["ok"] != false || o[0]["reason"] != string(event.ReasonVanished) {
		t.Errorf("outcomes %v", o)
	}
	has(t, all[len(all)-1], "by", "command", "signal", "SIGKILL")
}
