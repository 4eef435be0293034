package tell

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/alert"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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

// TestAlertsDryRun: a line for each crossing, and none while it lasts.
func TestAlertsDryRun(t *testing.T) {
	s := newStand(t)
	s.Alerts.DryRun([]alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}})
	a := alert.Alert{Run: "7", Node: "n1", Limit: event.LimitUser, Rung: "80%", Summary: "memory 85 %"}
	for i, current := range [][]alert.Alert{{a}, {a}, nil, {a}} {
		s.Raise(time.Duration(i)*time.Minute, current, alert.Plenty)
	}
	if n := s.said.count("would tell webhook+https://h/…: "); n != 2 || len(s.said.all) != 2 {
		t.Errorf("%q", s.said.all)
	}
	s.Alerts.Close(true)
	if s.LastAlerts(); len(s.Alerts.Open()) != 0 || s.Alerts.Standing() != nil {
		t.Error("a dry run has receivers")
	}
}

// TestAlertFailure: a receiver that begins to fail is told as a fault.
func TestAlertFailure(t *testing.T) {
	s := newStand(t)
	fail := func(context.Context, alert.Request) alert.Answer { return alert.Answer{Error: "connection refused"} }
	leave := func(alert.Request) <-chan alert.Answer { return nil }
	s.OpenAlerts(alert.Options{Targets: []alert.Target{{Kind: alert.Webhook, URL: "https://h/x"}}, Send: fail, Leave: leave}, nil)
	s.Raise(0, []alert.Alert{{Run: "7", Limit: event.LimitUser, Rung: "80%"}}, alert.Plenty)
	select {
	case e := <-s.Failures():
		s.Failed(0, e)
	case <-time.After(time.Minute):
		t.Fatal("no failure")
	}
	s.Alerts.Close(false)
	if n := s.said.count("alert: webhook+https://h/…: connection refused"); n != 1 {
		t.Errorf("%q", s.said.all)
	}
}
