package observe

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wake"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

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
	s := newStand(t, func(set *settings.Settings, _ map[string]string) { set.Accounting = event.AccountingPSS })
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
