package supervisor

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
)

// TestVacancy: the workers of a pool that lacks one are left alone, and for good
// where none takes its place in time.
func TestVacancy(t *testing.T) {
	const owner, other = 2, 3
	m := &matcher{seen: map[rss.ProcID]*match{}}
	f := newWorkforce(t.TempDir())
	f.roles.places = nil
	look := func(at time.Duration, pids ...int) []int {
		s := &rss.Sample{Mono: at, Procs: []rss.Proc{{ID: rss.ProcID{PID: 1, Start: 1}}}}
		for _, pid := range append([]int{owner, other}, pids...) {
			p := proc(pid, 10, 0)
			p.Parent = 1
			if pid > 10 {
				p.Parent = pid / 10
				m.seen[p.ID] = &match{id: p.ID, matches: true, known: true, final: true}
			} else {
				m.seen[p.ID] = &match{id: p.ID, known: true, final: true}
			}
			s.Procs = append(s.Procs, p)
		}
		f.mark(s, nil, m)
		_, able := f.candidates(s, event.AccountingRSS)
		return able
	}
	told := 0
	signalled := func(pid, crew int) {
		f.pools[rss.ProcID{PID: pid / 10, Start: 1}] = &vacancy{worker: rss.ProcID{PID: pid, Start: 1}, crew: crew, tell: func() { told++ }}
	}
	check := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v can be signalled, want %v", what, got, want)
		}
	}
	const late = action.ReplaceDeadline
	check("all", look(0, 21, 22, 31), 21, 22, 31)
	signalled(21, 2)
	check("it lives", look(time.Second, 21, 22, 31), 21, 22, 31)
	check("it has ended", look(2*time.Second, 22, 31), 31)
	check("it was replaced", look(3*time.Second, 22, 23, 31), 22, 23, 31)
	check("another leaves by itself", look(4*time.Second, 22, 31), 22, 31)
	signalled(22, 1)
	check("it ends late", look(9*late, 22, 31), 22, 31)
	check("it has", look(10*late, 31), 31)
	check("it is missing", look(11*late-1, 31), 31)
	if told != 0 {
		t.Errorf("told %d times too early", told)
	}
	check("nobody came in time", look(11*late, 31), 31)
	check("somebody comes after", look(12*late, 23, 24, 31), 31)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	delete(m.seen, rss.ProcID{PID: 23, Start: 1})
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0)}}
	if f.mark(s, nil, m); len(f.pools) != 0 {
		t.Errorf("of an owner that has ended, %v is known", slices.Collect(maps.Keys(f.pools)))
	}
}

// pooled is a watcher of a command whose two workers are real processes that TERM
// ends, and each has grown by 300 MiB.
func pooled(t *testing.T) (*stand, []rss.ProcID) {
	t.Helper()
	s := opened(t, func(o *Options) {
		o.Settings.Rules = mustRules("50%:recycle")
		o.Settings.WorkerMatch, o.Settings.WorkerSignal = "pool", int(unix.SIGTERM)
	})
	var ids []rss.ProcID
	for range 2 {
		_, id := sleeper(t)
		ids = append(ids, id)
		s.fs.Write("proc/"+itoa(id.PID)+"/cmdline", "python\x00pool.py\x00")
	}
	grow := func(anon rss.Bytes) {
		for _, id := range ids {
			s.fs.Put(rsstest.Process{PID: id.PID, Parent: theCommand, Start: id.Start, Comm: "python", Anon: anon})
		}
		s.full()
	}
	grow(10 * rss.MiB)
	for deadline := time.Now().Add(10 * time.Second); ; s.full() {
		if list, _ := s.workers.candidates(&s.last, event.AccountingRSS); len(list) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no workers")
		}
	}
	s.later(time.Minute)
	grow(300 * rss.MiB)
	return s, ids
}

// TestPoolThatDoesNotRespawn is not emptied.
func TestPoolThatDoesNotRespawn(t *testing.T) {
	s, ids := pooled(t)
	if s.flight == nil || !strings.Contains(s.stderr(), "TERM sent to process "+itoa(s.flight.actedOn[0].ID.PID)+" (python), one of 2 workers of process 5000001") {
		t.Fatalf("no worker was signalled:\n%s", s.stderr())
	}
	first := s.flight.actedOn[0].ID
	s.fs.End(first.PID)
	for range 20 {
		s.full()
		s.later(action.ReplaceDeadline / 2)
	}
	if n := strings.Count(s.stderr(), "TERM sent to"); n != 1 || s.sum.Done.Signalled != 1 {
		t.Errorf("%d workers of %v were signalled\n%s", n, ids, s.stderr())
	}
	if n := strings.Count(s.stderr(), "process 5000001 starts no new worker where one has ended: no more of its workers are signalled"); n != 1 {
		t.Errorf("said %d times\n%s", n, s.stderr())
	}
}

// TestPoolRecycleIsTold however it ended: here the command did.
func TestPoolRecycleIsTold(t *testing.T) {
	s, _ := pooled(t)
	s.end(&hold.Exit{})
	if want := "done: signalled 1 pool worker of which no replacement was seen"; !strings.Contains(s.stderr(), want) {
		t.Errorf("%q is not in\n%s", want, s.stderr())
	}
}
