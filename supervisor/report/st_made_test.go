package report

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// made is a run to be made up: what its trainer and its workers have at a share
// of the run's length.
type made struct {
	id      string
	command []string
	job     *record.Job
	node    string
	start   time.Duration // after the first
	lasts   time.Duration
	every   time.Duration

	limit   event.Limit // with its size; none where that is 0
	used    func(x float64) rss.Bytes
	trainer func(x float64) record.Usage
	worker  func(x float64) record.Usage
	workers int
	fresh   int // the workers are replaced so many times

	exit    *event.Exit // Verdict, Code and Signal; the rest is as policy has it
	live    bool
	journal bool
	events  []record.Entry
}

func gb(v float64) rss.Bytes { return rss.GiB.Scale(v) / rss.MiB * rss.MiB }

func steady(anon, file, shmem float64) func(float64) record.Usage {
	return func(float64) record.Usage { return record.Usage{Anon: gb(anon), File: gb(file), Shmem: gb(shmem)} }
}

func slurmRSS(size float64) event.Limit {
	return event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeJob, Accounting: event.AccountingRSS, Limit: gb(size),
		Enforcer: "slurmstepd, by OverMemoryKill", LimitSource: "RLIMIT_RSS",
	}
}

func cgroupLimit(size float64) event.Limit {
	return event.Limit{
		Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Limit: gb(size), Level: "/sys/fs/cgroup/job_7",
		Enforcer: "kernel OOM killer", LimitSource: "/sys/fs/cgroup/job_7/memory.max",
	}
}

func ended(code int, v event.Verdict) *event.Exit {
	return &event.Exit{By: "command", Code: &code, Verdict: v}
}

func killedBy(signal string, v event.Verdict) *event.Exit {
	return &event.Exit{By: "command", Signal: &signal, Verdict: v}
}

var madeStart = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

// run makes the record of it.
func (m made) run() *record.Run {
	if m.id == "" {
		m.id = "run"
	}
	if m.command == nil {
		m.command = []string{"python", "train.py"}
	}
	if m.lasts == 0 {
		m.lasts = 2 * time.Hour
	}
	if m.every == 0 {
		m.every = m.lasts / 200
	}
	if m.trainer == nil {
		m.trainer = steady(1, 0, 0)
	}
	if m.node == "" {
		m.node = "node1"
	}
	b := record.NewBuilder(record.Meta{ID: m.id, Node: m.node, Command: m.command, Start: madeStart.Add(m.start), Job: m.job})
	l := m.limit
	size := l.Limit
	l.Limit = 0
	limit := -1
	if size > 0 {
		limit = b.Limit(l)
	}
	trainer := b.Proc(record.Proc{ID: rss.ProcID{PID: 100, Start: 1}, Comm: "python", Role: rss.RoleTrainer})
	workers := make([][]int, m.fresh+1)
	for g := range workers {
		for i := range m.workers {
			workers[g] = append(workers[g], b.Proc(record.Proc{ID: rss.ProcID{PID: 200 + 100*g + i, Start: 2}, Parent: 100, Comm: "python", Role: rss.RoleWorker}))
		}
	}
	var peak rss.Bytes
	for at := time.Duration(0); at <= m.lasts; at += m.every {
		x := float64(at) / float64(m.lasts)
		s := record.Sample{At: at}
		t := m.trainer(x)
		t.Proc = trainer
		s.Procs = append(s.Procs, t)
		g := min(int(x*float64(len(workers))), m.fresh)
		for _, p := range workers[g] {
			u := m.worker(x*float64(len(workers)) - float64(g))
			if m.fresh == 0 {
				u = m.worker(x)
			}
			u.Proc = p
			s.Procs = append(s.Procs, u)
		}
		var sum rss.Bytes
		for i := range s.Procs {
			sum += s.Procs[i].RSS()
		}
		if m.used != nil {
			sum = m.used(x)
		}
		if limit >= 0 {
			s.Limits = []record.Reading{{Limit: limit, Used: sum, UsedMax: sum, Size: size, ETA: -1}}
		}
		if m.journal {
			for i, u := range s.Procs {
				role := rss.RoleWorker
				if i == 0 {
					role = rss.RoleTrainer
				}
				s.Roles = append(s.Roles, record.RoleSum{Role: role, Count: 1, Anon: u.Anon, File: u.File, Shmem: u.Shmem, RSS: u.RSS()})
			}
		}
		peak = max(peak, sum)
		b.Sample(&s)
	}
	for _, e := range m.events {
		b.Event(e)
	}
	if e := m.exit; e != nil {
		if limit >= 0 {
			l.Used, l.Limit = peak, size
			e.Binding = &l
		}
		if e.AdviceWhy == "" {
			a := policy.Advise(policy.Run{
				Binding: e.Binding, Watched: e.Verdict != event.VerdictUnwatched, FirstRung: size.Scale(0.8),
				Stopped: e.Verdict == event.VerdictStopped, Killed: e.Verdict == event.VerdictKilled, Asked: e.Verdict == event.VerdictAsked,
				Failed: e.Signal != nil || e.Code != nil && *e.Code != 0,
			})
			switch e.Verdict {
			case event.VerdictCarried:
				a = policy.Advise(policy.Run{Binding: e.Binding, Watched: true, Helped: 1})
			case event.VerdictOOM:
				a = policy.Advise(policy.Run{Binding: e.Binding, Watched: true, OOMKills: 1})
			}
			e.Advice, e.AdviceWhy = a.Mem, a.Why
		}
		b.Event(record.Entry{At: m.lasts, Name: event.NameExit, Value: e})
	}
	r := b.Run()
	r.Live = m.live
	return r
}

// alike makes n clean runs with these peaks in GiB under a limit of 8 GiB.
func alike(peaks ...float64) (runs []*record.Run) {
	for i, p := range peaks {
		runs = append(runs, made{
			id: fmt.Sprint("run", i+1), start: time.Duration(i) * 3 * time.Hour, limit: slurmRSS(8),
			trainer: steady(p, 0, 0), exit: ended(0, event.VerdictFine),
		}.run())
	}
	return runs
}
