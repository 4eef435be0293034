package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// RunFacts are what the outcome of a run and the advice for the next one follow from. The
// watcher has them at the end of a run, and a report from its record.
type RunFacts struct {
	Met    event.RunOutcome // what holds whatever the exit status, see [RunFacts.Meet]; empty for none
	Again  rss.Bytes        // the memory that a requeued job starts again with, 0 where that is not known
	Code   int
	Signal string // that ended it, "SIGKILL"; empty where it exited

	// Peak is the limit on the job's memory that came nearest, at its highest use, and Ends
	// that of those by which Slurm or the kernel ends the job; nil where there was none.
	Peak, Ends *event.Limit
	// JobSum is slurmd's limit on all steps of the job, at its highest use.
	JobSum  *event.Limit
	Saved   *event.Saved
	Without map[event.LimitID]rss.Bytes // what a limit would have counted without actions, at most
	Growing map[event.LimitID]rss.Bytes // by how many bytes a second its use grew at the end
	// Partial says that what was seen cannot be the whole: nothing follows for the next run.
	Partial bool
}

// KeptShare is the share of a limit from which on a run that got help needed it.
const KeptShare = 0.85

// Meet takes in whether an outcome holds whatever the exit status: one up to
// [event.RunExhausted], of which the first counts.
func (f *RunFacts) Meet(o event.RunOutcome, holds bool) {
	order := func(o event.RunOutcome) int { return slices.Index(event.RunOutcomes, o) }
	if holds && (f.Met == "" || order(o) < order(f.Met)) {
		f.Met = o
	}
}

// Outcome is the first of the outcomes that holds.
func (f *RunFacts) Outcome() event.RunOutcome {
	switch {
	case f.Met != "":
		return f.Met
	case f.Signal == "SIGKILL", f.Code == 128+9:
		return event.RunKilled
	case f.Signal != "" || f.Code != 0:
		return event.RunFailed
	case event.MemoryAt(f.Peak) == event.MemoryOver:
		return event.RunOver
	case f.kept():
		return event.RunKept
	case event.MemoryAt(f.Peak) == event.MemoryTight:
		return event.RunTight
	}
	return event.RunOK
}

// kept says that actions freed something which the run needed to stay under its limit.
func (f *RunFacts) kept() bool {
	if f.Peak == nil || f.Saved.Outcome() != event.HelpedYes {
		return false
	}
	met := f.Peak.Ratio() >= KeptShare
	for i := range f.Saved.Actions {
		a := &f.Saved.Actions[i]
		met = met || a.Worked > 0 && a.Action.Frees() && a.PeakUsed.Of(f.Peak.Limit) >= KeptShare
	}
	return met || f.Without[f.Peak.ID()] > f.Peak.Limit
}

// Brief is what every surface says of the run.
func (f *RunFacts) Brief(took time.Duration) event.Brief {
	b := event.Brief{
		Outcome: f.Outcome(), Memory: event.MemoryAt(f.Peak), Helped: f.Saved.Outcome(), Watched: event.WatchedAll,
		Took: took.Seconds(), Saved: *f.Saved,
	}
	b.Next = f.next(b.Outcome)
	return b
}

const (
	// Margin is what is advised on top of a peak that is the whole need.
	Margin = 0.10
	// worthSaving is the least share of its memory that a job must be able to give back for
	// a smaller size to be advised.
	worthSaving = 0.15
	// guessed is what is advised of a limit that ended the job: what it needs is not known.
	guessed = 1.5
)

// next is what to ask for next.
func (f *RunFacts) next(outcome event.RunOutcome) event.Next {
	l, option := f.Ends, "--mem"
	// These are about --limit, though Slurm or the kernel has a limit too.
	aboutLimit := outcome == event.RunStopped || outcome == event.RunOver || outcome == event.RunKept
	if l == nil || f.Peak != nil && f.Peak.Name == event.LimitUser && aboutLimit {
		l, option = f.Peak, "--limit"
	}
	if l == nil || l.Used == 0 || l.Limit == 0 {
		return event.Next{}
	}
	n := event.Next{Option: option, Without: f.Without[l.ID()], Growing: f.Growing[l.ID()]}
	switch outcome {
	case event.RunOOM, event.RunSlurmKill, event.RunStopped:
		if outcome == event.RunSlurmKill && f.JobSum != nil && f.JobSum.Ratio() > l.Ratio() {
			l = f.JobSum
		}
		n.Kind, n.Size, n.Without, n.Growing = event.NextGuess, policy.GuessMem(max(l.Used, l.Limit).Scale(guessed)), 0, 0
		return n
	case event.RunRequeued:
		return event.Next{Kind: event.NextRequeued, Option: "--mem", Size: f.Again}
	case event.RunOK, event.RunTight, event.RunOver, event.RunKept:
	default:
		return event.Next{}
	}
	if f.Partial {
		return event.Next{}
	}
	enough := policy.NeatMem(max(l.Used.Scale(1+Margin), policy.LeastMem))
	if j := f.JobSum; j != nil && option == "--mem" {
		// The step was nearer to its own limit, by srun --mem, than the job to its.
		enough = max(enough, policy.NeatMem(j.Used.Scale(1+Margin)))
	}
	switch {
	case outcome == event.RunKept:
		n.Kind, n.Size = event.NextKeep, l.Limit
	case outcome == event.RunOver, enough > l.Limit, float64(enough) <= float64(l.Limit)*(1-worthSaving):
		n.Kind, n.Size = event.NextEnough, enough
	case outcome == event.RunTight:
		n.Kind, n.Size = event.NextKeep, l.Limit
	default:
		return event.Next{}
	}
	return n
}

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
	// Detached says that only the watch has ended, and what was watched ran on.
	Detached bool `json:"detached,omitempty"`

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
	// At is the last moment of a record that has no end, or only that of the watch.
	At time.Time `json:"time,omitzero"`
	// Need is what the whole job will need, estimated; nil where too little was seen.
	Need     *Need `json:"need,omitempty"`
	Probably bool  `json:"probably,omitempty"` // the outcome is inferred, the end was not seen
	Recorded bool  `json:"-"`                  // there is a record that a report can read
}

// BriefOf is what an exit event says.
func BriefOf(e *event.Exit) Brief {
	b := Brief{Brief: e.Brief, Code: e.Code, Signal: e.Signal, Peak: e.Binding, Detached: e.By == "detached"}
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
func (b *Brief) Trims() int {
	n := b.Saved.WorkerTrims
	for _, a := range b.Saved.Actions {
		if a.Action.Row().Trims {
			n += a.Worked
		}
	}
	return n
}

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
	event.CauseDetached:  {outcome: event.RunUnknown, rank: 5},
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
