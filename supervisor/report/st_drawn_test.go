package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

func dayRun() drawnRun {
	return drawnRun{node: "node7", length: 24 * time.Hour, every: time.Second, workers: 13, limit: 4 * rss.GiB, from: 0.45, to: 0.97}
}

// drawnRun describes a run that tests draw: a trainer whose memory grows, and
// workers whose RSS is a sawtooth because they are recycled.
type drawnRun struct {
	node    string
	task    int
	after   time.Duration // since dawn
	length  time.Duration
	every   time.Duration
	workers int
	limit   rss.Bytes
	from    float64 // share of the limit at the start
	to      float64 // and at the end
	oom     bool
	comm    string // of the workers
}

var dawn = time.Date(2026, 11, 21, 21, 14, 3, 0, time.FixedZone("", 3600))

func (d drawnRun) build() *record.Run {
	rnd := rand.New(rand.NewPCG(7, uint64(d.task)))
	if d.comm == "" {
		d.comm = "pt_data_worker"
	}
	b := record.NewBuilder(record.Meta{
		V: 1, ID: fmt.Sprintf("run-%s-%d", d.node, d.task), Node: d.node, Start: dawn.Add(d.after),
		Command: []string{"python3", "train.py"}, Job: &record.Job{ID: "4711", Task: d.task},
	})
	agent := b.Proc(record.Proc{ID: rss.ProcID{PID: 4000}, Comm: "torchrun", Role: rss.RoleAgent})
	trainer := b.Proc(record.Proc{ID: rss.ProcID{PID: 4001}, Comm: "python3", Role: rss.RoleTrainer})
	ours := b.Proc(record.Proc{ID: rss.ProcID{PID: 3999}, Comm: "rsswarden", Role: rss.RoleOther, Ours: true})
	cg := b.Limit(event.Limit{Name: event.LimitCgroup, Scope: event.ScopeStep, Accounting: event.AccountingCgroup, Enforcer: "kernel OOM killer"})
	sl := b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingPSS, Enforcer: "slurmstepd, by OverMemoryKill"})
	workers := make([]int, d.workers)
	born := make([]time.Duration, d.workers)
	period := max(d.length/12, time.Minute)
	begin := func(i int, at time.Duration) {
		workers[i] = b.Proc(record.Proc{ID: rss.ProcID{PID: 5000 + i + 100*int(at/period)}, Parent: 4001, Comm: d.comm, Role: rss.RoleWorker})
		born[i] = at
	}
	for i := range workers {
		begin(i, 0)
		born[i] = -period * time.Duration(i) / time.Duration(d.workers)
	}
	decision := uint64(0)
	for at := time.Duration(0); at <= d.length; at += d.every {
		share := float64(at) / float64(d.length)
		goal := float64(d.limit) * (d.from + (d.to-d.from)*share)
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
					Used: rss.Bytes(goal), LimitSize: d.limit, Threshold: d.limit / 10 * 9,
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
			put(workers[i], goal*0.5/float64(d.workers)*grown+40*mib+rnd.Float64()*4*mib, 120*mib*grown+20*mib, 12*mib)
		}
		sum := 0.0
		for i := range s.Procs {
			sum += float64(s.Procs[i].RSS())
		}
		used := rss.Bytes(goal * (0.94 + 0.05*math.Sin(share*60) + 0.01*rnd.Float64()))
		cache := rss.Bytes(float64(d.limit) * 0.07 * (1 + math.Sin(share*25)))
		s.Limits = []record.Reading{
			{Limit: cg, Used: used, UsedMax: used, Charged: min(used+cache, d.limit), WorkingSet: min(used+cache/2, d.limit), Size: d.limit, ETA: -1, Binding: true},
			{Limit: sl, Used: rss.Bytes(sum * 0.8), UsedMax: rss.Bytes(sum * 0.86), Size: d.limit, ETA: -1},
		}
		b.Sample(s)
	}
	if d.oom {
		kill := "SIGKILL"
		b.Event(record.Entry{At: d.length - 4*time.Second, Value: &event.Signal{Signal: "SIGUSR1", Sender: 812, Comm: "slurmstepd"}})
		b.Event(record.Entry{At: d.length, Value: &event.Exit{By: "command", Signal: &kill, Verdict: event.VerdictOOM, Kernel: []event.KernelKills{{Level: "/job", Kills: 1}}}})
	} else {
		code := 0
		b.Event(record.Entry{At: d.length, Value: &event.Exit{By: "command", Code: &code, Verdict: event.VerdictCarried}})
	}
	return b.Run()
}
