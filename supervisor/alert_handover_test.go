package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestAlertsOfTheNextLeader: they have the same labels, so that Alertmanager sees no
// difference; and one that ends as well resolves them.
func TestAlertsOfTheNextLeader(t *testing.T) {
	dir := runtimeDir(t)
	place, with := telling(t, alert.Webhook)
	rules := func(o *Options) { o.Settings.Rules = mustRules("80%:warn", "95%:stop") }
	named := func(name string) func(*Options) { return func(o *Options) { o.Settings.RunID = name } }
	first := leading(t, inJob(t, 0, dir), with, rules, named("first"))
	var rest []*stand
	for task := 1; task <= 2; task++ {
		s := newStand(t, inJob(t, task, dir), with, rules, named(fmt.Sprint("rank ", task)))
		s.holder.begin.Holder = theHolder + 500*task
		rest = append(rest, s)
	}
	all := append([]*stand{first}, rest...)
	for _, s := range all {
		for task := range all {
			s.fs.Put(rsstest.Process{PID: theHolder + 500*task, Parent: 1, Start: 4, Comm: "rsswarden"})
		}
	}
	for _, s := range rest {
		if s.join(s.holder.begin); s.node.Leads() {
			t.Fatal("two lead")
		}
		s.put(theCommand, s.holder.begin.Holder, 850*rss.MiB, 0)
	}
	first.put(theCommand, theHolder, 850*rss.MiB, 0)
	first.open(first.holder.begin)
	if m := carried(t, place, 1)[0]; m.Job != "46" {
		t.Fatalf("%+v", m)
	}
	want := first.tell.Alerts.OpenIDs()
	next, last := rest[0], rest[1]
	first.tell.Alerts.Close(false) // others live
	next.inherits(first)
	if got := next.tell.Alerts.OpenIDs(); got != want {
		t.Errorf("the next leader has %v, the first had %v", got, want)
	}
	if m := carried(t, place, 2); m[0].ID != m[1].ID || m[0].Status != alert.Firing || m[1].Status != alert.Firing {
		t.Errorf("%+v", m)
	}
	next.tell.Alerts.Close(false)
	next.pass(&hold.Exit{})
	last.isGivenTheLead()
	last.end(&hold.Exit{})
	m := carried(t, place, 3)
	i := slices.IndexFunc(m, func(m alert.Message) bool { return m.Status == alert.Resolved })
	if len(m) != 3 || i < 0 || m[i].ID != m[(i+1)%3].ID {
		t.Errorf("%+v", m)
	}
}

// TestAlertLeftBeforeTheKill: what was told, and whose rung was left, is the next
// leader's to resolve.
func TestAlertLeftBeforeTheKill(t *testing.T) {
	place, with := telling(t, alert.Webhook)
	first, next := leadAndFollow(t, runtimeDir(t), with, func(o *Options) { o.Settings.Rules = mustRules("80%:warn") })
	first.put(theCommand, theHolder, 850*rss.MiB, 0)
	next.put(theCommand, theHolder+500, 100*rss.MiB, 0)
	first.open(first.holder.begin)
	told := carried(t, place, 1)[0]
	first.put(theCommand, theHolder, 100*rss.MiB, 0)
	first.later(time.Second)
	first.full()
	if raised := first.acts.Ladder.Raised(first.view.Limits); len(raised) != 0 {
		t.Fatalf("%v", raised)
	}
	first.tell.Alerts.Close(false) // it is killed
	next.inherits(first)
	if got := next.status().Alerts; len(got) != 1 || got[0].Firing != 1 {
		t.Errorf("the next leader knows of %+v", got)
	}
	next.end(&hold.Exit{})
	all := carried(t, place, 2)
	if i := slices.IndexFunc(all, func(m alert.Message) bool { return m.Status == alert.Resolved }); len(all) != 2 || i < 0 || all[i].ID != told.ID {
		t.Errorf("%+v", all)
	}
}

// TestAlertsOfTwoRuns: of two that watch the same job on the same node, with options of
// their own, the end of one resolves nothing that the other tells.
func TestAlertsOfTwoRuns(t *testing.T) {
	place, with := telling(t, alert.Webhook)
	var runs []*stand
	for i, rules := range [][]string{{"80%:warn"}, {"80%:warn", "99%:stop"}} {
		s := leading(t, inJob(t, 0, runtimeDir(t)), with, func(o *Options) {
			o.Settings.Rules, o.Settings.RunID = mustRules(rules...), fmt.Sprint("run ", i)
		})
		s.put(theCommand, theHolder, 850*rss.MiB, 0)
		s.open(s.holder.begin)
		runs = append(runs, s)
	}
	carried(t, place, 2)
	runs[0].end(&hold.Exit{})
	stays := runs[1].tell.Alerts.OpenIDs()
	if stays == "" || strings.Contains(stays, " ") {
		t.Fatalf("not one alert: %q", stays)
	}
	for _, m := range carried(t, place, 3) {
		if m.Job != "46" || m.Run == "" {
			t.Errorf("%+v", m)
		}
		if m.Status == alert.Resolved && m.ID == stays {
			t.Error("the end of one has resolved the other's")
		}
	}
}
