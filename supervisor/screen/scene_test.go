package screen

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

var noon = time.Date(2026, 11, 22, 12, 3, 22, 0, time.UTC)

func seconds64(s float64) *float64 { return &s }

// scene is what one node says: ranks with a trainer and so many workers each.
func scene(name string, first, ranks, workers int) control.Status {
	const unit = 37 * rss.MiB
	s := control.Status{
		V: 1, Time: noon, Node: name, Job: "4711", Leader: 1000 + first, Version: "v0.7.0", Since: noon.Add(-2 * time.Hour),
		Rules: []string{"80%:warn", "eta<10m0s:warn", "85%:trim", "90%:recycle"},
		Ours:  []event.Cost{{Process: "watcher", PID: 1000 + first, RSS: 11 * rss.MiB, PSS: 5 * rss.MiB, CPU: 3.25}},
	}
	for i := range ranks {
		task := first + i
		pid := 40000 + 100*task
		s.Ranks = append(s.Ranks, control.Rank{
			Task: task, Step: "0", PID: pid, Holder: pid - 2, Watcher: pid - 1, Leads: i == 0, Command: "python train.py --epochs 90 --data /scratch/imagenet.lmdb",
			Since: noon.Add(-90 * time.Minute), RSS: unit.Scale(float64(50 + 7*i%13)), Anon: unit * 12, File: unit * 40, Shmem: unit * 2,
			Procs: workers + 1, Workers: workers, Recycled: i % 3, Hook: "recycle", Growth: 12e3,
		})
		s.Procs = append(s.Procs, control.Proc{
			PID: pid, Start: uint64(800000 + pid), Parent: pid - 2, Role: rss.RoleTrainer, Task: task, Step: "0", Comm: "python", State: "R",
			RSS: unit * 30, Anon: unit * 20, File: unit * 8, Shmem: unit * 2, Growth: 12e3, Maps: 4200, FDs: 311, Threads: 48,
		})
		for w := range workers {
			p := control.Proc{
				PID: pid + 1 + w, Start: uint64(800001 + pid + w), Parent: pid, Role: rss.RoleWorker, Task: task, Step: "0", Comm: "pt_data_worker", State: "S",
				RSS: unit.Scale(float64(20 + (task+3*w)%17)), Anon: unit * 3, File: unit.Scale(float64(16 + (task+3*w)%17)), Shmem: unit,
				Growth: float64(1+(w+task)%5) * 0.4e6, Threads: 2, CanRecycle: true, CanTrim: true,
			}
			s.Procs = append(s.Procs, p)
			s.Ranks[i].Growth += p.Growth
		}
	}
	limit := rss.Bytes(ranks) * 4 * rss.GiB
	s.Limits = []event.Limit{
		{
			Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Used: limit.Scale(0.823), Limit: limit, ETA: seconds64(724), Binding: true,
			Charged: limit.Scale(0.99), WorkingSet: limit.Scale(0.9), Enforcer: "kernel OOM killer", Level: "/sys/fs/cgroup/memory/slurm/uid_1000/job_4711",
			UsedSource: "memory.stat", LimitSource: "/sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.limit_in_bytes",
		},
		{
			Name: event.LimitSlurm, Scope: event.ScopeStep, Level: "4711.0", Accounting: event.AccountingPSS, Used: limit.Scale(0.61), UsedMax: limit.Scale(0.68), Age: 14,
			Limit: limit, Enforcer: "slurmstepd, by OverMemoryKill", UsedSource: "smaps_rollup", LimitSource: "RLIMIT_RSS",
		},
		{Name: event.LimitMaps, Scope: event.ScopeProcess, Used: 4200, Limit: 65530, PID: 40000 + 100*first, Role: rss.RoleTrainer, Enforcer: "kernel, by ENOMEM"},
		{Name: event.LimitFDs, Scope: event.ScopeProcess, Used: 311, Limit: 1024, PID: 40000 + 100*first, Role: rss.RoleTrainer, Enforcer: "kernel, by EMFILE"},
		{Name: event.LimitSHM, Scope: event.ScopeNode, Used: 500 * rss.MiB, Limit: 64 * rss.GiB, Enforcer: "kernel, by SIGBUS, or ENOSPC of write"},
		{Name: event.LimitTasks, Scope: event.ScopeUser, Used: 1200, Limit: 4096, Enforcer: "kernel, by EAGAIN of fork"},
		{Name: event.LimitTime, Scope: event.ScopeJob, ETA: seconds64(7200), Enforcer: "Slurm", Note: "the job ends at 2026-11-22T14:03:22Z"},
	}
	s.Last = []control.Outcome{
		{
			Outcome: event.Outcome{Head: event.Head{Time: noon.Add(-40 * time.Second)}, OK: true, PID: 40000 + 100*first + 2, Before: 3 * rss.GiB, Freed: 612 * rss.MiB, Duration: 0.41, Paused: 0.012},
			Action:  event.ActionRecycle, Rule: "90%:recycle",
		},
		{
			Outcome: event.Outcome{Head: event.Head{Time: noon.Add(-70 * time.Second)}, Reason: event.ReasonTooLittle, Before: 3 * rss.GiB, Freed: 3 * rss.MiB},
			Action:  event.ActionTrim, Rule: event.AskedFor,
		},
	}
	return s
}

var plainLook = Look{Unicode: true}

// shown is a live screen with an answer.
func shown(w, h int, statuses []control.Status, errs ...error) Model {
	m := New(w, h, plainLook)
	m.Live, m.Zone = true, time.UTC
	m, _ = m.Update(Answer{statuses, errs, noon})
	return m
}

// twoNodes is a job of two nodes with two ranks each.
func twoNodes() []control.Status {
	a, b := scene("n1", 0, 2, 4), scene("n2", 2, 2, 4)
	b.Limits[0].Used, b.Limits[0].ETA = b.Limits[0].Limit.Scale(0.912), seconds64(240)
	b.Action = &control.Action{Action: event.ActionRecycle, Rule: "90%:recycle", PIDs: []int{40201}, Since: noon.Add(-2 * time.Second)}
	return []control.Status{a, b}
}

var errSilent = errors.New("n2 does not answer: srun: error: Unable to create step for job 4711: Job/step already completing or completed")

// typed gives keys to a model one after the other.
func typed(m Model, keys ...Key) (Model, []Effect) {
	var all []Effect
	for _, k := range keys {
		var effects []Effect
		m, effects = m.Update(k)
		all = append(all, effects...)
	}
	return m, all
}

func letters(s string) (keys []Key) {
	for _, r := range s {
		keys = append(keys, Key(r))
	}
	return keys
}

// odd are names that would break a screen.
func odd() control.Status {
	s := scene("n1", 0, 1, 6)
	for i, name := range []string{"\x1b[31mred\x1b[0m", "数据加载器进程名", "tab\tand\nline", "\xff\xfe\x80", "e\u0301\u0301\u0301\u202eevil", "🐍python🐍", "a\u200bb\x7f"} {
		s.Procs[i].Comm = name
		s.Procs[i].RSS = rss.Bytes(100-i) * rss.MiB
	}
	s.Ranks[0].Command = "python \x1b]0;title\x07 " + fmt.Sprintf("%c", 0x9b)
	return s
}

func oddNodes() []control.Status { return []control.Status{odd()} }

func nodesOf(s ...control.Status) []control.Status { return s }

// grown is what a node says a second later: every worker has grown by what it
// said, and the rate itself changes a little.
func grown(s control.Status, n int) control.Status {
	s.Time = s.Time.Add(time.Second)
	s.Ranks, s.Procs, s.Limits = slices.Clone(s.Ranks), slices.Clone(s.Procs), slices.Clone(s.Limits)
	for i := range s.Procs {
		p := &s.Procs[i]
		p.RSS += rss.Bytes(p.Growth)
		p.File += rss.Bytes(p.Growth)
		if (i+n)%4 == 0 {
			p.Growth *= 1.01
		}
	}
	for i := range s.Ranks {
		s.Ranks[i].RSS += 8e6
		s.Ranks[i].Growth *= 1.002
	}
	s.Limits[0].Used += 500e6
	return s
}
