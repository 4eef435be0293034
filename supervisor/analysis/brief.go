package analysis

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// Brief is what every surface says of a run: one outcome, one peak, one ledger of actions
// and one advice. Nothing that shows it computes a number of its own.
type Brief struct {
	event.Brief

	// ID names the run in a command, and Job is the Slurm job; either may be empty.
	ID      string   `json:"id,omitempty"`
	Job     string   `json:"job,omitempty"`
	Node    string   `json:"node,omitempty"`
	Command []string `json:"command"`
	// Attached says what became of what was watched from outside; empty for a run of ours.
	Attached string `json:"attached,omitempty"`

	Code   *int    `json:"code"`   // nil where a signal ended it, or it is not known
	Signal *string `json:"signal"` // "SIGKILL", nil where it exited
	Kills  uint64  `json:"oom_kills,omitempty"`
	// Peak is the limit on the job's memory that came nearest, at its highest use; nil where
	// the job has none. NodeLimit is then the node's, and Most the highest summed RSS.
	Peak      *event.Limit `json:"peak"`
	NodeLimit *event.Limit `json:"node_limit,omitempty"`
	Most      rss.Bytes    `json:"peak_rss_bytes,omitempty"`
	// LackedLimit is what there was none left of, where the outcome is exhausted.
	LackedLimit *event.Limit `json:"lacked_limit,omitempty"`
	// At is the last moment of a record that has no end.
	At time.Time `json:"time,omitzero"`
	// Need is what the whole job will need, estimated; nil where too little was seen.
	Need     *Need `json:"need,omitempty"`
	Probably bool  `json:"probably,omitempty"` // the outcome is inferred, the end was not seen
	Recorded bool  `json:"-"`                  // there is a record that a report can read
}

// BriefOf is what an exit event says.
func BriefOf(e *event.Exit) Brief {
	b := Brief{Brief: e.Brief, Code: e.Code, Signal: e.Signal, Peak: e.Binding}
	for _, k := range e.Kernel {
		if k.Leaf || k.Scope != event.ScopeCgroup {
			b.Kills = max(b.Kills, k.Kills)
		}
	}
	if e.Peaks.RSS != nil {
		b.Most = *e.Peaks.RSS
	}
	return b
}

// Duration is how long it ran.
func (b *Brief) Duration() time.Duration { return Seconds(b.Took) }

// OK says that the command ended with status 0.
func (b *Brief) OK() bool { return b.Code != nil && *b.Code == 0 }

// Trims counts trims of all kinds that worked.
func (b *Brief) Trims() int { return b.Saved.Sum(event.ActionTrim).Worked + b.Saved.WorkerTrims }

// causeRows are what a cause that was seen, or that Slurm names, makes of a run, the limit that
// it is about, and its rank among the causes of several ends: what ended others first, with 0,
// and what they died of next. A good end needs more than its cause.
var causeRows = map[event.Cause]struct {
	outcome event.RunOutcome
	lacked  event.LimitName
	rank    int
}{
	event.CauseKernelOOM: {outcome: event.RunOOM},
	event.CauseNodeOOM:   {outcome: event.RunOOM},
	event.CauseOverKill:  {outcome: event.RunSlurmKill},
	event.CauseTimeLimit: {outcome: event.RunTimeout},
	event.CauseStopped:   {outcome: event.RunStopped},
	event.CauseRequeued:  {outcome: event.RunRequeued},
	event.CauseNodeLost:  {outcome: event.RunUnknown},
	event.CauseMaps:      {outcome: event.RunExhausted, lacked: event.LimitMaps},
	event.CauseFDs:       {outcome: event.RunExhausted, lacked: event.LimitFDs},
	event.CauseSHM:       {outcome: event.RunExhausted, lacked: event.LimitSHM},
	event.CauseTasks:     {outcome: event.RunExhausted, lacked: event.LimitTasks},
	event.CauseAS:        {outcome: event.RunExhausted, lacked: event.LimitAS},
	event.CauseCrash:     {outcome: event.RunFailed, rank: 1},
	event.CauseKilled:    {outcome: event.RunKilled, rank: 1},
	event.CauseCancelled: {outcome: event.RunCancelled, rank: 2},
	event.CauseUnknown:   {outcome: event.RunUnknown, rank: 3},
	event.CauseRunning:   {outcome: event.RunRunning, rank: 4},
	event.CauseDetached:  {outcome: event.RunRunning, rank: 5},
	event.CauseEnded:     {rank: 6},
}

// facts are those of one end, with the limits and the ledger of its run.
func (q *Case) facts() RunFacts {
	f := RunFacts{Saved: &q.Actions.Saved, Partial: q.Exit == nil || q.Exit.Watched != event.WatchedAll && !q.Follows}
	d := q.Death()
	f.Code, f.Signal = d.Code, d.Signal
	f.Meet(event.RunUnknown, !d.Seen)
	f.Peak = q.memLimit()
	if e := q.Exit; e != nil && e.Binding != nil {
		f.Peak = e.Binding
	}
	f.Ends = f.Peak
	if f.Peak != nil && f.Peak.Name == event.LimitUser {
		f.Ends = nil
		if l := q.memLimit(); l != nil && l.Name != event.LimitUser {
			f.Ends = l
		}
	}
	outcome := causeRows[q.Found.Cause].outcome
	if q.Found.Certainty == Inferred && d.Seen && (outcome == event.RunOOM || outcome == event.RunSlurmKill && q.Found.Kind == EndStepKill) {
		outcome = event.RunKilled // nothing counted the kill: who sent it is a guess
	}
	if signal, told := q.terminationSignal(); outcome == "" && told && q.Rank == nil {
		// It ended well, and because it was asked to.
		if outcome = event.RunCancelled; !q.JobEnd.IsZero() && !q.Wall(signal.At).Before(q.JobEnd.Add(-EndSlack)) {
			outcome = event.RunTimeout
		}
	}
	if outcome == event.RunRequeued && q.Exit != nil {
		f.Again = q.Exit.Next.Size
	}
	f.Meet(outcome, outcome != "" && outcome != event.RunKilled && outcome != event.RunFailed)
	return f
}

// brief is what the job comes to: how it ended as its deciding run did, the peak of the run
// that came nearest, the actions of all.
func (rep *Result) brief() Brief {
	best := rep.Best
	f := best.facts()
	own := best.Exit
	if best.Rank != nil || own == nil || own.Took == 0 || best.Found.Certainty == Slurm || len(rep.Scanned) > 1 {
		own = nil // it needs more than the exit event says
	}
	var b Brief
	if own != nil {
		b = BriefOf(own)
	} else {
		node := best.Run.Meta.Node
		for _, k := range rep.Scanned {
			if k.Restarts() != best.Restarts() {
				continue
			}
			c := &Case{RunScan: k}
			if g := c.facts(); g.Peak != nil && (f.Peak == nil || g.Peak.Ratio() > f.Peak.Ratio()) {
				f.Peak, f.Ends, node = g.Peak, g.Ends, k.Run.Meta.Node
			}
			if e := k.Exit; e != nil && f.Peak != nil && e.Next.Without > 0 {
				f.Without = map[event.LimitID]rss.Bytes{f.Peak.ID(): max(e.Next.Without, f.Without[f.Peak.ID()])}
			}
			f.Partial = f.Partial || k.Run.Live || k.Exit == nil && k.Handing == nil
		}
		saved := mergeActions(rep.Scanned)
		f.Saved = &saved
		peak, exit := f.Peak, best.Exit
		if exit != nil {
			b = BriefOf(exit)
		}
		b.Brief, b.Peak, b.Node = f.Brief(Seconds(rep.Duration)), peak, node
		if exit != nil {
			b.Rule, b.Cancelled, b.Lacked = exit.Rule, exit.Cancelled, exit.Brief.Lacked
		}
		b.Probably = best.Found.Certainty == Inferred && !best.Death().Seen
	}
	b.Job, b.Recorded = rep.Job, true
	if len(rep.Runs) > 0 {
		b.Command, b.ID = rep.Runs[0].Command, record.Label(best.Run.Meta.ID)[:4]
	}
	if b.Outcome == event.RunExhausted {
		b.Lacked = causeRows[best.Found.Cause].lacked
		if best.Found.Limit >= 0 {
			l := best.Found.Near.Limit
			b.LackedLimit = &l
		}
	}
	if b.Outcome == event.RunUnknown {
		b.At = best.Wall(best.End)
	}
	if b.Outcome == event.RunStopped && b.Rule == "" && best.Actions.Last != nil {
		b.Rule = best.Actions.Last.Rule
	}
	if s, told := best.terminationSignal(); b.Outcome == event.RunCancelled && b.Cancelled == "" && told {
		b.Cancelled = s.Signal.Signal
	}
	for _, k := range rep.Scanned {
		if k.Restarts() == best.Restarts() && b.Need == nil && (b.Peak != nil || len(rep.Scanned) == 1) {
			if b.Need = k.need(b.Peak); b.Need != nil && b.Need.Open == "" && died(b.Outcome) {
				b.Need = nil
			}
		}
	}
	rep.Outcome = b.Outcome
	return b
}
