package alert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// at is a rung of that name on the limit slurm, at so many percent of 1 GiB.
func at(rung string, percent float64) Alert {
	return Alert{
		Job: "46", Node: "n1", Step: "0", Limit: event.LimitSlurm, Scope: event.ScopeStep, Rung: rung, Action: event.ActionWarn,
		Since: noon, Used: rss.GiB.Scale(percent / 100), Size: rss.GiB, Summary: fmt.Sprintf("memory %.0f %%", percent), Text: "so it is",
	}
}

// stand shows the alerts of a store: "80% firing since 0s".
func stand(b *Store) (all []string) {
	for _, e := range b.sorted() {
		text := fmt.Sprintf("%s %s since %v", e.Rung, Firing, e.Since.Sub(noon))
		if !e.firing() {
			text = fmt.Sprintf("%s %s at %v", e.Rung, Resolved, e.ends.Sub(noon))
		}
		all = append(all, text)
	}
	return all
}

// TestBook: one alert a rung, from its crossing until it was left for a while.
func TestBook(t *testing.T) {
	var out strings.Builder
	for _, c := range []struct {
		name  string
		looks string // when, and the rungs that are crossed then
	}{
		{"crossed and left", "0s 80% | 1h 80% | 1h0m1s | 1h0m30s | 1h0m31s | 1h5m | 1h6m"},
		{"crossed again and again", "0s 80% | 10s | 35s 80% | 40s | 69s | 70s | 80s 80%"},
		{"two rungs", "0s 80% | 1m 80% 90% | 2m 80% | 3m 80%"},
	} {
		b := NewStore()
		fmt.Fprintf(&out, "%s\n", c.name)
		for look := range strings.SplitSeq(c.looks, "|") {
			words := strings.Fields(look)
			after, err := time.ParseDuration(words[0])
			wardentest.NoError(t, err)
			var current []Alert
			for _, rung := range words[1:] {
				a := at(rung, 85)
				a.Since = noon.Add(after)
				current = append(current, a)
			}
			b.Set(noon.Add(after), current)
			fmt.Fprintf(&out, "\tat %v crossed %q: %q\n", after, words[1:], stand(b))
		}
	}
	golden.Check(t, "testdata/book.txt", out.String())
}

// TestBookSameLabels: of two limits with equal labels the fuller is sent, and a limit that
// is no longer read keeps its last numbers.
func TestBookSameLabels(t *testing.T) {
	b := NewStore()
	b.Set(noon, []Alert{at("80%", 81), at("80%", 95), at("80%", 90)})
	if got := b.sorted(); len(got) != 1 || got[0].Summary != "memory 95 %" {
		t.Errorf("%d alerts, %q", len(got), got[0].Summary)
	}
	before := b.changes
	unread := at("80%", 0)
	unread.Size, unread.Summary = 0, ""
	b.Set(noon.Add(time.Second), []Alert{unread})
	if got := b.sorted()[0]; got.Summary != "memory 95 %" || b.changes != before {
		t.Errorf("%q after %d changes", got.Summary, b.changes-before)
	}
}

// TestBookBound: what there is no room for is counted, and the resolved go first.
func TestBookBound(t *testing.T) {
	b := NewStore()
	var many []Alert
	for i := range mostAlerts + 5 {
		many = append(many, at(fmt.Sprintf("%d%%", i), 99))
	}
	b.Set(noon, many)
	b.Set(noon, many)
	if len(b.entries) != mostAlerts || len(b.dropped) != 5 {
		t.Errorf("%d alerts and %d dropped", len(b.entries), len(b.dropped))
	}
	b.End(noon.Add(time.Second))
	b.Set(noon.Add(2*time.Second), []Alert{at("new", 99)})
	if len(b.entries) != mostAlerts || b.Firing() != 1 {
		t.Errorf("%d alerts, %d of them fire", len(b.entries), b.Firing())
	}
}

// TestLabels: what is no label changes no ID, and each limit has its alert.
func TestLabels(t *testing.T) {
	a := at("80%", 91)
	other := a
	other.Used, other.Since, other.Summary = 1, noon.Add(time.Hour), "x"
	if a.ID() != other.ID() {
		t.Error("the ID follows what is no label")
	}
	other.Action = event.ActionStop
	if other.Severity() != SeverityCritical || a.ID() == other.ID() {
		t.Errorf("a stop is %s", other.Severity())
	}
	for _, l := range event.Limits {
		a := Alert{Limit: l}
		if l.Memory() && l != event.LimitThrottle != strings.HasPrefix(a.Name(), "RsswardenMemoryNearLimit") {
			t.Errorf("%s: %s", l, a.Name())
		}
	}
	if a := (Alert{Limit: event.LimitCgroup, ETA: true}); a.Name() != "RsswardenMemoryFullSoon" {
		t.Error(a.Name())
	}
}

// TestForms: what goes over the wire.
func TestForms(t *testing.T) {
	var out strings.Builder
	b, now := NewStore(), noon.Add(time.Minute)
	write := func(what string, body json.RawMessage, err error) {
		wardentest.NoError(t, err)
		fmt.Fprintf(&out, "%s:\n%s\n", what, body)
	}
	manager := func(what string, heard bool) {
		body, err := managerBody(b.sorted(), now, holds, func(string) bool { return heard })
		write(what, body, err)
	}
	hook := func(what string) {
		body, err := hookBody(b.sorted()[0])
		write(what, body, err)
	}
	eta := 252.0
	a := at("80%", 50)
	a.Left = &eta
	b.Set(noon, []Alert{a})
	manager("firing", true)
	hook("a webhook")
	b.End(noon) // at once: Alertmanager wants an end behind the start
	manager("resolved", true)
	manager("resolved before it was heard of", false)
	hook("a webhook, resolved")
	count := at("80%", 50)
	count.Limit, count.Used, count.Size = event.LimitFDs, 900, 1024
	b = NewStore()
	b.Set(noon, []Alert{count})
	hook("a number")
	golden.Check(t, "testdata/forms.txt", out.String())
}

// TestSenderHeld: nothing is started where there is no memory for it, and at once when
// there is.
func TestSenderHeld(t *testing.T) {
	sending(t, []string{well}, func(t *testing.T, n *network, s *Sender) {
		s.SetHeadroom(None)
		s.Set([]Alert{at("97%", 98)})
		time.Sleep(time.Hour)
		if r := s.Receivers()[0]; n.count(well) != 0 || !r.Held || r.Untold != 1 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.SetHeadroom(Plenty)
		time.Sleep(time.Second)
		if r := s.Receivers()[0]; n.count(well) != 1 || r.Held || r.Untold != 0 {
			t.Errorf("told %d times: %+v", n.count(well), r)
		}
		s.SetHeadroom(None)
		s.Close(true)() // what held the memory has ended
		if n.count("last "+well) != 1 {
			t.Error("not told at the end")
		}
	})
}

// TestSenderTellsAheadOfNoRoom: what was sent to Alertmanager last before memory ran short
// lasts, however old the rest; and its resolution is sent.
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
		s.SetHeadroom(Near)
		time.Sleep(2 * time.Second)
		if n.count(well) != 2 {
			t.Fatalf("told %d times when it was near", n.count(well))
		}
		s.SetHeadroom(None)
		time.Sleep(50 * time.Minute)
		if left := time.Until(ends()); n.count(well) != 2 || left < 0 {
			t.Errorf("told %d times, over for %v", n.count(well), -left)
		}
		s.SetHeadroom(Plenty)
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
// a small job is reported at 80 % all the same.
func TestAlertsNeedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		limit event.Limit
		want  Headroom
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
		if got := HeadroomOf([]event.Limit{test.limit}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
