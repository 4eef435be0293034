package tell

import (
	"slices"
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

// TestMapped: at most what limits would count with all that workers have mapped in memory,
// noted when it has grown; what recycled workers had grown by counts once.
func TestMapped(t *testing.T) {
	id := func(pid int) rss.ProcID { return rss.ProcID{PID: pid, Start: 1} }
	worker := func(pid int, anon, file rss.Bytes) rss.Proc {
		return rss.Proc{ID: id(pid), Role: rss.RoleWorker, Anon: anon * rss.MiB, File: file * rss.MiB, FileMost: 400 * rss.MiB, RSS: (anon + file) * rss.MiB}
	}
	var s Summary
	look := func(used rss.Bytes, workers ...rss.Proc) {
		sample := &rss.Sample{Procs: append([]rss.Proc{{ID: id(1), Anon: 200 * rss.MiB, RSS: 200 * rss.MiB}}, workers...)}
		var limits []event.Limit
		for _, by := range []event.Accounting{event.AccountingRSS, event.AccountingPSS, event.AccountingCgroup} {
			limits = append(limits, event.Limit{Name: event.LimitUser, Accounting: by, Used: used * rss.MiB, Limit: rss.GiB})
		}
		s.Peak(sample, limits, func(*event.Limit) float64 { return 0 })
	}
	look(700, worker(2, 100, 150), worker(3, 100, 150))
	look(800, worker(2, 160, 190), worker(3, 150, 100))
	look(600, worker(2, 0, 0), worker(3, 150, 100)) // 2 has ended
	s.Event(event.NameLoader, event.LoaderSaid{What: event.LoaderRecycled, Worker: 2})
	if s.own != 60*rss.MiB || s.n != 1 {
		t.Errorf("%d recycled, grown by %v", s.n, s.own)
	}
	for _, want := range []event.Limit{
		{Accounting: event.AccountingRSS, Used: 1310, UsedMax: 1310}, // 800 + 210 + 300
		{Accounting: event.AccountingPSS, Used: 1100, UsedMax: 1100}, // 800 + 300
		{Accounting: event.AccountingCgroup, Used: 800, UsedMax: 800},
	} {
		i := slices.IndexFunc(s.whole.Limits, func(l event.Limit) bool { return l.Name == event.LimitUser && l.Accounting == want.Accounting })
		if got := s.whole.Limits[i]; got.Used != want.Used*rss.MiB || got.UsedMax != want.UsedMax*rss.MiB {
			t.Errorf("%s: %v, %v; want %d, %d MiB", want.Accounting, got.Used, got.UsedMax, want.Used, want.UsedMax)
		}
	}
	if s.whole.Workers != 2 || s.whole.Each != 400*rss.MiB {
		t.Errorf("%+v", s.whole)
	}
}
