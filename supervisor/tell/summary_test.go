package tell

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
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

// serving is a stand that clients can ask.
func serving(t *testing.T) *stand {
	t.Helper()
	s := newStand(t)
	dir, err := os.Open(t.TempDir())
	wardentest.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	wardentest.NoError(t, s.Status.Serve(dir))
	t.Cleanup(s.Status.Close)
	return s
}

// one is a rank with one process.
func one(size rss.Bytes) *StatusFacts {
	return &StatusFacts{
		View:  &view.View{Sample: rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 7, Start: 1}, RSS: size, State: 'S'}}}},
		Ranks: []control.Rank{{PID: 7}}, NoHook: "no loader hook",
		Step: func(rss.ProcID) string { return "0" }, Counts: func(rss.ProcID) (int, int) { return -1, 3 },
	}
}

// TestStatusIsMadeWhenAsked: a client that asks while nothing changes costs the loop
// nothing.
func TestStatusIsMadeWhenAsked(t *testing.T) {
	s := serving(t)
	made := 0
	ask := func() *control.Status {
		got := make(chan *control.Status, 1)
		go func() {
			st, err := s.Status.Source().Status(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- st
		}()
		for {
			select {
			case r := <-s.Status.Requests():
				made++
				s.Status.Answer(r, one(rss.MiB))
			case st := <-got:
				return st
			}
		}
	}
	first := ask()
	if ask() != first || made != 1 {
		t.Errorf("made %d times for two that asked", made)
	}
	if s.Status.Changed(); ask() == first || made != 2 {
		t.Errorf("made %d times, want again after a change", made)
	}
}

// TestStatusOfOneRank: its processes are summed, and what is not known is not told.
func TestStatusOfOneRank(t *testing.T) {
	s := newStand(t)
	s.Readers.Outside = func(*event.Limit, *rss.Sample) rss.Bytes { return 0 }
	read := func(at time.Duration, size rss.Bytes) *StatusFacts {
		from := one(size)
		from.View.Now = at
		s.See(from.View)
		return from
	}
	if p := s.Status.Of(read(0, rss.MiB)).Procs[0]; p.Growth != nil {
		t.Errorf("growth %v of one reading", *p.Growth)
	}
	st := s.Status.Of(read(2*time.Second, 3*rss.MiB))
	k, p := st.Ranks[0], st.Procs[0]
	if k.RSS != 3*rss.MiB || k.Procs != 1 || *k.Growth != float64(rss.MiB) || k.Hook != "off" || k.Why != "no loader hook" {
		t.Errorf("rank %+v", k)
	}
	if *p.Growth != float64(rss.MiB) || p.Maps != 0 || p.FDs != 3 || p.PSS != nil || p.State != "S" || p.Task != 0 {
		t.Errorf("process %+v", p)
	}
	for at := 3 * time.Second; at <= 20*time.Second; at += time.Second {
		read(at, 3*rss.MiB)
	}
	if g := s.Status.Of(read(21*time.Second, 3*rss.MiB)).Procs[0].Growth; *g != 0 {
		t.Errorf("growth %v of long ago", *g)
	}
}

// TestOneSample: limits and processes are of one sample; a newer fast reading is beside it. The
// peak is that of the end of the run.
func TestOneSample(t *testing.T) {
	s := newStand(t)
	s.Readers = Readers{
		Pace:    func(*event.Limit) float64 { return 0 },
		Outside: func(*event.Limit, *rss.Sample) rss.Bytes { return 0 },
	}
	limit := func(used rss.Bytes) []event.Limit {
		return []event.Limit{{Name: event.LimitUser, Used: used, Limit: 100 * rss.MiB, Binding: true}}
	}
	from := one(90 * rss.MiB)
	at := time.Date(2026, 11, 22, 14, 5, 2, 0, time.UTC)
	var v view.View
	for i, used := range []rss.Bytes{40 * rss.MiB, 90 * rss.MiB, 60 * rss.MiB} {
		now := time.Duration(i) * 2 * time.Second
		from.View = v.Next(now, rss.Sample{At: at.Add(now), Mono: now, Procs: []rss.Proc{{ID: rss.ProcID{PID: 7, Start: 1}, RSS: used}}}, limit(used))
		v = *from.View
		s.See(from.View)
	}
	from.View = from.View.Fast(4500*time.Millisecond, &limit(75 * rss.MiB)[0])
	st := s.Status.Of(from)
	l := &st.Limits[0]
	if l.Used != 60*rss.MiB || l.Used != st.Procs[0].RSS || *l.Now != 75*rss.MiB || !l.NowAt.Equal(at.Add(4500*time.Millisecond)) || !st.Time.Equal(at.Add(4*time.Second)) {
		t.Errorf("%+v at %v", l, st.Time)
	}
	if *l.Growth != 5*float64(rss.MiB) || st.Peak.Used != 90*rss.MiB {
		t.Errorf("growth %v, peak %v", *l.Growth, st.Peak.Used)
	}
	exit, brief := s.Sum.End(&Ending{Said: true})
	if *exit.Binding != *st.Peak || *brief.Peak != *st.Peak {
		t.Errorf("at the end %+v and %+v, in the status %+v", exit.Binding, brief.Peak, st.Peak)
	}
}

// TestLedgerOfTheStatus: what was done is one ledger, and what was done to a worker goes with
// its place, whoever replaced it.
func TestLedgerOfTheStatus(t *testing.T) {
	s := newStand(t)
	trimmed := func(pid, count int, reason string) {
		s.Tell(0, view.News{event.LoaderSaid{What: event.LoaderTrimmed, PID: pid, Count: count, Freed: rss.MiB, Reason: reason}})
	}
	trimmed(7, 6, "")
	trimmed(7, 1, event.TrimRequested)
	s.Status.Replaced(7, 8)
	pool := &rss.Proc{ID: rss.ProcID{PID: 8, Start: 5}, Parent: 3}
	s.Status.ReplacedIn(&rss.Sample{Procs: []rss.Proc{{ID: rss.ProcID{PID: 6, Start: 2}, Parent: 3}, {ID: rss.ProcID{PID: 9, Start: 6}, Parent: 3}, {ID: rss.ProcID{PID: 10, Start: 7}, Parent: 1}}}, pool)
	recycled := func(id uint64, paused float64) {
		d := event.Decision{ID: id, Action: event.ActionRecycle, Limit: event.LimitUser}
		s.Put(event.NameDecision, func(event.Head) any { return d })
		s.Outcome(&d, &event.Outcome{Decision: id, OK: true, Freed: rss.MiB, Paused: paused})
	}
	recycled(1, 0.25)
	from := one(rss.MiB)
	from.View.Sample.Procs[0].ID.PID = 9
	st := s.Status.Of(from)
	if c := st.Procs[0].WorkerCounts; c != (control.WorkerCounts{Trims: 7, Recycled: 2}) {
		t.Errorf("counts %+v", c)
	}
	if l := st.Saved; l.WorkerTrims != 6 || l.Recycled != 1 || l.Paused() != 0.25 {
		t.Errorf("ledger %+v", l)
	}
	exit, _ := s.Sum.End(&Ending{Said: true})
	if diff := cmp.Diff(*st.Saved, exit.Saved); diff != "" {
		t.Errorf("the ledger at the end differs: %s", diff)
	}
	recycled(2, 0)
	if st.Saved.Recycled != 1 {
		t.Error("an answer has changed after it was given")
	}
}

// TestOutcomes: the newest are kept, with what was decided.
func TestOutcomes(t *testing.T) {
	s := newStand(t)
	for i := range 2 * mostOutcomes {
		s.Status.Outcome(&event.Decision{Action: event.ActionSignal, Arg: "USR1", Rule: event.AskedFor, By: 5}, event.Outcome{Decision: uint64(i), OK: true})
	}
	last := s.Status.Of(one(rss.MiB)).Last
	if len(last) != mostOutcomes || last[0].Decision != 2*mostOutcomes-1 || last[0].Name() != "signal=USR1" || last[0].By != 5 {
		t.Errorf("%+v", last)
	}
}

// TestAskedAfterTheEnd: a run that has ended gives no further answers; one whose socket
// came back does.
func TestAskedAfterTheEnd(t *testing.T) {
	s := serving(t)
	s.Status.made.Store(&control.Status{})
	asked := s.Status.Source()
	s.Status.Close()
	if _, err := asked.Events(t.Context()); !errors.Is(err, control.ErrEnded) {
		t.Errorf("events: %v", err)
	}
	if _, err := asked.Status(t.Context()); !errors.Is(err, control.ErrEnded) {
		t.Errorf("status: %v", err)
	}
	dir, err := os.Open(t.TempDir())
	wardentest.NoError(t, err)
	defer dir.Close()
	wardentest.NoError(t, s.Status.Serve(dir))
	if _, err := s.Status.Source().Events(t.Context()); err != nil {
		t.Errorf("events of a socket that came back: %v", err)
	}
}
