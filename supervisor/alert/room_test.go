package alert

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// TestSenderHeld: nothing is started where there is no memory for it, and at once when
// there is.
func TestSenderHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.sender(well)
		s.Room(None)
		s.Set([]Alert{at("97%", 98)})
		time.Sleep(time.Hour)
		if r := s.Standing()[0]; n.count(well) != 0 || !r.Held || r.Untold != 1 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.Room(Plenty)
		time.Sleep(time.Second)
		if r := s.Standing()[0]; n.count(well) != 1 || r.Held || r.Untold != 0 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.Room(None)
		s.Close(true)() // what held the memory has ended
		if n.count("last "+well) != 1 {
			t.Error("not told at the end")
		}
		synctest.Wait()
	})
}

// TestSenderTellsAheadOfNoRoom: what Alertmanager was told last before there was no
// room lasts, however long ago it was told the rest; and it is told that it is over.
func TestSenderTellsAheadOfNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := New(Options{Targets: []Target{{Kind: Alertmanager, URL: well}}, Send: n.send, Leave: n.leave})
		ends := func() time.Time {
			var all []postable
			r := n.requests(well)
			if err := json.Unmarshal(r[len(r)-1].Bodies[0], &all); err != nil || len(all) != 1 {
				t.Fatalf("%d alerts, %v", len(all), err)
			}
			return all[0].EndsAt
		}
		a := at("80%", 81)
		a.Since = time.Now()
		s.Set([]Alert{a})
		time.Sleep(2 * time.Second)
		if left := time.Until(ends()); n.count(well) != 1 || left > holds {
			t.Fatalf("told %d times, the last lasts for %v", n.count(well), left)
		}
		s.Room(Near)
		time.Sleep(2 * time.Second)
		if n.count(well) != 2 {
			t.Fatalf("told %d times when it was near", n.count(well))
		}
		s.Room(None)
		time.Sleep(50 * time.Minute)
		if left := time.Until(ends()); n.count(well) != 2 || left < 0 {
			t.Errorf("told %d times, over for %v", n.count(well), -left)
		}
		s.Room(Plenty)
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Second)
		if left := time.Until(ends()); left > 0 {
			t.Errorf("the rung was left, and it fires for %v more", left)
		}
		s.Close(false)
		synctest.Wait()
	})
}
