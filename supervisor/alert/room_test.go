package alert

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
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

// TestAlertsNeedRoom: no process is started where it might be what ends the job, and
// a small job is told of at 80 % all the same.
func TestAlertsNeedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		limit event.Limit
		want  Room
	}{
		"room":             {event.Limit{Name: event.LimitCgroup, Used: 70 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"little":           {event.Limit{Name: event.LimitCgroup, Used: 94 * rss.MiB, Limit: 100 * rss.MiB}, Near},
		"none":             {event.Limit{Name: event.LimitCgroup, Used: 95 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"a small job":      {event.Limit{Name: event.LimitCgroup, Used: 40 * rss.MiB, Limit: 50 * rss.MiB}, Near},
		"… of Slurm":       {event.Limit{Name: event.LimitSlurm, Used: 96 * rss.MiB, Limit: 120 * rss.MiB}, Near},
		"a large job":      {event.Limit{Name: event.LimitCgroup, Used: 80 * rss.GiB, Limit: 100 * rss.GiB}, Near},
		"none for certain": {event.Limit{Name: event.LimitSlurm, Used: 50 * rss.MiB, UsedMax: 99 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"above":            {event.Limit{Name: event.LimitSlurm, Used: 200 * rss.MiB, Limit: 100 * rss.MiB}, None},
		"tasks":            {event.Limit{Name: event.LimitTasks, Used: 384, Limit: 512}, Plenty},
		"few tasks":        {event.Limit{Name: event.LimitTasks, Used: 490, Limit: 512}, Near},
		"the last tasks":   {event.Limit{Name: event.LimitTasks, Used: 497, Limit: 512}, None},
		"not counted":      {event.Limit{Name: event.LimitUser, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"does not kill":    {event.Limit{Name: event.LimitThrottle, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, Plenty},
		"not read":         {event.Limit{Name: event.LimitCgroup}, Plenty},
	} {
		if got := RoomOf([]event.Limit{test.limit}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
