package tell

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
)

func TestSlowed(t *testing.T) {
	limits := []event.Limit{{Name: event.LimitThrottle, Level: "/c/job_1", Limit: 100 * rss.MiB, LimitSource: "/sys/c/job_1/memory.high"}}
	for want, levels := range map[string][]limit.Kills{
		"": {{Level: "/c/job_1"}},
		"allocations above 100 MiB were slowed down 7 times (limit from job_1/memory.high); nothing is killed for that": {
			{Level: "/c/job_1/step_0"}, {Level: "/c/job_1", High: 7}, {Level: "/c", High: 9},
		},
		"allocations were slowed down once by memory.high of /c": {{Level: "/c/job_1"}, {Level: "/c", High: 1}}, // lifted since
	} {
		if got := slowed(levels, limits); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestEnd: the exit event and the lines of the same end.
func TestEnd(t *testing.T) {
	size := event.Limit{Name: event.LimitUser, Accounting: event.AccountingRSS, Used: 500 * rss.MiB, Limit: rss.GiB}
	seven, status := 7, 137
	kill := "SIGKILL"
	for name, c := range map[string]struct {
		sum    Summary
		end    Ending
		by     string
		code   *int
		signal *string
		want   []string // in its lines
		advice bool
	}{
		"by itself":        {end: Ending{Said: true, Code: 7}, by: "command", code: &seven, want: []string{"exit status 7 after 1 s; peaks of its tree: "}, advice: true},
		"by a signal":      {end: Ending{Said: true, Signal: 9}, by: "command", signal: &kill, want: []string{"killed by SIGKILL", "verdict: killed"}},
		"stopped":          {sum: Summary{Stopped: true}, end: Ending{Said: true, Signal: 15, StopStatus: 137}, by: "rsswarden", code: &status, want: []string{"exit status 137", "verdict: stopped"}, advice: true},
		"the holder ended": {by: "command", want: []string{"rsswarden's holder ended first"}},
		"others' ended":    {end: Ending{Said: true, Attached: "process 7 has ended"}, by: "command", want: []string{"process 7 has ended; peaks"}, advice: true},
		"others' runs on":  {end: Ending{Attached: "process 7 runs on"}, by: "detached", want: []string{"process 7 runs on; peaks"}},
		"several ranks":    {sum: Summary{Ranks: 2}, end: Ending{Said: true, Node: "n1"}, by: "command", code: new(int), want: []string{"the trees of 2 ranks on node n1 together"}, advice: true},
		"hidden processes": {sum: Summary{treeSeen: treeSeen{unread: 3}}, end: Ending{Said: true}, by: "command", code: new(int), want: []string{"no --mem is told: 3 processes or more of its tree could not be read"}},
		"in the queue":     {end: Ending{Said: true, Requeued: &Requeued{From: rss.GiB, To: 2 * rss.GiB}}, by: "command", code: new(int), want: []string{"with 2048 MiB (was 1024)"}, advice: true},
	} {
		s, e := c.sum, c.end
		s.Watched, s.nearest, s.looks = true, &size, 2
		e.Took, e.Rung = time.Second, func(*event.Limit) rss.Bytes { return 900 * rss.MiB }
		out, lines := s.End(&e)
		if out.By != c.by || !same(out.Code, c.code) || !same(out.Signal, c.signal) || (out.Advice != 0) != c.advice {
			t.Errorf("%s: %+v", name, out)
		}
		for _, want := range c.want {
			if all := strings.Join(lines, "\n"); !strings.Contains(all, want) {
				t.Errorf("%s: no %q in\n%s", name, want, all)
			}
		}
	}
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
