package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// telling has the alerts of a stand carried by a program that keeps each request as a
// file, and returns where.
func telling(t *testing.T, kind alert.Kind) (dir string, change func(*Options)) {
	t.Helper()
	dir = t.TempDir()
	program := filepath.Join(dir, "carry")
	script := "#!/bin/sh\ncat > " + dir + "/$$.new && mv " + dir + "/$$.new " + dir + "/$$.json\necho '{\"taken\":99}'\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func(o *Options) {
		o.Settings.AlertProgram, o.Settings.AlertToken = program, "t0ken"
		o.Settings.Alerts = []alert.Target{{Kind: kind, URL: "http://me:s3cret@h/x?y"}}
	}
}

// carried waits until so many messages were carried and returns all, by their start.
func carried(t *testing.T, dir string, n int) (all []alert.Message) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		all = nil
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var r alert.Request
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			if r.Token != "" {
				t.Error("what has a user of its own got the token")
			}
			for _, body := range r.Bodies {
				var m alert.Message
				if err := json.Unmarshal(body, &m); err != nil {
					t.Fatal(err)
				}
				all = append(all, m)
			}
		}
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d messages, want %d", len(all), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func both(changes ...func(*Options)) func(*Options) {
	return func(o *Options) {
		for _, c := range changes {
			c(o)
		}
	}
}

// TestAlerts: a rung that is crossed is told of, and that it is over when the command
// has ended.
func TestAlerts(t *testing.T) {
	dir, with := telling(t, alert.Webhook)
	s := opened(t, with)
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	m := carried(t, dir, 1)[0]
	if m.Status != alert.Firing || m.Alert != "RsswardenMemoryNearLimit" || m.Limit != event.LimitUser || m.Rung != "80%" || m.Action != event.ActionWarn ||
		*m.UsedBytes != uint64(850*rss.MiB) || *m.LimitBytes != uint64(1000*rss.MiB) || !strings.Contains(m.Text, "memory 85 % of 1000 MiB (our own rules act on summed RSS") {
		t.Errorf("%+v", m)
	}
	deadline := time.Now().Add(time.Minute)
	for s.standing().Alerts[0].Sent == 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := s.standing().Alerts; len(got) != 1 || got[0].Firing != 1 || got[0].Receiver != "webhook+http://h/…" || got[0].SentAt == nil {
		t.Errorf("status: %+v", got)
	}
	s.end(&hold.Exit{})
	all := carried(t, dir, 2)
	i := slices.IndexFunc(all, func(m alert.Message) bool { return m.Status == alert.Resolved })
	if i < 0 || all[i].ID != m.ID || all[i].EndsAt == nil {
		t.Errorf("at the end: %+v", all)
	}
	b, err := os.ReadFile(s.Settings.Events)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cret", "t0ken"} {
		if strings.Contains(string(b), secret) || strings.Contains(s.stderr(), secret) {
			t.Errorf("%s was told", secret)
		}
	}
}

// TestAlertFault: what is wrong is told of as a fault, once.
func TestAlertFault(t *testing.T) {
	_, with := telling(t, alert.Webhook)
	s := opened(t, both(with, func(o *Options) { o.Settings.AlertProgram = "/nonexistent" }))
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	select {
	case text := <-s.alerts.sender.Faults():
		s.fault("alert", &said{text})
		s.fault("alert", &said{text})
	case <-time.After(time.Minute):
		t.Fatal("no fault")
	}
	s.end(&hold.Exit{})
	got := slices.DeleteFunc(named(s.events(), event.NameFault), func(e map[string]any) bool { return e["part"] != "alert" })
	if len(got) != 1 || !strings.Contains(fmt.Sprint(got[0]["error"]), "webhook+http://h/…: cannot start /nonexistent") {
		t.Errorf("%v", got)
	}
}

// TestAlertDryRun: what would be told is said, once a crossing, and nothing starts.
func TestAlertDryRun(t *testing.T) {
	dir, with := telling(t, alert.Alertmanager)
	s := opened(t, both(with, func(o *Options) { o.Settings.DryRun = true }))
	s.put(theCommand, theHolder, 850*rss.MiB, 0)
	s.full()
	s.full()
	s.end(&hold.Exit{})
	const want = "would tell alertmanager+http://h/x: RsswardenMemoryNearLimit fires (warning), run "
	if n := strings.Count(s.stderr(), want); n != 1 || !strings.Contains(s.stderr(), "(dry run)") {
		t.Errorf("said %d times:\n%s", n, s.stderr())
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(files) != 0 {
		t.Errorf("carried: %v", files)
	}
}

// alertIDs are the alerts of a watcher.
func (s *stand) alertIDs() (all []string) {
	for _, r := range s.ladder.Raised(s.readings) {
		a := s.alertOf(&r)
		all = append(all, fmt.Sprint(a.Labels()))
	}
	return all
}

// TestAlertsOfTheNextLeader: they have the same labels, so that Alertmanager sees no
// difference; and one that ends as well resolves them.
func TestAlertsOfTheNextLeader(t *testing.T) {
	dir := runtimeDir(t)
	place, with := telling(t, alert.Webhook)
	with = both(with, func(o *Options) { o.Settings.Rules = []string{"80%:warn", "95%:stop"} })
	named := func(name string) func(*Options) { return func(o *Options) { o.Settings.RunID = name } }
	first := leading(t, inJob(t, 0, dir), both(with, named("first")))
	var rest []*stand
	for task := 1; task <= 2; task++ {
		s := newStand(t, both(inJob(t, task, dir), with, named(fmt.Sprint("rank ", task))))
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
		if s.join(s.holder.begin) {
			t.Fatal("two lead")
		}
		s.put(theCommand, s.holder.begin.Holder, 850*rss.MiB, 0)
	}
	first.put(theCommand, theHolder, 850*rss.MiB, 0)
	first.open(first.holder.begin)
	want := first.alertIDs()
	if len(want) != 1 || !strings.Contains(want[0], "[jobid 46]") {
		t.Fatalf("%v", want)
	}
	carried(t, place, 1)
	next, last := rest[0], rest[1]
	first.endAlerts(false) // others live
	next.inherits(first)
	if got := next.alertIDs(); !slices.Equal(got, want) {
		t.Errorf("the next leader tells of %v, the first has told of %v", got, want)
	}
	if m := carried(t, place, 2); m[0].ID != m[1].ID || m[0].Status != alert.Firing || m[1].Status != alert.Firing {
		t.Errorf("%+v", m)
	}
	next.endAlerts(false)
	next.pass(&hold.Exit{})
	if err := last.peers.post.Wait(); err != nil {
		t.Fatal(err)
	}
	last.peers.heir = true
	last.endStandBy(&hold.Exit{})
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
	first, next := leadAndFollow(t, runtimeDir(t), both(with, func(o *Options) { o.Settings.Rules = []string{"80%:warn"} }))
	first.put(theCommand, theHolder, 850*rss.MiB, 0)
	next.put(theCommand, theHolder+500, 100*rss.MiB, 0)
	first.open(first.holder.begin)
	told := carried(t, place, 1)[0]
	first.put(theCommand, theHolder, 100*rss.MiB, 0)
	first.later(time.Second)
	first.full()
	if raised := first.ladder.Raised(first.readings); len(raised) != 0 {
		t.Fatalf("%v", raised)
	}
	first.endAlerts(false) // it is killed
	next.inherits(first)
	if got := next.standing().Alerts; len(got) != 1 || got[0].Firing != 1 {
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
		s := leading(t, inJob(t, 0, runtimeDir(t)), both(with, func(o *Options) {
			o.Settings.Rules, o.Settings.RunID = rules, fmt.Sprint("run ", i)
		}))
		s.put(theCommand, theHolder, 850*rss.MiB, 0)
		s.open(s.holder.begin)
		runs = append(runs, s)
	}
	carried(t, place, 2)
	runs[0].end(&hold.Exit{})
	stays := runs[1].ladder.Raised(runs[1].readings)
	if len(stays) != 1 {
		t.Fatalf("%d rungs", len(stays))
	}
	a := runs[1].alertOf(&stays[0])
	for _, m := range carried(t, place, 3) {
		if m.Job != "46" || m.Run == "" {
			t.Errorf("%+v", m)
		}
		if m.Status == alert.Resolved && m.ID == a.ID() {
			t.Error("the end of one has resolved the other's")
		}
	}
}

// TestAlertsNeedRoom: no process is started where it might be what ends the job, and
// a small job is told of at 80 % all the same.
func TestAlertsNeedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		limit event.Limit
		want  alert.Room
	}{
		"room":             {event.Limit{Name: event.LimitCgroup, Used: 70 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"little":           {event.Limit{Name: event.LimitCgroup, Used: 94 * rss.MiB, Limit: 100 * rss.MiB}, alert.Near},
		"none":             {event.Limit{Name: event.LimitCgroup, Used: 95 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"a small job":      {event.Limit{Name: event.LimitCgroup, Used: 40 * rss.MiB, Limit: 50 * rss.MiB}, alert.Near},
		"… of Slurm":       {event.Limit{Name: event.LimitSlurm, Used: 96 * rss.MiB, Limit: 120 * rss.MiB}, alert.Near},
		"a large job":      {event.Limit{Name: event.LimitCgroup, Used: 80 * rss.GiB, Limit: 100 * rss.GiB}, alert.Near},
		"none for certain": {event.Limit{Name: event.LimitSlurm, Used: 50 * rss.MiB, UsedMax: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"above":            {event.Limit{Name: event.LimitSlurm, Used: 200 * rss.MiB, Limit: 100 * rss.MiB}, alert.None},
		"tasks":            {event.Limit{Name: event.LimitTasks, Used: 384, Limit: 512}, alert.Plenty},
		"few tasks":        {event.Limit{Name: event.LimitTasks, Used: 490, Limit: 512}, alert.Near},
		"the last tasks":   {event.Limit{Name: event.LimitTasks, Used: 497, Limit: 512}, alert.None},
		"not counted":      {event.Limit{Name: event.LimitUser, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"does not kill":    {event.Limit{Name: event.LimitThrottle, Used: 99 * rss.MiB, Limit: 100 * rss.MiB}, alert.Plenty},
		"not read":         {event.Limit{Name: event.LimitCgroup}, alert.Plenty},
	} {
		w := &watcher{readings: []event.Limit{test.limit}}
		if got := w.alertRoom(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLastWordsOnAlerts: alerts are counted, not what became of them on the way, and what
// nobody waited for is not called told or lost.
func TestLastWordsOnAlerts(t *testing.T) {
	to := alert.Target{Kind: alert.Webhook, URL: "https://h/x"}
	for name, test := range map[string]struct {
		is   alert.Standing
		want string
	}{
		"all well":             {alert.Standing{Counts: alert.Counts{Sent: 9, Overtaken: 3}, Error: "an old one"}, ""},
		"it was slow":          {alert.Standing{Untold: 2, Asked: true}, "alert: webhook+https://h/… was told at the end how 2 alerts stood; whether it took that is not known"},
		"it has failed":        {alert.Standing{Untold: 1, Asked: true, Failing: true, Error: "connection refused", Counts: alert.Counts{Failed: 7, Lost: 5}}, "alert: webhook+https://h/… was told at the end how 1 alert stood, and was not waited for; it failed before: connection refused"},
		"it said no":           {alert.Standing{Untold: 1, Failing: true, Error: "HTTP status 403"}, "alert: webhook+https://h/… was not told how 1 alert stood at the end: HTTP status 403"},
		"it was away for long": {alert.Standing{Missed: 2, Error: "connection refused"}, "alert: webhook+https://h/… was not told of the end of 2 earlier alerts in time: connection refused"},
	} {
		test.is.Target = to
		if got := strings.Join(lastWordsOf(&test.is), "\n"); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestAlertStep: an alert names the step that its limit is of.
func TestAlertStep(t *testing.T) {
	w := &watcher{alerts: alerting{step: "7"}}
	for _, test := range []struct {
		name  event.LimitName
		scope event.Scope
		level string
		want  string
	}{
		{event.LimitSlurm, event.ScopeStep, "", "7"},
		{event.LimitSlurm, event.ScopeStep, "46.batch", "batch"},
		{event.LimitSlurm, event.ScopeJob, "", ""},
		{event.LimitCgroup, event.ScopeStep, "/sys/fs/cgroup/memory/slurm/uid_1/job_46/step_0/task_0", "0"},
		{event.LimitCgroup, event.ScopeJob, "/sys/fs/cgroup/memory/slurm/uid_1/job_46", ""},
		{event.LimitUser, event.ScopeTree, "", "7"},
		{event.LimitMaps, event.ScopeProcess, "", "7"},
		{event.LimitNode, event.ScopeNode, "", ""},
		{event.LimitTime, event.ScopeJob, "", ""},
	} {
		if got := w.alertStep(&policy.Raised{Name: test.name, Scope: test.scope, Level: test.level}); got != test.want {
			t.Errorf("%s of %s at %q: step %q, want %q", test.name, test.scope, test.level, got, test.want)
		}
	}
}
