package recordtest

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Ranks describes what the leader of one node leaves behind: a record of all ranks
// of the job there, each a trainer with loader workers.
type Ranks struct {
	Job     string // "12" if empty
	Step    string // "0" if empty
	Restart int
	Node    string
	NodeID  int
	Nodes   int // of the job
	Tasks   int // of the step
	// First and Count are the tasks on the node, Leader that of the run.
	First, Count, Leader int
	Start                time.Time // when the ranks began
	// From and To are what the leader recorded, since Start, a sample each Every.
	From, To, Every time.Duration
	Workers         int // of each rank
	Limit           rss.Bytes
	// User says that the limit is that of --limit, which is on the tree, in place of
	// one of a cgroup.
	User bool
	// Share is what is used of the limit, and Heavy the task that has twice as much
	// of it as each other.
	Share func(at time.Duration) float64
	Heavy int
	Ends  []RankEnd
	// Beside says that the other ranks' processes are counted beside the leader's
	// tree.
	Beside bool
	// Recycles are when a rule had a worker replaced.
	Recycles []time.Duration
	// Exit is the last event, nil where the record breaks off.
	Exit *event.Exit
}

// RankEnd is how one rank ended, Signal if it is not empty.
type RankEnd struct {
	Task   int
	At     time.Duration // since Start
	Code   int
	Signal string
}

// Rising goes from one share to another over a length of time.
func Rising(length time.Duration, from, to float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 { return from + (to-from)*float64(at)/float64(length) }
}

// Unwatched takes the place of an outcome where the watcher was not there all the time.
const Unwatched event.RunOutcome = ""

// Ended is the exit event of a rank with that status, or signal.
func Ended(code int, signal string, outcome event.RunOutcome, kernel ...event.KernelKills) *event.Exit {
	e := &event.Exit{By: "command", Brief: event.Brief{Outcome: outcome, Watched: event.WatchedAll}, Kernel: kernel}
	if outcome == Unwatched {
		e.Outcome, e.Watched = event.RunOK, event.WatchedParts
	}
	if signal != "" {
		e.Signal = &signal
	} else {
		e.Code = &code
	}
	return e
}

// PIDs of a task: its holder, its watcher, its trainer and its first worker.
func pids(task int) (holder, watcher, trainer, worker int) {
	base := 10000 + 100*task
	return base, base + 1, base + 2, base + 3
}

func (d *Ranks) fill() {
	d.Job, d.Step = cmp.Or(d.Job, "12"), cmp.Or(d.Step, "0")
	d.Every = cmp.Or(d.Every, time.Second)
	d.Limit = cmp.Or(d.Limit, 4*rss.GiB)
	if d.Share == nil {
		d.Share = Rising(d.To, 0.3, 0.6)
	}
}

func (d Ranks) Run() *record.Run {
	d.fill()
	holder, watcher, trainer, _ := pids(d.Leader)
	job := &record.Job{ID: d.Job, Step: d.Step, Task: d.Leader, Tasks: d.Tasks, NodeID: d.NodeID, Nodes: d.Nodes, Restarts: d.Restart, Cluster: "lab"}
	b := record.NewBuilder(record.Meta{
		V: record.Version, ID: record.NewID(d.Start, job, d.Node, holder), Node: d.Node, BootID: "boot of " + d.Node, Start: d.Start,
		Version: "test", Command: []string{"python", "train.py"}, Holder: holder, Process: rss.ProcID{PID: trainer, Start: uint64(trainer)}, Job: job, MaxMapCount: 65530, MaxFDs: 1024,
	})
	b.Limit(d.limit())
	procs := map[int][]int{} // of a task
	for task := d.First; task < d.First+d.Count; task++ {
		h, w, trainer, worker := pids(task)
		own := task == d.Leader
		beside := d.Beside && !own
		add := func(p record.Proc) int {
			p.ID.Start = uint64(p.ID.PID)
			return b.Proc(p)
		}
		add(record.Proc{ID: rss.ProcID{PID: h}, Parent: 900, Comm: "rsswarden", Role: rss.RoleOther, Extra: true, Ours: own})
		add(record.Proc{ID: rss.ProcID{PID: w}, Parent: h, Comm: "rsswarden", Role: rss.RoleOther, Extra: true, Ours: own})
		procs[task] = append(procs[task], add(record.Proc{ID: rss.ProcID{PID: trainer}, Parent: h, Comm: "python", Role: rss.RoleTrainer, Extra: beside}))
		for n := range d.Workers {
			procs[task] = append(procs[task], add(record.Proc{ID: rss.ProcID{PID: worker + n}, Parent: trainer, Comm: "pt_data_worker", Role: rss.RoleWorker, Extra: beside}))
		}
	}
	for at := d.From; at <= d.To; at += d.Every {
		b.Sample(d.sample(at, procs))
	}
	put := func(at time.Duration, name event.Name, v any) { b.Event(record.Entry{At: at, Name: name, Value: v}) }
	head := func(at time.Duration, name event.Name) event.Head {
		return event.Head{V: event.Version, Time: d.Start.Add(at), Event: name}
	}
	rank := func(at time.Duration, what event.RankNews, task int) *event.Rank {
		h, _, trainer, _ := pids(task)
		return &event.Rank{Head: head(at, event.NameRank), What: what, Task: task, Step: d.Step, Node: d.Node, PID: trainer, Holder: h, Leader: watcher}
	}
	put(d.From, event.NameRank, rank(d.From, event.RankLeads, d.Leader))
	for task := d.First; task < d.First+d.Count; task++ {
		if task != d.Leader {
			put(d.From, event.NameRank, rank(d.From, event.RankJoined, task))
		}
	}
	for n, at := range d.Recycles {
		used := d.Limit.Scale(d.Share(at))
		put(at, event.NameDecision, &event.Decision{Head: head(at, event.NameDecision), ID: uint64(n + 1), Rule: "90%:recycle", Limit: event.LimitCgroup, Action: event.ActionRecycle, Used: used, LimitSize: d.Limit})
		put(at+time.Second, event.NameOutcome, &event.Outcome{Head: head(at+time.Second, event.NameOutcome), Decision: uint64(n + 1), OK: true, Freed: 100 * rss.MiB, Duration: 0.5, Paused: 0.01})
	}
	for _, e := range d.Ends {
		r := rank(e.At, event.RankEnded, e.Task)
		if r.Signal = &e.Signal; e.Signal == "" {
			r.Signal, r.Code = nil, &e.Code
		}
		put(e.At, event.NameRank, r)
	}
	if d.Exit != nil {
		e := *d.Exit
		e.Head = head(d.To, event.NameExit)
		if e.Binding == nil {
			e.Binding = d.binding()
		}
		put(d.To, event.NameExit, &e)
	}
	r := b.Run()
	slices.SortStableFunc(r.Events, func(a, b record.Entry) int { return cmp.Compare(a.At, b.At) })
	return r
}

func (d *Ranks) limit() event.Limit {
	if d.User {
		return event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Enforcer: "rsswarden's rules alone", LimitSource: "--limit"}
	}
	level := "/sys/fs/cgroup/memory/slurm/uid_1000/job_" + d.Job
	return event.Limit{
		Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Enforcer: "kernel OOM killer",
		Level: level, LimitSource: level + "/memory.limit_in_bytes",
	}
}

func (d *Ranks) binding() *event.Limit {
	l := d.limit()
	l.Limit, l.Binding = d.Limit, true
	for at := d.From; at <= d.To; at += d.Every {
		l.Used = max(l.Used, d.Limit.Scale(d.Share(at))/rss.KiB*rss.KiB)
	}
	l.UsedMax = l.Used
	return &l
}

func (d *Ranks) sample(at time.Duration, procs map[int][]int) *record.Sample {
	used := d.Limit.Scale(d.Share(at)) / rss.KiB * rss.KiB
	s := &record.Sample{At: at, Limits: []record.Reading{{Used: used, UsedMax: used, Charged: used, WorkingSet: used, Size: d.Limit, ETA: -1, Binding: true}}}
	share := used / rss.Bytes(d.Count+1)
	for task := d.First; task < d.First+d.Count; task++ {
		if d.gone(task, at) {
			continue
		}
		own := share
		if task == d.Heavy {
			own *= 2
		}
		list := procs[task]
		each := own / rss.Bytes(len(list)+1)
		for n, p := range list {
			u := record.Usage{Proc: p, Anon: each / rss.KiB * rss.KiB}
			if n == 0 {
				u.Anon *= 2
			}
			s.Procs = append(s.Procs, u)
		}
	}
	return s
}

func (d *Ranks) gone(task int, at time.Duration) bool {
	for _, e := range d.Ends {
		if e.Task == task && at > e.At {
			return true
		}
	}
	return false
}
