// Package scenetest makes the runs that tests of reports analyze and render.
package scenetest

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

const Minutes = 10 * time.Minute // the length of scenes

func Kills(n uint64) []event.KernelKills {
	return []event.KernelKills{{Level: LimitJob.Level + "/step_batch/task_0", Scope: event.ScopeCgroup, Kills: n, Leaf: true}}
}

// Requeues is an exit after which the job is in the queue again.
func Requeues(e record.Entry) record.Entry {
	exit := e.Value.(*event.Exit)
	exit.Outcome, exit.Next = event.RunRequeued, event.Next{Kind: event.NextRequeued, Option: "--mem", Size: Mem.Scale(1.25)}
	return e
}

// Pair is the use of two limits.
func Pair(a, b func(time.Duration) []rss.Bytes) func(time.Duration) []rss.Bytes {
	return func(at time.Duration) []rss.Bytes { return append(a(at), b(at)...) }
}

func EndsAfter(after time.Duration) *record.Job {
	j := InJob()
	j.End = Noon.Add(after)
	return j
}

func Eta(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// Missed is the exit event of a run that filled its cgroup between two samples.
func Missed() *event.Exit {
	e := Exits(Minutes, "", 1, Kills(1)...).Value.(*event.Exit)
	full := LimitJob
	full.Used, full.Limit = Mem.Scale(0.98), Mem
	e.Binding = &full
	return e
}

// Scene is a run that a test plays: a trainer and two workers, one sample a
// second, until its end.
type Scene struct {
	Job    *record.Job
	Limits []event.Limit
	Length time.Duration
	// Used is the use of the limits, in their order.
	Used  func(at time.Duration) []rss.Bytes
	Sizes []rss.Bytes
	Maps  func(at time.Duration) int // of the trainer
	// events come at their time; with none named exit the run breaks off.
	Events []record.Entry
	Live   bool
}

var (
	Noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

	LimitJob = event.Limit{
		Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Enforcer: "kernel OOM killer",
		Level:       "/sys/fs/cgroup/memory/slurm/uid_1000/job_12",
		UsedSource:  "/sys/fs/cgroup/memory/slurm/uid_1000/job_12/memory.usage_in_bytes and memory.stat",
		LimitSource: "/sys/fs/cgroup/memory/slurm/uid_1000/job_12/memory.limit_in_bytes",
	}
	LimitStepd = event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Enforcer: "slurmstepd, by OverMemoryKill",
		UsedSource: "VmRSS of /proc/PID/status, summed over the processes", LimitSource: "RLIMIT_RSS",
	}
	LimitJobSum = event.Limit{
		Name: event.LimitSlurm, Scope: event.ScopeJob, Accounting: event.AccountingRSS, Enforcer: "slurmd, by OverMemoryKill, at each ping (SlurmdTimeout/3 to 2/3)",
		UsedSource: "VmRSS of /proc/PID/status, summed over the processes, of 2 steps on this node", LimitSource: "RLIMIT_RSS",
	}
	LimitNode = event.Limit{
		Name: event.LimitNode, Scope: event.ScopeNode, Enforcer: "kernel OOM killer of the node",
		UsedSource: "meminfo: MemTotal - MemAvailable", LimitSource: "meminfo: MemTotal",
	}
	LimitUser = event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Enforcer: "rsswarden's rules alone", LimitSource: "--limit"}
	LimitSHM  = event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Enforcer: "SIGBUS", LimitSource: "statvfs /dev/shm"}
	LimitTask = event.Limit{Name: event.LimitTasks, Scope: event.ScopeJob, Enforcer: "kernel, by EAGAIN of fork", Level: "/sys/fs/cgroup/job_12", LimitSource: "/sys/fs/cgroup/slurm/job_12/pids.max"}
	LimitAddr = event.Limit{Name: event.LimitAS, Scope: event.ScopeProcess, Enforcer: "kernel, by ENOMEM of mmap and brk", LimitSource: "soft RLIMIT_AS of /proc/PID/limits"}
	LimitLock = event.Limit{Name: event.LimitMemlock, Scope: event.ScopeProcess, Enforcer: "kernel, by ENOMEM of mlock and of drivers", LimitSource: "soft RLIMIT_MEMLOCK of /proc/PID/limits"}
	LimitFD   = event.Limit{Name: event.LimitFDs, Scope: event.ScopeProcess, Enforcer: "EMFILE", LimitSource: "RLIMIT_NOFILE"}
)

const Mem = 3000 * rss.MiB // the --mem of scenes

func InJob() *record.Job {
	return &record.Job{ID: "12", Step: "batch", Nodes: 1, Tasks: 1, Dir: "/home/ann"}
}

func (s Scene) Run() *record.Run {
	m := record.Meta{
		V: 1, ID: "20261120T120000Z-12.batch.0-n1-700", Node: "n1", Start: Noon, Version: "1.0", Command: []string{"python", "train.py", "--epochs", "3"},
		Job: s.Job, MaxMapCount: 65530, MaxFDs: 1024,
	}
	b := record.NewBuilder(m)
	trainer := b.Proc(record.Proc{ID: rss.ProcID{PID: 701, Start: 9}, Parent: 700, Comm: "python", Role: rss.RoleTrainer})
	workers := []int{
		b.Proc(record.Proc{ID: rss.ProcID{PID: 702, Start: 10}, Parent: 701, Comm: "pt_data_worker", Role: rss.RoleWorker}),
		b.Proc(record.Proc{ID: rss.ProcID{PID: 703, Start: 10}, Parent: 701, Comm: "pt_data_worker", Role: rss.RoleWorker}),
	}
	ours := b.Proc(record.Proc{ID: rss.ProcID{PID: 700, Start: 8}, Parent: 600, Comm: "rsswarden", Role: rss.RoleOther, Extra: true, Ours: true})
	for _, l := range s.Limits {
		b.Limit(l)
	}
	for at := time.Duration(0); at <= s.Length; at += time.Second {
		sample := &record.Sample{At: at, Procs: []record.Usage{
			{Proc: trainer, Anon: 500 * rss.MiB, File: 100 * rss.MiB, Shmem: 50 * rss.MiB, PSS: 560 * rss.MiB, FDs: 40},
			{Proc: workers[0], Anon: 100 * rss.MiB, File: 80 * rss.MiB, PSS: 130 * rss.MiB},
			{Proc: workers[1], Anon: 110 * rss.MiB, File: 80 * rss.MiB, PSS: 140 * rss.MiB},
			{Proc: ours, Anon: 6 * rss.MiB, File: 6 * rss.MiB, PSS: 9 * rss.MiB},
		}}
		if s.Maps != nil {
			sample.Procs[0].Maps = s.Maps(at)
		}
		if s.Used != nil {
			for i, used := range s.Used(at) {
				sample.Limits = append(sample.Limits, record.Reading{Limit: i, Used: used, UsedMax: used, Charged: used, WorkingSet: used, Size: s.Sizes[i], ETA: -1, Binding: i == 0})
			}
		}
		b.Sample(sample)
	}
	for _, e := range s.Events {
		b.Event(e)
	}
	r := b.Run()
	r.Live = s.Live
	return r
}

// Using is a job of ten minutes that goes from one share of its memory to another.
func Using(from, to float64, events ...record.Entry) Scene {
	return Scene{Job: InJob(), Limits: []event.Limit{LimitJob}, Length: Minutes, Sizes: []rss.Bytes{Mem}, Used: Rising(Minutes, Mem, from, to), Events: events}
}

// Standing has the same shares all the time.
func Standing(sizes []rss.Bytes, shares ...float64) func(time.Duration) []rss.Bytes {
	return func(time.Duration) []rss.Bytes {
		out := make([]rss.Bytes, len(shares))
		for i := range out {
			out[i] = sizes[i].Scale(shares[i])
		}
		return out
	}
}

// Rising goes from one share to another, over the whole length.
func Rising(length time.Duration, size rss.Bytes, from, to float64) func(time.Duration) []rss.Bytes {
	return func(at time.Duration) []rss.Bytes {
		return []rss.Bytes{size.Scale(from + (to-from)*at.Seconds()/length.Seconds())}
	}
}

// Exits is the exit event of a command that a signal ended, or that exited.
func Exits(at time.Duration, signal string, code int, kernel ...event.KernelKills) record.Entry {
	outcome := event.RunOK
	switch {
	case signal == "SIGKILL":
		outcome = event.RunKilled
	case signal != "" || code != 0:
		outcome = event.RunFailed
	}
	e := recordtest.Ended(code, signal, outcome, kernel...)
	return record.Entry{At: at, Name: event.NameExit, Value: e}
}

func Signalled(at time.Duration, name string) record.Entry {
	return record.Entry{At: at, Name: event.NameSignal, Value: &event.Signal{Signal: name, Sender: 600, Comm: "slurmstepd", Forwarded: true}}
}

// AsJournal is what the journal of a run tells: roles in place of processes, a
// sample every two minutes and where a limit has moved by a tenth, limits on a
// count that are near.
func AsJournal(t *testing.T, r *record.Run) *record.Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	before := map[int]float64{}
	err := recordtest.WriteJournal(path, r, func(s *record.Sample) bool {
		moved := s.At%(2*time.Minute) == 0
		for _, l := range s.Limits {
			off := math.Abs(l.Ratio() - before[l.Limit])
			moved = moved || off >= 0.1 || l.Ratio() >= 0.8 && off >= 0.01
		}
		for _, l := range s.Limits {
			if moved {
				before[l.Limit] = l.Ratio()
			}
		}
		return moved
	})
	if err != nil {
		t.Fatal(err)
	}
	j, err := record.ReadJournal(path)
	if err != nil || len(j.Damage) > 0 {
		t.Fatal(err, j)
	}
	j.Sources, j.Live = nil, r.Live
	return j
}
