package tell

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestEnd: the exit event and the summary of the same end.
func TestEnd(t *testing.T) {
	size := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 500 * rss.MiB, Limit: rss.GiB}
	seven, status, interrupt := 7, 137, 130
	kill := "SIGKILL"
	for name, c := range map[string]struct {
		sum    Summary
		end    Ending
		by     string
		code   *int
		signal *string
		want   event.RunOutcome
		advice bool
	}{
		"by itself":        {end: Ending{Said: true, Code: 7}, by: "command", code: &seven, want: event.RunFailed},
		"by a signal":      {end: Ending{Said: true, Signal: 9}, by: "command", signal: &kill, want: event.RunKilled},
		"by an order":      {end: Ending{Said: true, Code: 130}, by: "command", code: &interrupt, want: event.RunCancelled},
		"well":             {end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"stopped":          {sum: Summary{Stopped: true}, end: Ending{Said: true, Signal: 15, StopStatus: 137}, by: "rsswarden", code: &status, want: event.RunStopped, advice: true},
		"the holder ended": {by: "command", want: event.RunUnknown},
		"others' ended":    {end: Ending{Said: true, Attached: "process 7 has ended"}, by: "command", want: event.RunUnknown},
		"others' runs on":  {end: Ending{Attached: "process 7 runs on"}, by: "detached", want: event.RunRunning},
		"several ranks":    {sum: Summary{Ranks: 2}, end: Ending{Said: true, Node: "n1"}, by: "command", code: new(int), want: event.RunOK, advice: true},
		"hidden processes": {sum: Summary{treeSeen: treeSeen{unread: 3}}, end: Ending{Said: true}, by: "command", code: new(int), want: event.RunOK},
		"in the queue":     {end: Ending{Said: true, Requeued: &Requeued{From: rss.GiB, To: 2 * rss.GiB}}, by: "command", code: new(int), want: event.RunRequeued, advice: true},
	} {
		s, e := c.sum, c.end
		s.Watched, s.nearest, s.looks = true, &size, 2
		e.Took = time.Second
		out, brief := s.End(&e)
		if out.By != c.by || !same(out.Code, c.code) || !same(out.Signal, c.signal) || (out.Next.Size != 0) != c.advice || out.Outcome != c.want {
			t.Errorf("%s: %+v", name, out)
		}
		if brief.Outcome != out.Outcome || brief.Peak == nil || brief.Peak.Used != size.Used {
			t.Errorf("%s: %+v", name, brief)
		}
	}
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
