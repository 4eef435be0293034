package tell

import (
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

func TestPeaks(t *testing.T) {
	var s Summary
	known := rss.Proc{ID: rss.ProcID{PID: 1, Start: 1}, RSS: 120, Anon: 100, File: 20}
	known.PSS = &rss.PSS{PSS: 110, RSS: 120}
	unknown := rss.Proc{ID: rss.ProcID{PID: 2, Start: 1}, RSS: 50, Anon: 50}
	s.Peak(&rss.Sample{Procs: []rss.Proc{known, unknown}}, nil, nil)
	if *s.peaks.RSS != 170 || *s.peaks.NoShared != 150 || s.peaks.PSS != nil || s.peaks.Cgroup != nil {
		t.Errorf("peaks %+v; the PSS of one process is not known", s.peaks)
	}
	s.Peak(&rss.Sample{Procs: []rss.Proc{known}}, nil, nil)
	if *s.peaks.RSS != 170 || s.peaks.PSS == nil || *s.peaks.PSS != 110 {
		t.Errorf("peaks %+v", s.peaks)
	}
	s.Peak(&rss.Sample{}, nil, nil) // the command has ended
	if *s.peaks.RSS != 170 {
		t.Errorf("peaks %+v", s.peaks)
	}
}

// TestCgroupPeakIsTheJobsOwn: others' jobs count in the levels above.
func TestCgroupPeakIsTheJobsOwn(t *testing.T) {
	var s Summary
	s.Peak(&rss.Sample{}, []event.Limit{
		{Name: event.LimitCgroup, Level: "/user.slice", Used: 900, Limit: 1000},
		{Name: event.LimitCgroup, Level: "/user.slice/job/step", Used: 100, Limit: 500},
		{Name: event.LimitNode, Used: 999, Limit: 1000},
	}, nil)
	if *s.peaks.Cgroup != 100 {
		t.Errorf("peak %d, want the innermost level's 100", *s.peaks.Cgroup)
	}
	if s.nearest.Level != "/user.slice" {
		t.Errorf("nearest %+v, want the fullest that can end the job", s.nearest)
	}
}

// TestNodeIsTold: the node's memory is told of where it is the limit there is, or was
// nearer than the job's own.
func TestNodeIsTold(t *testing.T) {
	at := func(name event.LimitName, used rss.Bytes) event.Limit {
		return event.Limit{Name: name, Used: used * rss.MiB, Limit: 1000 * rss.MiB, Enforcer: "kernel OOM killer of the node", LimitSource: "meminfo: MemTotal"}
	}
	for _, c := range []struct {
		limits [][]event.Limit
		want   []string
	}{
		{nil, nil},
		{[][]event.Limit{{at(event.LimitNode, 60)}, {at(event.LimitNode, 50)}}, []string{"nearest limit: node at 60.0 MiB, 6 % of 1000 MiB "}},
		{[][]event.Limit{{at(event.LimitNode, 600), at(event.LimitUser, 100)}}, []string{"nearest limit: user at 100 MiB"}},
		{[][]event.Limit{{at(event.LimitNode, 900), at(event.LimitUser, 100)}}, []string{"nearest limit: user at 100 MiB", "nearer still: node at 900 MiB, 90 % of 1000 MiB "}},
		{[][]event.Limit{{at(event.LimitUser, 0)}}, []string{"nearest limit: user, no use was seen of its 1000 MiB ("}},
		{[][]event.Limit{{at(event.LimitNode, 900), at(event.LimitUser, 950)}}, []string{"nearest limit: user at 950 MiB"}},
	} {
		var s Summary
		for _, l := range c.limits {
			s.Peak(&rss.Sample{}, l, nil)
		}
		lines := s.nearestLines()
		if len(lines) != len(c.want) {
			t.Fatalf("%q, want %q", lines, c.want)
		}
		for i, want := range c.want {
			if !strings.HasPrefix(lines[i], want) || strings.Contains(want, "node") != strings.HasSuffix(lines[i], ", all that runs there together") {
				t.Errorf("%q, want %q", lines[i], want)
			}
		}
	}
}

func TestDeeds(t *testing.T) {
	for _, test := range []struct {
		n    Done
		want string
	}{
		{Done{}, ""},
		{Done{Trims: 1, Failed: 1, Freed: rss.GiB}, "done: trimmed once, 1 action did not work; freed 1.00 GiB in all"},
		{Done{Collected: 2, Asked: 1, Ran: 3}, "done: collected garbage 2 times, asked by a signal once, ran 3 commands of exec="},
		{Done{Recycles: 2, Forked: 2, Freed: rss.GiB, Paused: 14 * time.Millisecond},
			"done: recycled 2 workers; freed 1.00 GiB in all, trainer paused 14 ms in all; data order kept, random draws inside replaced workers changed"},
		{Done{BudgetTrims: 12, Budget: 200 * rss.MiB, BudgetFreed: 2 * rss.GiB},
			"done: workers trimmed themselves 12 times to keep to 200 MiB of mapped file pages each (2.00 GiB given back in all)"},
		{Done{BudgetTrims: 12, BudgetTold: 300 * rss.MiB, Budget: 200 * rss.MiB, BudgetFreed: 2 * rss.GiB},
			"done: workers trimmed themselves 12 times to keep to 200 MiB of mapped file pages each (2.00 GiB given back in all; at first it was 300 MiB)"},
	} {
		if got := test.n.line(); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}

func TestActed(t *testing.T) {
	var n Done
	n.Add(&event.Decision{Action: event.ActionTrim}, &event.Outcome{OK: true, Freed: 10})
	n.Add(&event.Decision{Action: event.ActionTrim}, &event.Outcome{OK: true}) // helped nothing
	n.Add(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{OK: true, Freed: 5, Paused: 0.5})
	n.Add(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{Reason: event.ReasonTimeout})
	n.Add(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{Reason: event.ReasonDryRun})
	n.Add(&event.Decision{Action: event.ActionRecycle}, &event.Outcome{Reason: event.ReasonVanished}) // the command ended first
	n.Add(&event.Decision{Action: event.ActionStop}, &event.Outcome{OK: true, Freed: 100})
	asked := event.Decision{Action: event.ActionTrim, Rule: event.AskedFor, Used: 50, LimitSize: 100}
	n.Add(&asked, &event.Outcome{OK: true, Freed: 1}) // there was room
	asked.Used = 90
	n.Add(&asked, &event.Outcome{OK: true, Freed: 1})
	if n.Trims != 4 || n.Recycles != 1 || n.Failed != 1 || n.Helped != 3 || n.Freed != 17 || n.Paused != 500*time.Millisecond {
		t.Errorf("%+v", n)
	}
}

func TestPeaksOfWhatWasTooShort(t *testing.T) {
	if got := peaks(&event.Peaks{}); got != "not seen, it was too short" {
		t.Errorf("%q", got)
	}
}

// TestApart: what the tree has and a cgroup does not count is noted, also once the limit
// is gone; what shrinks between two counters is not.
func TestApart(t *testing.T) {
	group := event.Limit{Name: event.LimitCgroup, Level: "/g", Charged: 100 * rss.MiB, Used: 90 * rss.MiB, Limit: rss.GiB}
	step := func(s *Summary, anon, outside rss.Bytes, limits ...event.Limit) {
		sample := rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 9, Start: 9}, Anon: anon}}}
		s.Apart(&sample, limits, func(l *event.Limit, _ *rss.Sample) rss.Bytes {
			if l.Level != "/g" {
				return 0
			}
			return outside
		})
	}
	for _, c := range []struct {
		what string
		do   func(*Summary)
		want rss.Bytes
	}{
		{"all of it is counted", func(s *Summary) { step(s, 90*rss.MiB, 0, group); step(s, 90*rss.MiB, 0, group) }, 0},
		{"a helper is elsewhere", func(s *Summary) { step(s, 90*rss.MiB, 10*rss.MiB, group) }, 0},
		{"most is elsewhere", func(s *Summary) { step(s, 90*rss.MiB, 90*rss.MiB, group); step(s, 90*rss.MiB, 80*rss.MiB, group) }, 80 * rss.MiB},
		{"for a moment", func(s *Summary) {
			step(s, 90*rss.MiB, 80*rss.MiB, group)
			step(s, 90*rss.MiB, 0, group)
			step(s, 90*rss.MiB, 80*rss.MiB, group)
		}, 0},
		{"brought along", func(s *Summary) { step(s, 300*rss.MiB, 0, group); step(s, 320*rss.MiB, 0, group) }, 200 * rss.MiB},
		{"freed meanwhile", func(s *Summary) { step(s, 300*rss.MiB, 0, group); step(s, 90*rss.MiB, 0, group) }, 0},
		{"killed meanwhile", func(s *Summary) {
			step(s, 90*rss.MiB, 0, group)
			killed := group
			killed.Charged = 10 * rss.MiB
			step(s, 90*rss.MiB, 0, killed)
		}, 0},
		{"after the cgroup has gone", func(s *Summary) {
			s.nearest = &group
			step(s, 90*rss.MiB, 300*rss.MiB)
			step(s, 90*rss.MiB, 300*rss.MiB)
		}, 300 * rss.MiB},
		{"--limit counts all", func(s *Summary) { step(s, 0, 300*rss.MiB, event.Limit{Name: event.LimitUser}) }, 0},
	} {
		var s Summary
		if c.do(&s); s.elsewhere["/g"] != c.want {
			t.Errorf("%s: %v, want %v", c.what, s.elsewhere["/g"], c.want)
		}
	}
}

// TestLoadersAreSummedUp: what workers trimmed by themselves; what was asked for is summed up
// by its outcome.
func TestLoadersAreSummedUp(t *testing.T) {
	var s Summary
	trimmed := loader.Said{Count: 3}
	trimmed.What, trimmed.Freed = event.LoaderTrimmed, 300*rss.MiB
	s.Loader(0, &trimmed)
	trimmed.Request = 9
	s.Loader(0, &trimmed)
	if s.Done.BudgetTrims != 3 || s.Done.BudgetFreed != 300*rss.MiB {
		t.Errorf("summary %+v", s.Done)
	}
	recycled := loader.Said{}
	recycled.What, recycled.Reason, recycled.Paused = event.LoaderRecycled, string(event.ReasonDeferred), 0.5
	s.Loader(0, &recycled)
	recycled.Reason = ""
	s.Loader(0, &recycled)
	if s.Done.Recycles != 1 || s.Done.Forked != 1 || s.Done.Paused != 500*time.Millisecond {
		t.Errorf("summary %+v", s.Done)
	}
}
