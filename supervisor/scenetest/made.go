package scenetest

import (
	"fmt"
	"math"
	"math/rand/v2"
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

func DayRun() DrawnRun {
	return DrawnRun{Node: "node7", Length: 24 * time.Hour, Every: time.Second, Workers: 13, Limit: 4 * rss.GiB, From: 0.45, To: 0.97}
}

// DrawnRun describes a run that tests draw: a trainer whose memory grows, and
// workers whose RSS is a sawtooth because they are recycled.
type DrawnRun struct {
	Node    string
	Task    int
	After   time.Duration // since dawn
	Length  time.Duration
	Every   time.Duration
	Workers int
	Limit   rss.Bytes
	From    float64 // share of the limit at the start
	To      float64 // and at the end
	Oom     bool
}

var Dawn = time.Date(2026, 11, 21, 21, 14, 3, 0, time.FixedZone("", 3600))

func (d DrawnRun) Build() *record.Run {
	rnd := rand.New(rand.NewPCG(7, uint64(d.Task)))
	b := record.NewBuilder(record.Meta{
		V: 1, ID: fmt.Sprintf("run-%s-%d", d.Node, d.Task), Node: d.Node, Start: Dawn.Add(d.After),
		Command: []string{"python3", "train.py"}, Job: &record.Job{ID: "4711", Task: d.Task},
	})
	agent := b.Proc(record.Proc{ID: rss.ProcID{PID: 4000}, Comm: "torchrun", Role: rss.RoleAgent})
	trainer := b.Proc(record.Proc{ID: rss.ProcID{PID: 4001}, Comm: "python3", Role: rss.RoleTrainer})
	ours := b.Proc(record.Proc{ID: rss.ProcID{PID: 3999}, Comm: "rsswarden", Role: rss.RoleOther, Ours: true})
	cg := b.Limit(event.Limit{Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Enforcer: "kernel OOM killer"})
	sl := b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingPSS, Enforcer: "slurmstepd, by OverMemoryKill"})
	workers := make([]int, d.Workers)
	born := make([]time.Duration, d.Workers)
	period := max(d.Length/12, time.Minute)
	begin := func(i int, at time.Duration) {
		workers[i] = b.Proc(record.Proc{ID: rss.ProcID{PID: 5000 + i + 100*int(at/period)}, Parent: 4001, Comm: "pt_data_worker", Role: rss.RoleWorker})
		born[i] = at
	}
	for i := range workers {
		begin(i, 0)
		born[i] = -period * time.Duration(i) / time.Duration(d.Workers)
	}
	decision := uint64(0)
	for at := time.Duration(0); at <= d.Length; at += d.Every {
		share := float64(at) / float64(d.Length)
		goal := float64(d.Limit) * (d.From + (d.To-d.From)*share)
		s := &record.Sample{At: at}
		put := func(p int, anon, file, shmem float64) {
			s.Procs = append(s.Procs, record.Usage{Proc: p, Anon: rss.Bytes(anon), File: rss.Bytes(file), Shmem: rss.Bytes(shmem)})
		}
		mib := float64(rss.MiB)
		put(ours, 9*mib, 4*mib, 0)
		put(agent, 180*mib, 40*mib, 0)
		put(trainer, goal*0.4+rnd.Float64()*8*mib, 300*mib, 90*mib+rnd.Float64()*30*mib)
		for i := range workers {
			age := at - born[i]
			if age > period {
				decision++
				b.Event(record.Entry{At: at, Value: &event.Decision{
					ID: decision, Rule: "90%:recycle", Limit: event.LimitCgroup, Action: event.ActionRecycle,
					Used: rss.Bytes(goal), LimitSize: d.Limit, Threshold: d.Limit / 10 * 9,
				}})
				o := &event.Outcome{Decision: decision, OK: decision%3 != 0, Freed: 300 * rss.MiB, Duration: 0.4, Paused: 0.014}
				if !o.OK {
					o.Reason = event.ReasonRecent
				}
				b.Event(record.Entry{At: at + time.Second, Value: o})
				begin(i, at)
				age = 0
			}
			grown := float64(age) / float64(period)
			put(workers[i], goal*0.5/float64(d.Workers)*grown+40*mib+rnd.Float64()*4*mib, 120*mib*grown+20*mib, 12*mib)
		}
		sum := 0.0
		for i := range s.Procs {
			sum += float64(s.Procs[i].RSS())
		}
		used := rss.Bytes(goal * (0.94 + 0.05*math.Sin(share*60) + 0.01*rnd.Float64()))
		cache := rss.Bytes(float64(d.Limit) * 0.07 * (1 + math.Sin(share*25)))
		s.Limits = []record.Reading{
			{Limit: cg, Used: used, UsedMax: used, Charged: min(used+cache, d.Limit), WorkingSet: min(used+cache/2, d.Limit), Size: d.Limit, ETA: -1, Binding: true},
			{Limit: sl, Used: rss.Bytes(sum * 0.8), UsedMax: rss.Bytes(sum * 0.86), Size: d.Limit, ETA: -1},
		}
		b.Sample(s)
	}
	if d.Oom {
		kill := "SIGKILL"
		b.Event(record.Entry{At: d.Length - 4*time.Second, Value: &event.Signal{Signal: "SIGUSR1", Sender: 812, Comm: "slurmstepd"}})
		b.Event(record.Entry{At: d.Length, Value: &event.Exit{By: "command", Signal: &kill, Brief: event.Brief{Outcome: event.RunOOM, Watched: event.WatchedAll}, Kernel: []event.KernelKills{{Level: "/job", Kills: 1}}}})
	} else {
		code := 0
		b.Event(record.Entry{At: d.Length, Value: &event.Exit{By: "command", Code: &code, Brief: event.Brief{Outcome: event.RunKept, Watched: event.WatchedAll}}})
	}
	return b.Run()
}
