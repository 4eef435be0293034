package workers

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

func proc(pid int, anon, file rss.Bytes) rss.Proc {
	return rss.Proc{ID: rss.ProcID{PID: pid, Start: 1}, State: 'S', RSS: anon + file, Anon: anon, File: file, Virtual: 10 * (anon + file)}
}

// staffed knows one trainer, PID 1, with these workers.
func staffed(workers ...int) *Workers {
	f := New(Options{Proc: "/proc"})
	f.trainers = []event.Trainer{{
		ID: rss.ProcID{PID: 1, Start: 1}, CanRecycle: true,
		Loaders: []event.DataLoader{{N: 1, NumWorkers: len(workers), CanRecycle: true, Workers: workers}},
	}}
	return f
}

// see updates with a sample of these.
func (w *Workers) see(procs ...rss.Proc) { w.Update(&rss.Sample{Procs: procs}, nil) }

// needsTen has a worker report that it came to 10 bytes of its own and stayed there.
func needsTen(w *Workers, pid int) { w.Grown(w.trainers[0].ID, pid, 8, 10, 10) }

func TestStaffIsThoseWhoLive(t *testing.T) {
	f := staffed(11, 12, 13, 0)
	dead := proc(12, 5, 5)
	dead.State = 'Z'
	f.see(proc(1, 9, 9), proc(11, 5, 7), dead)
	if len(f.staff) != 1 || f.staff[11] == nil || f.staff[11].trainer != 1 || !f.staff[11].able {
		t.Errorf("staff %+v, want worker 11 alone", f.staff)
	}
	if f.leastFile != 7 {
		t.Errorf("least file %d, want 7", f.leastFile)
	}
}

// TestGivenOutPID: a PID that another process has now is another worker.
func TestGivenOutPID(t *testing.T) {
	f := staffed(11)
	f.see(proc(1, 100, 0), proc(11, 300, 0))
	f.took[9] = 11
	f.see(proc(1, 100, 0), proc(11, 300, 0))
	f.trainers[0].Loaders[0].Workers = nil // the epoch ends
	f.see(proc(1, 100, 0))
	if len(f.took) != 0 {
		t.Errorf("still remembers %v", f.took)
	}
	f.trainers[0].Loaders[0].Workers = []int{11} // the next begins
	again := proc(11, 100, 0)
	again.ID.Start = 2
	s := &rss.Sample{Mono: time.Minute, Procs: []rss.Proc{proc(1, 100, 0), again}}
	f.Update(s, nil)
	if e := f.staff[11]; e.id != again.ID || e.first.Anon != 100 || e.since != time.Minute || e.fresh {
		t.Errorf("taken for the one before: %+v", e)
	}
}

func TestReplacedWorkerThatLeaves(t *testing.T) {
	f := staffed(12)
	f.trainers[0].Loaders[0].Leaving = []int{11}
	f.took[11] = 12
	s := &rss.Sample{Procs: []rss.Proc{proc(1, 1, 0), proc(11, 1, 0), proc(12, 1, 0)}}
	f.Update(s, nil)
	if f.took[11] != 12 || !f.staff[12].fresh || f.staff[11] != nil {
		t.Errorf("took %v, staff %v", f.took, f.staff)
	}
	f.trainers[0].Loaders[0] = event.DataLoader{N: 1, NumWorkers: 2, Workers: []int{11, 12}} // 11 was given out again
	f.Update(s, nil)
	if _, ok := f.took[11]; ok {
		t.Error("the replacement still stands for the worker that has its old PID")
	}
}

func TestCounted(t *testing.T) {
	p := proc(1, 100, 30)
	p.Shmem, p.RSS = 20, 150
	for acc, want := range map[event.Accounting]rss.Bytes{
		event.AccountingRSS: 150, event.AccountingNoShared: 100, event.AccountingCgroup: 100,
		event.AccountingVirtual: 1300, event.AccountingPSS: 0,
	} {
		if got := Counted(&p, acc); got != want {
			t.Errorf("%s: %d, want %d", acc, got, want)
		}
	}
}

// TestTorchWorkerIsNoPoolWorker: --worker-match may match a whole training, and
// a signal to a worker of PyTorch's ends it.
func TestTorchWorkerIsNoPoolWorker(t *testing.T) {
	f := staffed(11)
	f.Pools = *madeUpPools(nil, "")
	procs := []rss.Proc{proc(2, 1, 0), proc(1, 10, 0), proc(11, 10, 0), proc(21, 10, 0)}
	for i, parent := range []int{0, 2, 1, 2} {
		procs[i].Parent = parent
		f.Pools.says(&procs[i], true)
		f.readEnviron(t, &procs[i], "")
	}
	f.Update(&rss.Sample{Procs: procs}, map[int]rss.Role{1: rss.RoleTrainer, 11: rss.RoleWorker}, procs[0].ID)
	if e := f.staff[11]; e == nil || e.trainer != 1 {
		t.Errorf("PyTorch's worker became %+v", e)
	}
	if e := f.staff[1]; e != nil {
		t.Errorf("the trainer became %+v", e)
	}
	if e := f.staff[21]; e == nil || e.trainer != 0 || !e.able {
		t.Errorf("the pool's worker became %+v", e)
	}
	for i, role := range []rss.Role{"", rss.RoleTrainer, rss.RoleWorker, rss.RoleWorker} {
		if procs[i].Role != role {
			t.Errorf("process %d is %q, want %q", procs[i].ID.PID, procs[i].Role, role)
		}
	}
}
