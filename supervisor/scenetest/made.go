package scenetest

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// Made is a run to be made up: what its trainer and its workers have at a share
// of the run's length.
type Made struct {
	ID    string
	Job   *record.Job
	Node  string
	Start time.Duration // after the first
	Lasts time.Duration
	Every time.Duration

	Limit   event.Limit // with its size; none where that is 0
	Used    func(x float64) rss.Bytes
	Trainer func(x float64) record.Usage
	Worker  func(x float64) record.Usage
	Workers int
	Fresh   int // the workers are replaced so many times

	Exit   *event.Exit // Outcome, Code and Signal
	Live   bool
	Events []record.Entry
}

func Gb(v float64) rss.Bytes { return rss.GiB.Scale(v) / rss.MiB * rss.MiB }

func Steady(anon, file, shmem float64) func(float64) record.Usage {
	return func(float64) record.Usage { return record.Usage{Anon: Gb(anon), File: Gb(file), Shmem: Gb(shmem)} }
}

func SlurmRSS(size float64) event.Limit {
	return event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeJob, Accounting: event.AccountingRSS, Limit: Gb(size),
		Enforcer: "slurmstepd, by OverMemoryKill", LimitSource: "RLIMIT_RSS",
	}
}

func CgroupLimit(size float64) event.Limit {
	return event.Limit{
		Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Limit: Gb(size), Level: "/sys/fs/cgroup/job_7",
		Enforcer: "kernel OOM killer", LimitSource: "/sys/fs/cgroup/job_7/memory.max",
	}
}

func Ended(code int, o event.RunOutcome) *event.Exit { return recordtest.Ended(code, "", o) }

func KilledBy(signal string, o event.RunOutcome) *event.Exit { return recordtest.Ended(0, signal, o) }

var madeStart = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

func (m Made) Run() *record.Run {
	if m.ID == "" {
		m.ID = "run"
	}
	if m.Lasts == 0 {
		m.Lasts = 2 * time.Hour
	}
	if m.Every == 0 {
		m.Every = m.Lasts / 200
	}
	if m.Trainer == nil {
		m.Trainer = Steady(1, 0, 0)
	}
	if m.Node == "" {
		m.Node = "node1"
	}
	b := record.NewBuilder(record.Meta{ID: m.ID, Node: m.Node, Command: []string{"python", "train.py"}, Start: madeStart.Add(m.Start), Job: m.Job})
	l := m.Limit
	size := l.Limit
	l.Limit = 0
	limit := -1
	if size > 0 {
		limit = b.Limit(l)
	}
	trainer := b.Proc(record.Proc{ID: rss.ProcID{PID: 100, Start: 1}, Comm: "python", Role: rss.RoleTrainer})
	workers := make([][]int, m.Fresh+1)
	for g := range workers {
		for i := range m.Workers {
			workers[g] = append(workers[g], b.Proc(record.Proc{ID: rss.ProcID{PID: 200 + 100*g + i, Start: 2}, Parent: 100, Comm: "python", Role: rss.RoleWorker}))
		}
	}
	var peak rss.Bytes
	for at := time.Duration(0); at <= m.Lasts; at += m.Every {
		x := float64(at) / float64(m.Lasts)
		s := record.Sample{At: at}
		t := m.Trainer(x)
		t.Proc = trainer
		s.Procs = append(s.Procs, t)
		g := min(int(x*float64(len(workers))), m.Fresh)
		for _, p := range workers[g] {
			u := m.Worker(x*float64(len(workers)) - float64(g))
			if m.Fresh == 0 {
				u = m.Worker(x)
			}
			u.Proc = p
			s.Procs = append(s.Procs, u)
		}
		var sum rss.Bytes
		for i := range s.Procs {
			sum += s.Procs[i].RSS()
		}
		if m.Used != nil {
			sum = m.Used(x)
		}
		if limit >= 0 {
			s.Limits = []record.Reading{{Limit: limit, Used: sum, UsedMax: sum, Size: size, ETA: -1}}
		}
		peak = max(peak, sum)
		b.Sample(&s)
	}
	for _, e := range m.Events {
		b.Event(e)
	}
	if e := m.Exit; e != nil {
		if limit >= 0 {
			l.Used, l.Limit = peak, size
			e.Binding = &l
		}
		b.Event(record.Entry{At: m.Lasts, Name: event.NameExit, Value: e})
	}
	r := b.Run()
	r.Live = m.Live
	return r
}

// Alike makes n clean runs with these peaks in GiB under a limit of 8 GiB.
func Alike(peaks ...float64) (runs []*record.Run) {
	for i, p := range peaks {
		runs = append(runs, Made{
			ID: fmt.Sprint("run", i+1), Start: time.Duration(i) * 3 * time.Hour, Limit: SlurmRSS(8),
			Trainer: Steady(p, 0, 0), Exit: Ended(0, event.RunOK),
		}.Run())
	}
	return runs
}
