package alert

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSenderInherits: what was left open is resolved in its time, and what fires still is
// told of once more.
func TestSenderInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		first, next := n.sender(well), n.sender(well)
		first.Set([]Alert{at("80%", 91), at("90%", 91)})
		time.Sleep(time.Second)
		first.Set([]Alert{at("80%", 85)})
		first.Close(false)
		open := first.Open()
		if len(open) != 2 {
			t.Fatalf("%d are open", len(open))
		}
		next.Inherit(open)
		next.Set([]Alert{at("80%", 85)})
		time.Sleep(time.Second)
		again := n.requests(well)[1:]
		if len(again) != 1 || len(again[0].Bodies) != 1 || !strings.Contains(string(again[0].Bodies[0]), `"rung":"80%"`) {
			t.Errorf("told again: %s", again)
		}
		time.Sleep(keepFiring)
		rest := n.requests(well)[2:]
		if len(rest) != 1 || len(rest[0].Bodies) != 1 || !strings.Contains(string(rest[0].Bodies[0]), `"status":"resolved"`) || !strings.Contains(string(rest[0].Bodies[0]), `"rung":"90%"`) {
			t.Errorf("told then: %s", rest)
		}
		if open := next.Open(); len(open) != 1 || open[0].Rung != "80%" {
			t.Errorf("%d are open", len(open))
		}
		next.Close(false)
		synctest.Wait()
	})
}

// TestSenderUntoldIsOpen: what nobody has heard the end of is left to who is next.
func TestSenderUntoldIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well, down)
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Minute)
		if open := s.Open(); len(open) != 1 {
			t.Errorf("%d are open", len(open))
		}
		s.Close(false)
		synctest.Wait()
	})
}
