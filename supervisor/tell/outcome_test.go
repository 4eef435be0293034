package tell

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestOutcomesOfBytes keep their bytes, whichever way they go.
func TestOutcomesOfBytes(t *testing.T) {
	o := event.Outcome{Decision: 3, Before: 7, After: 5, Freed: 2, OK: true}
	for _, l := range event.Limits {
		b, err := json.Marshal(outcomeOf(l, o))
		wardentest.NoError(t, err)
		var back event.Outcome
		if err := json.Unmarshal(b, &back); err != nil || back.Decision != 3 || !back.OK {
			t.Errorf("%s: %s (%v)", l, b, err)
		}
		if has := strings.Contains(string(b), "_bytes"); has == l.Counts() {
			t.Errorf("%s: %s", l, b)
		}
	}
}

// TestSkipsLeaveRoomForFaults: what is said once must not be used up by what is
// said of other processes each time.
func TestSkipsLeaveRoomForFaults(t *testing.T) {
	s := newStand(t)
	rule, err := event.ParseRule("5%:signal=USR2")
	wardentest.NoError(t, err)
	l := &event.Limit{Name: event.LimitUser, Used: 50, Limit: 100}
	for pid := range maxKnown {
		s.Skipped(0, &policy.Skipped{
			Rule: rule, On: l.ID(), Used: l.Used, LimitSize: l.Limit, Reason: event.ReasonNotCaught, Detail: fmt.Sprint("USR2, process ", pid+1),
		}, l)
	}
	if n := s.said.count("signal=USR2 skipped: the process has no handler for this signal (USR2, process 1)"); n != 1 {
		t.Errorf("%q", s.said.all)
	}
	if s.Fault(0, "loader", errors.New("it is broken")); s.said.count("loader: it is broken") != 1 {
		t.Errorf("%q", s.said.all)
	}
	if n := len(s.events()); n != maxKnown+1 || s.Sum.Saved.Skipped() != maxKnown {
		t.Errorf("%d events, %d skipped", n, s.Sum.Saved.Skipped())
	}
}
