package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// staff has the watcher know a trainer of 1 GiB, PID 1, with these workers of as much and
// file mapped pages.
func (s *stand) staff(file rss.Bytes, pids ...int) {
	id := rss.ProcID{PID: 1, Start: 1}
	s.observe.Workers = workers.New(workers.Options{Proc: "/proc"})
	s.observe.Workers.SetTrainers([]event.Trainer{{ID: id, CanRecycle: true, Loaders: []event.DataLoader{{N: 1, NumWorkers: len(pids), CanRecycle: true, Workers: pids}}}})
	s.view.Sample = rss.Sample{Procs: []rss.Proc{{ID: id, State: 'S', RSS: rss.GiB, Anon: rss.GiB}}}
	for _, pid := range pids {
		s.view.Sample.Procs = append(s.view.Sample.Procs, rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S', RSS: rss.GiB + file, Anon: rss.GiB, File: file})
	}
	s.observe.Workers.Update(&s.view.Sample, nil)
}

// TestLead is how far ahead of its rung an action begins. A recycle: where growth is so fast
// that the kernel would kill before a worker has drained; and from the rung of the warning on
// by what workers have leaked for certain, not by what they may need, nor by less than is
// worth it. A trim: from there on by much that workers have mapped, where slurmstepd kills.
func TestLead(t *testing.T) {
	type setup func(*stand, *event.Limit)
	// The limit grows by MiB a second; the recycle before took so many seconds.
	grows := func(rate rss.Bytes, took float64) setup {
		return func(s *stand, l *event.Limit) {
			now := s.now()
			s.rate(l).Add(now, l.Used-rate*rss.MiB/10)
			s.rate(l).Add(now+100*time.Millisecond, l.Used)
			s.observe.Workers.RecycleTook = time.Duration(took * float64(time.Second))
		}
	}
	// The worker has reported MiB of its own, half of its batches before and now.
	leaks := func(half, own rss.Bytes) setup {
		return func(s *stand, l *event.Limit) {
			l.Accounting = event.AccountingCgroup
			s.staff(0, 11)
			s.view.Sample.Procs[1].Anon += 64 * rss.MiB
			if own > 0 {
				s.observe.Workers.Grown(rss.ProcID{PID: 1, Start: 1}, 11, 8, half*rss.MiB, own*rss.MiB)
			}
		}
	}
	// Each of two workers has mapped so many MiB beside its libraries.
	maps := func(mapped rss.Bytes) setup {
		return func(s *stand, l *event.Limit) {
			l.Accounting = event.AccountingRSS
			s.staff(17*rss.MiB, 11, 12)
			for i := range 2 {
				p := &s.view.Sample.Procs[1+i]
				p.File, p.RSS = p.File+mapped*rss.MiB, p.RSS+mapped*rss.MiB
			}
		}
	}
	for _, c := range []struct {
		name   string
		action event.Action
		limit  event.LimitName
		size   rss.Bytes // MiB
		used   rss.Bytes // %
		set    setup
		want   rss.Bytes // MiB
	}{
		{"nothing grows", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(0, 0), 0},
		{"as fast as the rung allows for", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(100, 0), 0},
		{"twice as fast", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(200, 0), 100},
		{"workers drain fast", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(200, 0.2), 0},
		{"and slowly", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(80, 0.8), 28},
		{"15 points at most", event.ActionRecycle, event.LimitCgroup, 1000, 70, grows(900, 5), 150},
		{"slurmstepd does not look", event.ActionRecycle, event.LimitSlurm, 1000, 70, grows(900, 0), 0},
		{"nothing kills", event.ActionRecycle, event.LimitUser, 1000, 70, grows(900, 0), 0},
		{"a leak", event.ActionRecycle, event.LimitCgroup, 1000, 81, leaks(32, 64), 100},
		{"a leak that slurmstepd sums", event.ActionRecycle, event.LimitSlurm, 1000, 81, leaks(32, 64), 100},
		{"a leak where nothing kills", event.ActionRecycle, event.LimitUser, 1000, 81, leaks(32, 64), 0},
		{"a leak below the warning", event.ActionRecycle, event.LimitCgroup, 1000, 79, leaks(32, 64), 0},
		{"what a worker needs", event.ActionRecycle, event.LimitCgroup, 1000, 81, leaks(64, 64), 0},
		{"a leak that is not worth it", event.ActionRecycle, event.LimitCgroup, 1000, 81, leaks(58, 64), 0},
		{"no worker has reported", event.ActionRecycle, event.LimitCgroup, 1000, 81, leaks(0, 0), 0},
		{"much is mapped", event.ActionTrim, event.LimitSlurm, 2000, 81, maps(30), 100},
		{"little is mapped", event.ActionTrim, event.LimitSlurm, 2000, 81, maps(15), 0},
		{"much is mapped, below the warning", event.ActionTrim, event.LimitSlurm, 2000, 79, maps(30), 0},
		{"much is mapped, and nothing kills", event.ActionTrim, event.LimitUser, 2000, 81, maps(30), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := opened(t, withLoader(t))
			l := &event.Limit{Name: c.limit, Scope: event.ScopeCgroup, Used: c.size * c.used / 100 * rss.MiB, Limit: c.size * rss.MiB}
			c.set(s, l)
			if got := s.acts.Lead(c.action, l); got/rss.MiB != c.want {
				t.Errorf("%v ahead, want %d MiB", got, c.want)
			}
		})
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
	s.looksUntil("workers", func() bool { return len(s.observe.Workers.Recyclable(event.AccountingRSS)) == 2 })
	s.later(time.Minute)
	grow(300 * rss.MiB)
	return s, ids
}

// TestPoolThatDoesNotRespawn is not emptied.
func TestPoolThatDoesNotRespawn(t *testing.T) {
	s, ids := pooled(t)
	if s.acts.InFlight() == nil {
		t.Fatalf("no worker was signalled:\n%s", s.stderr())
	}
	first := s.acts.InFlight().Acted.Procs[0].ID
	s.fs.End(first.PID)
	for range 20 {
		s.full()
		s.later(action.ReplaceDeadline / 2)
	}
	if n := strings.Count(s.stderr(), "recycle of worker "); n != 1 {
		t.Errorf("%d workers of %v were signalled\n%s", n, ids, s.stderr())
	}
	s.times(1, "process 5000001 starts no new worker where one has ended: no more of its workers are signalled")
}

// afterTakeOver is how long a new leader waits before it acts.
const afterTakeOver = time.Second

// recyclesAsked returns the workers whose replacement a trainer's control file asks for.
func (s *stand) recyclesAsked(id rss.ProcID) (workers []int) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Settings.Dir, fmt.Sprintf("ctl.%d.%d", id.PID, id.Start)))
	var c struct{ Recycle []struct{ Worker int } }
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	wardentest.NoError(s.t, err)
	for _, r := range c.Recycle {
		workers = append(workers, r.Worker)
	}
	return workers
}

// TestSuccessorAndAnOldRecycle: a successor finds a recycle that the dead leader
// had asked for in the control file of a trainer that looks between two batches
// alone. No second worker is replaced beside the first, however long a batch takes,
// and none is not replaced for ever.
func TestSuccessorAndAnOldRecycle(t *testing.T) {
	const accepted = `"what":"accepted","id":7,"n":1,"worker":5000011`
	for _, c := range []struct {
		name  string
		said  string // by the trainer before the take-over
		asked bool   // the old request remains after it
		then  string // … what it says after that
		until time.Duration
	}{
		{name: "not accepted", until: afterTakeOver},
		{name: "accepted, drains", said: accepted, asked: true, until: action.RecycleDeadline},
		{name: "accepted, then done", said: accepted, asked: true, then: `"what":"recycled","id":7,"n":1,"worker":5000011,"new":5000013`, until: afterTakeOver},
		{name: "accepted as it was withdrawn", then: accepted, until: action.RecycleDeadline},
		{name: "its loader has ended", said: accepted, asked: true, then: `"what":"ended","n":1`, until: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, withLoader(t), func(o *Options) { o.Settings.Rules = mustRules("90%:recycle") })
			id := s.trainer(100*rss.MiB, worker1, worker2)
			s.file("ctl", id, `{"v":1,"last":7,"budget":0,"trim":[],"recycle":[{"id":7,"worker":5000011,"mode":"drain"}]}`)
			if c.said != "" {
				s.log(id, c.said)
			}
			s.put(worker1, id.PID, 300*rss.MiB, 0)
			s.put(worker2, id.PID, 400*rss.MiB, 0) // 900 MiB
			s.put(worker3, id.PID, 20*rss.MiB, 0)
			s.node.Successor = true
			s.open(s.holder.begin)
			if got := len(s.recyclesAsked(id)) > 0; got != c.asked || s.acts.InFlight() != nil {
				t.Fatalf("asked %v after the take-over, want %v; in flight %+v", got, c.asked, s.acts.InFlight())
			}
			if c.then != "" {
				s.log(id, c.then)
				s.full()
			}
			if c.until == 0 {
				if s.later(afterTakeOver); s.observe.Loader.Inherited() {
					t.Error("it is waited for")
				}
				return
			}
			s.later(s.node.From + c.until - 700*time.Millisecond - s.now()) // this machine may be slow
			s.full()
			s.does("")
			s.later(time.Second)
			s.full()
			s.does(event.ActionRecycle)
			if got := s.recyclesAsked(id); got[len(got)-1] != worker2 {
				t.Errorf("asked for %v, want the larger one", got)
			}
		})
	}
}
