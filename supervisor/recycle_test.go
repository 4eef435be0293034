package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		_, id := rsstest.Sleeper(t)
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

// TestDeferredIsNoFailure has a loader put a recycle off to its next epoch: the
// outcome says just that, no other worker of that loader is asked meanwhile, and
// what is replaced in the end is counted.
func TestDeferredIsNoFailure(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(100*rss.MiB, worker1, worker2)
	s.put(worker1, id.PID, 300*rss.MiB, 10*rss.MiB)
	s.put(worker2, id.PID, 400*rss.MiB, 10*rss.MiB)
	s.open(s.holder.begin)
	s.does(event.ActionRecycle)
	const why = `,"why":"put off to the loader's next epoch"`
	s.log(id, `"what":"accepted","id":1,"n":1,"worker":5000012`+why)
	s.full()
	wardentest.Has(t, s.last(event.NameOutcome), "ok", false, "reason", string(event.ReasonDeferred), "freed_bytes", 0.0)
	s.told("92 %: recycle worker 5000012: waits for the loader's next epoch\n")
	s.times(0, "failed")
	s.full()
	if s.acts.InFlight() != nil || s.tell.Sum.Saved.Sum(event.ActionRecycle).Worked != 0 || s.tell.Sum.Saved.Recycled != 0 {
		t.Errorf("in flight %+v, summary %+v", s.acts.InFlight(), s.tell.Sum)
	}
	s.log(id, `"what":"recycled","id":1,"n":2,"worker":5000012,"new":5000013,"pause_ms":20`+why)
	s.log(id, `"what":"recycled","id":0,"n":2,"worker":5000011,"new":5000014`+why)
	s.full()
	if s.tell.Sum.Saved.Recycled != 2 {
		t.Errorf("summary %+v", s.tell.Sum)
	}
}

// steadyJob is a training that does not grow, in a cgroup: a trainer that has built
// its heap, and workers that have nothing of their own when they are forked and reach
// what they need with their third batch, as PyTorch's do.
type steadyJob struct {
	*stand
	trainer rss.ProcID
	heap    rss.Bytes
	needs   rss.Bytes     // of each worker, of its own
	batch   time.Duration // in which each worker makes one
	limit   rss.Bytes
	steady  time.Duration // from when on, if none were replaced

	staff    []int // by worker id
	forked   map[int]time.Duration
	answered uint64
	reported map[int]int // after how many batches a worker reported last
	recycles map[int]int // by worker id
}

// has is what a worker of that age has of its own.
func (j *steadyJob) has(age time.Duration) rss.Bytes {
	return j.needs * rss.Bytes(min(age/j.batch, 3)) / 3
}

// render writes the job's processes and the charge of its cgroup.
func (j *steadyJob) render() {
	used := j.heap
	j.trainerHas(j.trainer, j.heap)
	for _, pid := range j.staff {
		age := j.now() - j.forked[pid]
		own := j.has(age)
		if made := int(age / j.batch); made >= 8 && made >= 2*j.reported[pid] {
			j.reported[pid] = made
			j.log(j.trainer, fmt.Sprintf(`"what":"grown","worker":%d,"count":%d,"before":%d,"after":%d`, pid, made, j.has(age/2), own))
		}
		j.fs.Put(rsstest.Process{PID: pid, Parent: j.trainer.PID, Comm: "python", Anon: j.heap + own})
		used += own
	}
	dir := "sys/fs/cgroup/job/"
	j.fs.Write(dir+"memory.current", fmt.Sprintln(uint64(used)))
	j.fs.Write(dir+"memory.max", fmt.Sprintln(uint64(j.limit)))
	j.fs.Write(dir+"memory.high", "max\n")
	j.fs.Write(dir+"memory.stat", fmt.Sprintf("anon %d\nfile 0\n", used))
}

// obey replaces the workers that the hook is asked to, at once.
func (j *steadyJob) obey() {
	data, err := os.ReadFile(fmt.Sprintf("%s/ctl.%d.%d", j.Settings.Dir, j.trainer.PID, j.trainer.Start))
	if err != nil {
		return // there is none yet
	}
	var c struct {
		Recycle []struct {
			ID     uint64
			Worker int
		}
	}
	wardentest.NoError(j.t, json.Unmarshal(data, &c))
	for _, r := range c.Recycle {
		k := slices.Index(j.staff, r.Worker)
		if r.ID <= j.answered || k < 0 {
			continue
		}
		j.answered = r.ID
		if j.now() >= j.steady {
			j.recycles[k]++
		}
		fresh := slices.Max(j.staff) + 1
		j.fs.End(r.Worker)
		j.staff[k], j.forked[fresh] = fresh, j.now()
		j.log(j.trainer, fmt.Sprintf(`"what":"accepted","id":%d,"n":1,"worker":%d,"mode":"drain"`, r.ID, r.Worker))
		j.log(j.trainer, fmt.Sprintf(`"what":"recycled","id":%d,"n":1,"k":%d,"worker":%d,"new":%d,"pause_ms":30,"mode":"drain","exit":0`, r.ID, k, r.Worker, fresh))
	}
}

// TestSteadyJob: workers that need what they have are not replaced again and again,
// however near the job is to the rung: their replacements need it too. Before that is
// known, one useless recycle of each place is allowed.
func TestSteadyJob(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		needs   rss.Bytes
		batch   time.Duration
	}{
		"8 workers of 24 MiB":               {8, 24 * rss.MiB, 800 * time.Millisecond},
		"4 workers of 60 MiB, slow batches": {4, 60 * rss.MiB, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			j := &steadyJob{heap: 2600 * rss.MiB, needs: c.needs, batch: c.batch, forked: map[int]time.Duration{}, recycles: map[int]int{}, reported: map[int]int{}}
			j.limit = (j.heap + rss.Bytes(c.workers)*c.needs).Scale(1 / 0.93)
			j.stand = newStand(t, withLoader(t), func(o *Options) { o.Settings.Limit = 0 })
			j.fs.Write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n")
			j.fs.Write(fmt.Sprintf("proc/%d/cgroup", theHolder), "0::/job\n")
			for k := range c.workers {
				j.staff = append(j.staff, worker1+k)
			}
			heap := j.heap
			j.trainer = j.stand.trainer(heap/10, j.staff...)
			j.forkAt(time.Hour) // not yet
			j.heap = heap / 10
			j.renderTrainer()
			j.open(j.holder.begin)
			const step = 250 * time.Millisecond
			for j.heap = heap / 10; j.heap < heap; j.heap += heap / 50 {
				j.renderTrainer() // it fills its heap within seconds
				j.later(step)
				j.full()
			}
			j.heap = heap
			j.forkAt(j.now())
			j.steady = j.now() + 3*j.batch
			for end := j.steady + 2*time.Minute; j.now() < end; j.later(step) {
				j.render()
				j.full()
				j.obey()
			}
			total := 0
			for k := range j.staff {
				total += j.recycles[k]
				if j.recycles[k] > 1 {
					t.Errorf("worker %d was replaced %d times in 2 minutes, want once at most", k, j.recycles[k])
				}
			}
			t.Logf("%d recycles", total)
		})
	}
}

// forkAt has all workers forked at that time.
func (j *steadyJob) forkAt(at time.Duration) {
	for _, pid := range j.staff {
		j.forked[pid] = at
	}
}

// renderTrainer is render before there are workers.
func (j *steadyJob) renderTrainer() {
	staff := j.staff
	j.staff = nil
	j.render()
	j.staff = staff
}
