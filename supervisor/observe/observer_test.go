package observe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// PIDs above the kernel's greatest.
const (
	theHolder  = 5000000
	theCommand = 5000001
)

// stand is an observer of a made-up command of 100 MiB under --limit 1000M of summed RSS.
type stand struct {
	*Observer
	t   *testing.T
	fs  rsstest.Tree
	v   *view.View
	now time.Duration
}

func newStand(t *testing.T, change func(*settings.Policy, map[string]string)) *stand {
	t.Helper()
	s := &stand{t: t, fs: rsstest.Empty(t), v: &view.View{Watched: -1}}
	s.fs.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 67108864 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
	set := &settings.Policy{UserLimit: settings.UserLimit{Limit: 1000 * rss.MiB, Accounting: event.AccountingRSS}}
	env := map[string]string{}
	if change != nil {
		change(set, env)
	}
	s.put(100 * rss.MiB)
	probes := new(probe.Set)
	s.Observer = New(Options{
		Settings: set, Proc: s.fs.Proc, Sys: s.fs.Sys, Self: theHolder + 9, Holder: theHolder,
		Command: rss.ProcID{PID: theCommand, Start: 10}, Probes: probes, Bell: wake.New(),
		Lookup:   func(k string) (string, bool) { v, ok := env[k]; return v, ok },
		Scontrol: func(context.Context, ...string) ([]byte, error) { return nil, errors.New("no scontrol here") },
		Start:    (*exec.Cmd).Start, Subreaper: func(bool) error { return nil },
	})
	s.Open(theHolder, theCommand, "")
	s.read()
	return s
}

// put gives the command so much.
func (s *stand) put(anon rss.Bytes) {
	s.fs.Put(rsstest.Process{PID: theCommand, Parent: theHolder, Start: 10, Comm: "python", Anon: anon})
}

// read takes a full read a second after the last, and returns its news.
func (s *stand) read() (news view.News) {
	s.now += time.Second
	s.v, news = s.Full(s.now, s.v)
	return news
}

// user is the reading of --limit.
func (s *stand) user() *event.Limit {
	s.t.Helper()
	l := s.v.Limit(event.LimitID{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: s.opt.Settings.Accounting})
	if l == nil {
		s.t.Fatalf("no reading of --limit among %+v", s.v.Limits)
	}
	return l
}

// TestLimitSetLater: the kernel also reports a limit that was not set at the start.
func TestLimitSetLater(t *testing.T) {
	bell := wake.New()
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.events")
	wardentest.NoError(t, os.WriteFile(file, []byte("max 0\n"), 0o600))
	o := &Observer{opt: Options{Bell: bell, LimitMet: 1}}
	wardentest.NoError(t, o.WatchLimits([]event.Limit{{Name: event.LimitUser}, {Level: t.TempDir()}, {Level: dir}, {Level: dir}}))
	wardentest.NoError(t, os.WriteFile(file, []byte("max 1\n"), 0o600))
	for end := time.After(10 * time.Second); ; {
		select {
		case <-bell.C():
			if bell.Causes()&1 != 0 {
				return
			}
		case <-end:
			t.Fatal("the bell did not ring")
		}
	}
}

func TestFull(t *testing.T) {
	s := newStand(t, nil)
	s.put(300 * rss.MiB)
	s.read()
	if s.v.Sample.Seq != 2 || len(s.v.Sample.Procs) != 1 || s.v.Sample.Procs[0].ID.PID != theCommand {
		t.Errorf("the sample is %+v", s.v.Sample)
	}
	if l := s.user(); l.Used != 300*rss.MiB || s.v.Latest(l) != float64(200*rss.MiB) || &s.v.Limits[s.v.Watched] != l {
		t.Errorf("%+v grows by %.0f bytes a second, want 200 MiB; %d is watched", l, s.v.Latest(l), s.v.Watched)
	}
}

// TestUnreadableTreeKeepsTheLast, and says so.
func TestUnreadableTreeKeepsTheLast(t *testing.T) {
	s := newStand(t, nil)
	s.Pop.Tree = proctree.New(filepath.Join(t.TempDir(), "none"))
	news := s.read()
	if len(s.v.Sample.Procs) != 1 || s.user().Used != 100*rss.MiB {
		t.Errorf("%d processes, used %v; want the last reading", len(s.v.Sample.Procs), s.user().Used)
	}
	if len(news) != 1 || news[0].(view.Fault).Part != "proctree" {
		t.Errorf("told %v", news)
	}
}

// TestFastRead reads the watched limit alone, and calls for a full one where that has met
// what it is judged at.
func TestFastRead(t *testing.T) {
	s := newStand(t, nil)
	for _, c := range []struct {
		anon rss.Bytes
		full bool
	}{{700 * rss.MiB, false}, {800 * rss.MiB, true}} {
		s.put(c.anon)
		v, full := s.Fast(s.now+time.Second, s.v, 800*rss.MiB)
		if l := &v.Limits[v.Watched]; l.Used != c.anon || full != c.full || v.Sample.Seq != s.v.Sample.Seq {
			t.Errorf("of %v it reads %v, a full read %v", c.anon, l.Used, full)
		}
	}
	other := *s.v
	other.Watched = len(s.v.Limits)
	other.Limits = append(other.Limits, event.Limit{Name: event.LimitSlurm})
	if _, full := s.Fast(s.now+time.Second, &other, rss.GiB); !full {
		t.Error("the counter of another limit is taken for that of the watched one")
	}
}

// TestLeastOf: what the anonymous memory of a trainer and its workers counts for certain, for
// a sum of PSS alone.
func TestLeastOf(t *testing.T) {
	s := newStand(t, func(set *settings.Policy, _ map[string]string) { set.Accounting = event.AccountingPSS })
	s.Loader = new(loader.Control)
	id := rss.ProcID{PID: 1, Start: 1}
	s.Workers.SetTrainers([]event.Trainer{{ID: id, CanRecycle: true, Loaders: []event.DataLoader{{N: 1, NumWorkers: 1, CanRecycle: true, Workers: []int{11}}}}})
	s.Workers.Update(&rss.Sample{Procs: []rss.Proc{
		{ID: id, State: 'S', RSS: rss.GiB, Anon: rss.GiB},
		{ID: rss.ProcID{PID: 11, Start: 1}, State: 'S', RSS: 2 * rss.GiB, Anon: rss.GiB + 100*rss.MiB},
	}}, nil)
	for a, want := range map[event.Accounting]rss.Bytes{event.AccountingPSS: rss.GiB + 100*rss.MiB, event.AccountingRSS: 0} {
		if got := s.LeastOf(&event.Limit{Name: event.LimitUser, Accounting: a}); got != want {
			t.Errorf("%s: %v, want %v", a, got, want)
		}
	}
}

// rungs is a ladder of one rung, at 80 %.
type rungs struct{}

func (rungs) NextRung(l *event.Limit) rss.Bytes {
	if at := l.Limit.Scale(0.8); l.Used < at {
		return at
	}
	return l.Limit
}
func (rungs) Rung(_ event.Action, l *event.Limit) (rss.Bytes, bool) { return l.Limit.Scale(0.8), true }
func (rungs) Uncertain([]event.Limit) bool                          { return false }
func (rungs) JobEndAhead() time.Duration                            { return 0 }

// TestReached: only a limit at its rung, or a new limit, calls for a full read.
func TestReached(t *testing.T) {
	at := func(used rss.Bytes) []event.Limit {
		return []event.Limit{{Name: event.LimitSHM, Scope: event.ScopeNode, Used: used, Limit: 1000}}
	}
	v := &view.View{Limits: at(100)}
	for _, c := range []struct {
		used rss.Bytes
		want bool
	}{{100, false}, {799, false}, {800, true}, {1000, true}} {
		if got := reached(v, at(c.used), rungs{}); got != c.want {
			t.Errorf("at %d: %v", c.used, got)
		}
	}
	v.Limits = at(960)
	if reached(v, at(990), rungs{}) || !reached(v, at(1000), rungs{}) {
		t.Error("above the last rung the next is the limit")
	}
	if !reached(v, []event.Limit{{Name: event.LimitTasks, Used: 1, Limit: 1000}}, rungs{}) {
		t.Error("what is new calls for none")
	}
}
