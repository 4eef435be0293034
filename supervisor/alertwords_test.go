package supervisor

import (
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/alert"
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
