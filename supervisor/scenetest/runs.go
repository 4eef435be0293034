package scenetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// Found is a finding as the watcher tells it, of process 702.
func Found(at time.Duration, f event.Finding, c event.Confidence, role rss.Role, size rss.Bytes) record.Entry {
	return record.Entry{At: at, Name: event.NameDiagnosis, Value: &event.Diagnosis{
		Head: event.Head{V: 1, Time: Noon.Add(at), Event: event.NameDiagnosis}, Finding: f, Confidence: c, Role: role, PID: 702, Bytes: size,
		Evidence: []string{fmt.Sprintf("%v of it in process 702 (status)", size), "a second sentence", "a third"},
		Advice:   []string{"write " + string(f) + " otherwise", "a second way", "a third way", "a fourth way"},
	}}
}

// Sends is the loader hook's warning that a data set takes so many.
func Sends(at time.Duration, s event.Sharing) record.Entry {
	s.Strategy, s.Workers, s.Tensors = "file_descriptor", 2, 9000
	return record.Entry{At: at, Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderPickling, PID: 701, Sharing: &s}}
}

// Spawned is the finding that goes with it.
func Spawned(at time.Duration) record.Entry {
	e := Found(at, event.FindingSpawn, event.Certain, rss.RoleTrainer, 36*rss.MiB)
	e.Value.(*event.Diagnosis).Evidence = []string{`the DataLoader of process 701 sends 9000 tensors to 2 workers by spawn`}
	e.Value.(*event.Diagnosis).Advice = []string{
		"one tensor for the whole data set (torch.stack, or one flat tensor with offsets) or numpy arrays, not a list of tensors: each tensor costs a mapping or a descriptor",
		`torch.multiprocessing.set_start_method("fork"), or DataLoader(multiprocessing_context="fork"), before CUDA is used: a forked worker is sent nothing (it is "spawn" now)`,
		"open the data in __init__ of the worker (worker_init_fn) and keep only paths in the data set",
	}
	return e
}

func Cure(at time.Duration, remedy event.Remedy, ok bool, before, after int64, reason string) record.Entry {
	return record.Entry{At: at, Name: event.NameCure, Value: &event.Cure{Remedy: remedy, PID: 702, OK: ok, Before: before, After: after, Reason: reason}}
}

// GrownScene is a run in which much was found, some of it more than once.
func GrownScene() Scene {
	return Scene{
		Job: InJob(), Limits: []event.Limit{LimitJob}, Length: Minutes, Sizes: []rss.Bytes{Mem}, Used: Rising(Minutes, Mem, 0.2, 0.7),
		Events: []record.Entry{
			Cure(0, event.RemedyArenas, true, 0, 2, ""),
			Cure(3*time.Second, event.RemedyOOMPrefer, true, 0, 500, ""),
			Cure(4*time.Second, event.RemedyOOMPrefer, true, 0, 500, ""),
			Cure(5*time.Second, event.RemedyNoFile, false, 1024, 1024, "the hard limit is 1024"),
			Found(time.Minute, event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 100*rss.MiB),
			Found(2*time.Minute, event.FindingPrefetch, event.Certain, rss.RoleWorker, 600*rss.MiB),
			Found(3*time.Minute, event.FindingMapped, event.Certain, rss.RoleWorker, 2*rss.GiB),
			Found(4*time.Minute, event.FindingWorkerLeak, event.Certain, rss.RoleWorker, 900*rss.MiB),
			Found(5*time.Minute, event.FindingWorkerLeak, event.Likely, rss.RoleWorker, 110*rss.MiB),
			Found(5*time.Minute, event.FindingPinned, event.Likely, rss.RoleTrainer, 90*rss.MiB),
			Found(6*time.Minute, event.FindingCopyOnWrite, event.Likely, rss.RoleWorker, 80*rss.MiB),
			Exits(Minutes, "", 0),
		},
	}
}

// GrownRanks are ranks of which three were found to do the same.
func GrownRanks() []*record.Run {
	runs := Ranks()
	for i, r := range runs[1:] {
		e := Found(time.Duration(10-i)*time.Second, event.FindingWorkerLeak, event.Certain, rss.RoleWorker, rss.Bytes(i+1)*rss.GiB)
		r.Events = append([]record.Entry{e}, r.Events...)
	}
	return runs
}

// InTurn are ranks of one node that each lead for a minute under one --limit of 1 GiB
// and then end, the first with the highest peak: 400 MiB, and less by 50 MiB each. Who
// took over calls its run unwatched, as it was not there from the start.
func InTurn(ranks int) (runs []*record.Run) {
	for n := range ranks {
		d := recordtest.Ranks{
			Node: "n1", Nodes: 1, Tasks: ranks, First: n, Count: ranks - n, Leader: n, Start: Noon, User: true, Limit: rss.GiB,
			From: time.Duration(n)*time.Minute + time.Second, To: time.Duration(n+1) * time.Minute,
			Share: func(time.Duration) float64 { return float64(400-50*n) / 1024 },
			Exit:  recordtest.Ended(0, "", recordtest.Unwatched),
		}
		if n == 0 {
			d.From, d.Exit = 0, recordtest.Ended(0, "", event.RunOK)
		}
		runs = append(runs, d.Run())
	}
	return runs
}

// LedTwice are two ranks of one node: task 0 leads a minute until its watcher is
// killed, task 1 leads two minutes and ends, and then task 0 leads again.
func LedTwice(t *testing.T) (twice, between *record.Run) {
	d := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 2, First: 0, Count: 2, Start: Noon, User: true, Limit: rss.GiB, To: time.Minute,
		Share: func(time.Duration) float64 { return 0.4 },
	}
	again, other := d, d
	again.Count, again.From, again.To = 1, 3*time.Minute+time.Second, 4*time.Minute
	again.Share = func(time.Duration) float64 { return 0.2 }
	again.Exit = recordtest.Ended(0, "", recordtest.Unwatched)
	other.Leader, other.From, other.To = 1, time.Minute+500*time.Millisecond, 3*time.Minute
	other.Share = func(time.Duration) float64 { return 0.3 }
	other.Exit = recordtest.Ended(0, "", recordtest.Unwatched)
	twice, ok := record.Join([]*record.Run{d.Run(), again.Run()})
	if !ok {
		t.Fatal("not joined")
	}
	return twice, other.Run()
}

// CarriedRun is a run that actions kept inside its limit.
func CarriedRun() *record.Run {
	s := Scene{
		Job: InJob(), Limits: []event.Limit{LimitJob, LimitStepd}, Length: Minutes, Sizes: []rss.Bytes{Mem, Mem},
		Used: func(at time.Duration) []rss.Bytes {
			saw := float64(at%(2*time.Minute)) / float64(2*time.Minute)
			return []rss.Bytes{Mem.Scale(0.5 + 0.45*saw), Mem.Scale(0.3 + 0.1*saw)}
		},
	}
	s.Maps = func(at time.Duration) int { return 20000 + int(at/time.Second) }
	for i := range 5 {
		at := time.Duration(i+1) * 2 * time.Minute
		id := uint64(2*i + 1)
		s.Events = append(s.Events,
			record.Entry{At: at - 20*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: id, Rule: "80%:warn", Limit: event.LimitCgroup, Action: event.ActionWarn, Used: Mem.Scale(0.8), LimitSize: Mem}},
			record.Entry{At: at - 2*time.Second, Name: event.NameDecision, Value: &event.Decision{ID: id + 1, Rule: "90%:recycle", Limit: event.LimitCgroup, Action: event.ActionRecycle, Used: Mem.Scale(0.94), LimitSize: Mem}},
		)
		o := &event.Outcome{Decision: id + 1, OK: i != 3, Freed: 1200 * rss.MiB, Duration: 0.4, Paused: 0.014, PID: 702}
		if !o.OK {
			o.Freed, o.Paused, o.Reason = 0, 0, event.ReasonRecent
		}
		s.Events = append(s.Events, record.Entry{At: at - time.Second, Name: event.NameOutcome, Value: o})
	}
	code := 0
	sum, unreclaimable := 1000*rss.MiB, Mem.Scale(0.951)
	s.Events = append(s.Events, record.Entry{At: Minutes, Name: event.NameExit, Value: &event.Exit{
		By: "command", Code: &code, Brief: event.Brief{Outcome: event.RunKept, Memory: event.MemoryTight, Helped: event.HelpedYes, Watched: event.WatchedAll, Next: event.Next{Kind: event.NextKeep, Option: "--mem", Size: Mem}}, Advice: Mem, Peaks: event.Peaks{RSS: &sum, Cgroup: &unreclaimable},
	}})
	return s.Run()
}

// Ranks are four tasks on two nodes of which one dies by the kernel's hand and
// the others of its end.
func Ranks() []*record.Run {
	var out []*record.Run
	for task := range 4 {
		j := &record.Job{ID: "12", Step: "0", Task: task, Tasks: 4, Nodes: 2, End: Noon.Add(time.Hour)}
		s := Scene{Job: j, Limits: []event.Limit{LimitJob}, Length: Minutes, Sizes: []rss.Bytes{Mem}, Used: Rising(Minutes, Mem, 0.2, 0.5+0.16*float64(task))}
		s.Events = []record.Entry{Signalled(Minutes+2*time.Second, "SIGTERM"), Exits(Minutes+4*time.Second, "", 1)}
		if task == 3 {
			s.Events = []record.Entry{Exits(Minutes+500*time.Millisecond, "SIGKILL", 0, Kills(1)...)}
		}
		r := s.Run()
		r.Meta.Node, r.Meta.ID = "n"+string('1'+rune(task/2)), "run"+string('0'+rune(task))
		out = append(out, r)
	}
	return out
}

// OnNode is the leader's record of one of two nodes with two ranks each, over ten
// minutes; all of it ends well.
func OnNode(n int) recordtest.Ranks {
	first := 2 * (n - 1)
	return recordtest.Ranks{
		Node: fmt.Sprint("n", n), NodeID: n - 1, Nodes: 2, Tasks: 4, First: first, Count: 2, Leader: first, Heavy: first + 1,
		Start: Noon, To: Minutes, Workers: 2, Limit: 4 * rss.GiB, Share: recordtest.Rising(Minutes, 0.3, 0.4+0.2*float64(n)),
		Ends: []recordtest.RankEnd{{Task: first + 1, At: Minutes}}, Exit: recordtest.Ended(0, "", event.RunOK),
	}
}

func Built(nodes ...recordtest.Ranks) (runs []*record.Run) {
	for _, n := range nodes {
		runs = append(runs, n.Run())
	}
	return runs
}

// OomOnN2: task 3 is killed on n2, and srun ends the others for it.
func OomOnN2() []*record.Run {
	n1, n2 := OnNode(1), OnNode(2)
	killed := Minutes - 4*time.Second
	n2.Share = func(at time.Duration) float64 {
		if at > killed {
			return 0.4
		}
		return recordtest.Rising(killed, 0.3, 0.99)(at)
	}
	n2.Ends = []recordtest.RankEnd{{Task: 3, At: killed, Signal: "SIGKILL"}}
	n2.Exit = recordtest.Ended(0, "SIGTERM", event.RunOOM, event.KernelKills{Level: "/job", Scope: event.ScopeJob, Kills: 1})
	n1.Ends = []recordtest.RankEnd{{Task: 1, At: Minutes - time.Second, Signal: "SIGTERM"}}
	n1.Exit = recordtest.Ended(0, "SIGTERM", event.RunCancelled)
	n2.Recycles = []time.Duration{4 * time.Minute, 6 * time.Minute}
	runs := Built(n1, n2)
	for _, r := range runs {
		at := Minutes - 2*time.Second
		e := Signalled(at, "SIGTERM")
		r.Events = append(r.Events[:len(r.Events)-1:len(r.Events)-1], e, r.Events[len(r.Events)-1])
	}
	return runs
}

// LeadMoved: the watcher of task 2 is killed on n2, and that of task 3 goes on.
func LeadMoved() []*record.Run {
	a, b := OnNode(2), OnNode(2)
	a.To, a.Exit, a.Ends = 5*time.Minute, nil, nil
	b.From, b.Leader = 5*time.Minute+1500*time.Millisecond, 3
	b.Ends = []recordtest.RankEnd{{Task: 2, At: Minutes - time.Second}}
	return Built(OnNode(1), a, b)
}

// SecondAttempt: the job died on n2 for want of memory and was requeued with more.
func SecondAttempt() []*record.Run {
	runs := OomOnN2()
	for n := 1; n <= 2; n++ {
		again := OnNode(n)
		again.Restart, again.Start, again.Limit = 1, Noon.Add(time.Hour), 6*rss.GiB
		runs = append(runs, again.Run())
	}
	return runs
}

// SixtyFour are as many nodes with eight ranks each, of which one node came nearer
// than the others.
func SixtyFour(length time.Duration) (runs []*record.Run) {
	for n := range 64 {
		d := recordtest.Ranks{
			Node: fmt.Sprintf("n%02d", n+1), NodeID: n, Nodes: 64, Tasks: 512, First: 8 * n, Count: 8, Leader: 8 * n, Heavy: 8*n + 5,
			Start: Noon.Add(time.Duration(n) * 10 * time.Millisecond), To: length, Workers: 4, Limit: 64 * rss.GiB,
			Share: recordtest.Rising(length, 0.3, 0.5+0.001*float64(n)), Exit: recordtest.Ended(0, "", event.RunOK),
		}
		if n == 40 {
			d.Share = recordtest.Rising(length, 0.3, 0.93)
		}
		for task := 8*n + 1; task < 8*n+8; task++ {
			d.Ends = append(d.Ends, recordtest.RankEnd{Task: task, At: length})
		}
		runs = append(runs, d.Run())
	}
	return runs
}
