package supervisor

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
)

func proc(pid int, anon, file rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S', RSS: anon + file, Anon: anon, File: file, Virtual: 10 * (anon + file)}
}

// staffed is a workforce of one trainer, PID 1, with the workers 11 and 12.
func staffed(workers ...int) workforce {
	f := newWorkforce("/proc")
	f.trainers = []loader.Trainer{{
		ID: rss.ProcID{PID: 1, Start: 1}, CanRecycle: true,
		Loaders: []loader.Loader{{N: 1, NumWorkers: len(workers), CanRecycle: true, Workers: workers}},
	}}
	return f
}

// needsTen has a worker report that it came to 10 bytes of its own and stayed there.
func needsTen(f *workforce, pid int) {
	s := &loader.Said{Trainer: f.trainers[0].ID, Batches: 8, Half: 10, Own: 10}
	s.Worker = pid
	f.grown(s)
}

func TestStaffIsThoseWhoLive(t *testing.T) {
	f := staffed(11, 12, 13, 0)
	dead := proc(12, 5, 5)
	dead.State = 'Z'
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 9, 9), proc(11, 5, 7), dead}}, nil, nil)
	if len(f.staff) != 1 || f.staff[11] == nil || f.staff[11].trainer != 1 || !f.staff[11].able {
		t.Errorf("staff %+v, want worker 11 alone", f.staff)
	}
	if f.leastFile != 7 {
		t.Errorf("least file %d, want 7", f.leastFile)
	}
}

func TestWhoCannotBeRecycledIsNoCandidate(t *testing.T) {
	for name, change := range map[string]func(*loader.Trainer){
		"unknown torch": func(t *loader.Trainer) { t.CanRecycle = false },
		"hook off":      func(t *loader.Trainer) { t.Off = true },
		"this loader":   func(t *loader.Trainer) { t.Loaders[0].CanRecycle = false },
	} {
		f := staffed(11)
		change(&f.trainers[0])
		s := &rss.Sample{Procs: []rss.Proc{proc(1, 9, 9), proc(11, 5, 5)}}
		f.mark(s, nil, nil)
		if list, _ := f.candidates(s, event.AccountingRSS); len(list) != 0 {
			t.Errorf("%s: candidates %+v", name, list)
		}
	}
}

func TestFreshWorker(t *testing.T) {
	trainer := proc(1, 400, 50)
	trainer.PSS = &rss.PSS{PSS: 120, RSS: 450}
	s := &rss.Sample{Procs: []rss.Proc{trainer, proc(11, 410, 30)}}
	f := staffed(11)
	f.mark(s, nil, nil)
	needsTen(&f, 11)
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS:      440, // the trainer's anonymous memory, the libraries and the 10 of its own that it needs
		event.AccountingNoShared: 410,
		event.AccountingCgroup:   410,
		event.AccountingPSS:      130, // shared after fork, as the trainer's own
		event.AccountingVirtual:  4500,
	} {
		if got := f.fresh(f.staff[11], s, acc); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
	pool := &worker{first: proc(11, 30, 10)}
	if got := f.fresh(pool, s, event.AccountingRSS); got != 40 {
		t.Errorf("a pool's: %d, want what it was first seen with", got)
	}
	alone := &rss.Sample{Procs: []rss.Proc{proc(11, 410, 30)}}
	if got := f.fresh(f.staff[11], alone, event.AccountingRSS); got != 440 {
		t.Errorf("without its trainer: %d, want what it was first seen with", got)
	}
}

// TestTrainerThatGrew: what the trainer has got since the fork says nothing of what
// its workers can give back of a cgroup's charge, and a fresh worker that Slurm sums
// up has it too.
func TestTrainerThatGrew(t *testing.T) {
	f := staffed(11, 12)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 400, 0), proc(11, 410, 0), proc(12, 420, 0)}}, nil, nil)
	needsTen(&f, 11)
	for name, c := range map[string]struct {
		trainer      rss.Bytes
		cgroup, anon rss.Bytes // of a fresh worker
	}{"grew": {700, 410, 710}, "stayed": {400, 410, 410}, "shrank": {300, 310, 310}} {
		s := &rss.Sample{Procs: []rss.Proc{proc(1, c.trainer, 0), proc(11, 600, 0), proc(12, 420, 0)}}
		f.mark(s, nil, nil)
		if got := f.fresh(f.staff[11], s, event.AccountingCgroup); got != c.cgroup {
			t.Errorf("the trainer %s: a fresh worker counts %d in a cgroup, want %d", name, got, c.cgroup)
		}
		if got := f.fresh(f.staff[11], s, event.AccountingNoShared); got != c.anon {
			t.Errorf("the trainer %s: a fresh worker counts %d by noshared, want %d", name, got, c.anon)
		}
	}
}

// TestLeakByPSS: what a worker leaked is its own, whatever the trainer's libraries
// count.
func TestLeakByPSS(t *testing.T) {
	f := staffed(11)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 400, 120), proc(11, 410, 20)}}, nil, nil)
	needsTen(&f, 11)
	trainer, worker := proc(1, 400, 120), proc(11, 450, 20)
	trainer.PSS, worker.PSS = &rss.PSS{PSS: 320, RSS: 520}, &rss.PSS{PSS: 255, RSS: 470}
	s := &rss.Sample{Procs: []rss.Proc{trainer, worker}}
	f.mark(s, nil, nil)
	if list, _ := f.candidates(s, event.AccountingPSS); len(list) != 1 || list[0].Counted != 40 {
		t.Errorf("%+v, want one that gives back 40", list)
	}
}

// TestSpawnedWorker: one that shares nothing yet has still to become what a fresh
// worker is.
func TestSpawnedWorker(t *testing.T) {
	f := staffed(11)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 400, 0), proc(11, 5, 0)}}, nil, nil)
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 400, 0), proc(11, 390, 0)}}
	f.mark(s, nil, nil)
	if got := f.fresh(f.staff[11], s, event.AccountingCgroup); got != 400 {
		t.Errorf("a fresh worker counts %d, want what the trainer has", got)
	}
}

func TestCandidatesRememberTheLastRecycle(t *testing.T) {
	f := staffed(11, 12)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 100, 0), proc(11, 300, 0), proc(12, 100, 0)}}, nil, nil)
	f.took[9] = 12
	s := &rss.Sample{Mono: 10 * time.Second, Procs: []rss.Proc{proc(1, 100, 0), proc(11, 350, 0), proc(12, 150, 0)}}
	f.mark(s, nil, nil)
	list, pids := f.candidates(s, event.AccountingNoShared)
	if len(list) != 2 || pids[0] != 11 || pids[1] != 12 {
		t.Fatalf("candidates %+v of %v", list, pids)
	}
	if list[0].Counted != 250 || list[0].RecycledAgo != 0 {
		t.Errorf("worker 11: %+v, want 250 above a fresh one, never recycled", list[0])
	}
	if list[1].Counted != 50 || list[1].RecycledAgo != 10*time.Second {
		t.Errorf("worker 12: %+v, want 50 above a fresh one, recycled 10 s ago", list[1])
	}
}

// TestGivenOutPID: a PID that another process has now is another worker.
func TestGivenOutPID(t *testing.T) {
	f := staffed(11)
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 100, 0), proc(11, 300, 0)}}, nil, nil)
	f.took[9] = 11
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 100, 0), proc(11, 300, 0)}}, nil, nil)
	f.trainers[0].Loaders[0].Workers = nil // the epoch ends
	f.mark(&rss.Sample{Procs: []rss.Proc{proc(1, 100, 0)}}, nil, nil)
	if len(f.took) != 0 {
		t.Errorf("still remembers %v", f.took)
	}
	f.trainers[0].Loaders[0].Workers = []int{11} // the next begins
	again := proc(11, 100, 0)
	again.ID.Start = 2
	s := &rss.Sample{Mono: time.Minute, Procs: []rss.Proc{proc(1, 100, 0), again}}
	f.mark(s, nil, nil)
	if e := f.staff[11]; e.id != again.ID || e.first.Anon != 100 || e.since != time.Minute || e.fresh {
		t.Errorf("taken for the one before: %+v", e)
	}
}

func TestReplacedWorkerThatLeaves(t *testing.T) {
	f := staffed(12)
	f.trainers[0].Loaders[0].Leaving = []int{11}
	f.took[11] = 12
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0), proc(11, 1, 0), proc(12, 1, 0)}}
	f.mark(s, nil, nil)
	if f.took[11] != 12 || !f.staff[12].fresh || f.staff[11] != nil {
		t.Errorf("took %v, staff %v", f.took, f.staff)
	}
	f.trainers[0].Loaders[0] = loader.Loader{N: 1, NumWorkers: 2, Workers: []int{11, 12}} // 11 was given out again
	f.mark(s, nil, nil)
	if _, ok := f.took[11]; ok {
		t.Error("the replacement still stands for the worker that has its old PID")
	}
}

func TestMappers(t *testing.T) {
	f := staffed(11, 12)
	f.trainers[0].Loaders = append(f.trainers[0].Loaders, loader.Loader{N: 2}) // loads for itself
	withPSS := proc(11, 100, 300)
	withPSS.PSS = &rss.PSS{PSS: 200, RSS: 400}
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 50, 70), withPSS}}
	list := f.mappers(s, event.AccountingRSS)
	if len(list) != 3 {
		t.Fatalf("%d mappers, want both workers and the trainer", len(list))
	}
	if list[0].Mapped != 300 || list[0].CountedMapped != 300 || list[0].Counted != 400 {
		t.Errorf("worker 11: %+v", list[0])
	}
	if list[1].ID.PID != 12 || list[1].Mapped != 0 {
		t.Errorf("worker 12, not in the sample yet: %+v", list[1])
	}
	if list[2].ID.PID != 1 || list[2].Mapped != 70 {
		t.Errorf("the trainer: %+v", list[2])
	}
	if list := f.mappers(s, event.AccountingPSS); list[0].Mapped != 300 || list[0].CountedMapped != 150 {
		t.Errorf("worker 11 by pss: %+v, want half of what is mapped", list[0])
	}
}

func TestCounted(t *testing.T) {
	p := proc(1, 100, 30)
	p.Shmem, p.RSS = 20, 150
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS: 150, event.AccountingNoShared: 100, event.AccountingCgroup: 100,
		event.AccountingVirtual: 1300, event.AccountingPSS: 0,
	} {
		if got := counted(&p, acc); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
}

// TestTorchWorkerIsNoPoolWorker: --worker-match may match a whole training, and
// a signal to a worker of PyTorch's ends it.
func TestTorchWorkerIsNoPoolWorker(t *testing.T) {
	s := newStand(t, withLoader(t))
	id := s.trainer(10*rss.MiB, worker1)
	s.put(worker1, id.PID, 10*rss.MiB, 0)
	s.put(worker2, theCommand, 10*rss.MiB, 0)
	s.open(s.holder.begin)
	m := &matcher{seen: map[rss.ProcID]*match{}}
	for i := range s.last.Procs {
		id := s.last.Procs[i].ID
		m.seen[id] = &match{id: id, matches: true, asked: true}
	}
	s.workers.staff = map[int]*worker{}
	s.workers.mark(&s.last, s.loader, m)
	if e := s.workers.staff[worker1]; e == nil || e.trainer != id.PID {
		t.Errorf("PyTorch's worker became %+v", e)
	}
	if e := s.workers.staff[id.PID]; e != nil {
		t.Errorf("the trainer became %+v", e)
	}
	if e := s.workers.staff[worker2]; e == nil || e.trainer != 0 {
		t.Errorf("the pool's worker became %+v", e)
	}
	for pid, role := range map[int]rss.Role{id.PID: rss.RoleTrainer, worker1: rss.RoleWorker, worker2: rss.RoleWorker} {
		if got := s.last.Find(pid).Role; got != role {
			t.Errorf("process %d is %q, want %q", pid, got, role)
		}
	}
}
