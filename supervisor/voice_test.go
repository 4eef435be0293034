package supervisor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

func TestVoiceIsRationed(t *testing.T) {
	var said lines
	v := newVoice(&said)
	now := time.Duration(0)
	for i := range 30 { // one a second
		now += time.Second
		v.say(now, "trim", fmt.Sprintf("line %d", i))
	}
	if len(said.all) != freely {
		t.Errorf("%d lines, want the first %d", len(said.all), freely)
	}
	if last := said.last(); last != "line 4 (more like it: one line a minute at most)" {
		t.Errorf("said %q", last)
	}
	v.say(now, "recycle", "of another kind")
	if len(said.all) != freely+1 {
		t.Error("another kind pays for this one")
	}
	v.say(now+ration, "trim", "the next")
	if last := said.last(); last != "the next (and 25 more like it since the last)" {
		t.Errorf("said %q", last)
	}
	v.say(now+2*ration, "trim", "one more")
	if last := said.last(); last != "one more" {
		t.Errorf("said %q", last)
	}
}

func TestVoiceRepeatsWhatHappensAgain(t *testing.T) {
	var said lines
	v := newVoice(&said)
	v.say(time.Minute, "a@job", "memory 80 %")
	v.say(time.Minute+time.Millisecond, "a@step", "memory 80 %") // step and job stand at the same
	if len(said.all) != 1 {
		t.Errorf("%d lines of one moment, want one", len(said.all))
	}
	v.say(time.Hour, "a@job", "memory 80 %")
	if len(said.all) != 2 {
		t.Errorf("%d lines, want the second crossing to be said", len(said.all))
	}
}

func TestOnce(t *testing.T) {
	v := newVoice(&lines{})
	if !v.once("part", "text") || v.once("part", "text") || !v.once("part", "other") || !v.once("other", "text") {
		t.Error("not each once")
	}
	for i := range 2 * maxToldSet {
		v.once("part", strings.Repeat("x", i%7)+fmt.Sprint(i))
	}
	if len(v.told) > maxToldSet {
		t.Errorf("%d faults are remembered", len(v.told))
	}
}

// TestFaultsGoOnBeingTold: the event log has all of them, stderr a ration.
func TestFaultsGoOnBeingTold(t *testing.T) {
	s := opened(t, nil)
	const kinds = 3*maxToldSet + 10
	for i := range kinds {
		s.fault("limits", &said{fmt.Sprint("kind ", i)})
		s.fault("limits", &said{fmt.Sprint("kind ", i)})
	}
	s.fault("loader", &said{"it is broken"})
	if n := strings.Count(s.stderr(), "different faults were told"); n != 1 {
		t.Errorf("said %d times that there are too many", n)
	}
	if n := strings.Count(s.stderr(), "limits: kind "); n < maxToldSet || n > maxToldSet+2*freely {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(s.stderr(), "loader: it is broken") {
		t.Error("another part pays for it")
	}
	told := map[any]int{}
	for _, e := range named(s.events(), event.NameFault) {
		told[e["part"]]++
	}
	if told["limits"] != kinds || told["loader"] != 1 {
		t.Errorf("events %v, want all %d", told, kinds)
	}
}
