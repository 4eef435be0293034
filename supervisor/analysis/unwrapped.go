package analysis

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Unwrapped is what Slurm says of a job that left no record. It is the wire form of report
// --json of such a job.
type Unwrapped struct {
	V       int              `json:"v"`
	Outcome event.RunOutcome `json:"outcome"`
	// MaxRSS is the highest that Slurm saw of one task when it polled, of the step Step; 0
	// where it saw none.
	MaxRSS rss.Bytes `json:"max_rss_bytes,omitempty"`
	Step   string    `json:"step,omitempty"`
	// Limit is what the job had asked for on a node, and Guess what to ask for next; 0 where
	// it is not known.
	Limit rss.Bytes      `json:"limit_bytes,omitempty"`
	Guess rss.Bytes      `json:"advice_mem_bytes,omitempty"`
	Slurm slurm.EndedJob `json:"slurm"`
}

// OfSlurm is what a report says of such a job.
func OfSlurm(job slurm.EndedJob) Unwrapped {
	u := Unwrapped{V: Version, Outcome: stateOutcome(&job), Limit: rss.Bytes(job.NodeMemory()), Slurm: job}
	if step := job.Largest(); step != nil {
		u.MaxRSS = rss.Bytes(step.MaxRSS)
		_, u.Step, _ = strings.Cut(step.ID, ".")
	}
	if u.Outcome == event.RunOOM || u.Outcome == event.RunSlurmKill {
		u.Guess = u.Limit.Scale(guessed)
	}
	return u
}

// Took is how long the job ran, 0 where Slurm does not know.
func (u *Unwrapped) Took() time.Duration {
	if u.Slurm.Start.IsZero() {
		return 0
	}
	return max(0, u.Slurm.End.Sub(u.Slurm.Start))
}

// stateOutcome is what the state of a job says of its outcome.
func stateOutcome(job *slurm.EndedJob) event.RunOutcome {
	cause := causeOf(job, nil)
	switch {
	case cause == event.CauseEnded:
		return event.RunOK
	case cause != "":
		return causeRows[cause].outcome
	case slices.Contains(openStates, job.State):
		return event.RunRunning
	case job.State == "FAILED" && job.KilledBySlurmstepd(nil):
		return event.RunSlurmKill
	case job.State == "FAILED":
		return event.RunFailed
	}
	return event.RunUnknown
}
