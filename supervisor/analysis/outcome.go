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
		n.Kind, n.Size, n.Without = event.NextEnough, enough, 0
	case outcome == event.RunTight:
		n.Kind, n.Size, n.Without = event.NextKeep, l.Limit, 0
	default:
		return event.Next{}
	}
	return n
}
