package tell

import (
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
