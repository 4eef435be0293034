package analysis

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// SlurmSays is what Slurm says of the job and its steps, StepSays of one step.
type (
	SlurmSays = slurm.EndedJob
	StepSays  = slurm.EndedStep
)

// Requested is the memory that was asked for, 0 where Slurm's word for it is for
// each CPU or not known.
func Requested(s *SlurmSays) rss.Bytes {
	text, each := strings.CutSuffix(s.ReqMem, "c")
	if each || text == "" {
		return 0
	}
	b, err := rss.ParseBytes(strings.TrimSuffix(text, "n"))
	if err != nil {
		return 0
	}
	return b
}

// causeOf is what Slurm's word for the end of a run stands for, empty where it
// stands for many things. That a step is CANCELLED says only that a signal ended
// it, unless a user is named: sacct has the same for SIGSEGV, and where the
// job ran into its time limit.
func causeOf(s *SlurmSays, step *StepSays) event.Cause {
	if step != nil {
		if step.State == "CANCELLED" && step.By != "" && step.By != "0" {
			return event.CauseCancelled
		}
		if cause, ok := stepCauses[step.State]; ok {
			return cause
		}
	} else if s.State == "COMPLETED" {
		return event.CauseEnded
	}
	return jobCauses[s.State]
}

// openStates are those of a job that has not ended.
var openStates = []string{"RUNNING", "COMPLETING", "PENDING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING"}

// stepCauses and jobCauses are what the states of a step and of a job stand for.
var (
	stepCauses = map[string]event.Cause{
		"OUT_OF_MEMORY": event.CauseKernelOOM, "COMPLETED": event.CauseEnded, "TIMEOUT": event.CauseTimeLimit, "FAILED": "",
	}
	jobCauses = map[string]event.Cause{
		"OUT_OF_MEMORY": event.CauseKernelOOM, "TIMEOUT": event.CauseTimeLimit, "DEADLINE": event.CauseTimeLimit,
		"CANCELLED": event.CauseCancelled, "PREEMPTED": event.CauseCancelled, "REVOKED": event.CauseCancelled,
		"NODE_FAIL": event.CauseNodeLost, "BOOT_FAIL": event.CauseNodeLost,
	}
)

// reconcile puts what the record shows and what Slurm says together. Where they say
// the same, Slurm makes it certain; where they do not, both are kept.
func (q *Case) reconcile(f Ending) Ending {
	says := causeOf(q.Said, q.Step)
	switch {
	case says == "":
		return q.slurmHint(f)
	case says == f.Cause:
		if f.Certainty == Inferred {
			f.Certainty, f.Slurm = Slurm, SlurmConfirms
		}
		return f
	case says == event.CauseCancelled && f.Limit >= 0 && q.Limits[f.Limit].ByJobSum():
		if q.Said.By == "0" {
			f.Certainty, f.Slurm = Slurm, SlurmConfirms
		}
		return f
	case q.settled && f.Cause != event.CauseUnknown, q.compatible(says, &f):
		return f
	case says == event.CauseEnded && f.Cause != event.CauseUnknown:
		f.Slurm = SlurmYet // of a run that the record saw fail: the record knows more
		return f
	}
	over := Ending{Kind: endSlurm, Cause: says, Certainty: Slurm, Limit: -1, Slurm: SlurmOverrules}
	if says == event.CauseKernelOOM {
		over.Limit = f.Limit
		over.Near, _ = q.Fullest(event.LimitCgroup)
	}
	if f.Cause != event.CauseUnknown {
		over.Overruled = &f
	}
	return over
}

// compatible says that Slurm's word is what it says of such an end as well.
func (q *Case) compatible(says event.Cause, f *Ending) bool {
	switch f.Cause {
	case event.CauseRequeued:
		return true // Slurm reports the result
	case event.CauseOverKill:
		// What slurmstepd and slurmd kill for is called by several names.
		return says == event.CauseKernelOOM || says == event.CauseCancelled
	case event.CauseNodeOOM:
		return says == event.CauseKernelOOM
	case event.CauseEnded, event.CauseCrash, event.CauseStopped, event.CauseMaps, event.CauseFDs, event.CauseSHM,
		event.CauseTasks, event.CauseAS:
		// The job may have gone on after the run, and ended otherwise: it is
		// another end unless it came at once.
		if q.jobContinued() {
			return true
		}
		// What was near an end of its own is not undone by the job's time.
		return f.Cause != event.CauseEnded && says == event.CauseTimeLimit && !q.TimeUp() && !q.JobEnd.IsZero()
	case event.CauseKernelOOM:
		// A kill that the kernel counted remains, however the job ended.
		return f.Certainty == Seen
	case event.CauseKilled:
		return false
	}
	return false
}

// jobContinued says that the job went on for some time after this run.
func (q *Case) jobContinued() bool {
	return q.Exit != nil && !q.Said.End.IsZero() && q.Said.End.Sub(q.Wall(q.End)) > termToKill
}

// slurmHint takes what Slurm says where its word for the state stands for many
// things.
func (q *Case) slurmHint(f Ending) Ending {
	state, code := q.Said.State, q.Said.ExitCode
	if q.Step != nil {
		state, code = q.Step.State, q.Step.ExitCode
	}
	stepd, _ := q.Fullest(event.LimitSlurm)
	killed, unknown := q.Said.KilledBySlurmstepd(q.Step), f.Cause == event.CauseUnknown
	slurmAlone := func(kind endKind, cause event.Cause) Ending {
		return Ending{Kind: kind, Cause: cause, Certainty: Slurm, Limit: -1}
	}
	switch {
	case slices.Contains(openStates, q.Said.State):
		if unknown {
			f.Slurm = SlurmState
		}
	case f.Cause == event.CauseOverKill && killed:
		f.Certainty, f.Slurm = Slurm, SlurmConfirms
	case unknown && q.Step != nil && killed && Requested(q.Said) > 0 && rss.Bytes(q.Step.MaxRSS) > Requested(q.Said):
		return slurmAlone(EndStepKillSlurm, event.CauseOverKill)
	case unknown && killed && stepd.Ratio() >= WorthTelling:
		f = inferred(EndStepKill, event.CauseOverKill).by(stepd)
		f.Slurm = SlurmStepKill
	case unknown && strings.HasSuffix(code, ":9"):
		return slurmAlone(EndSIGKILLSlurm, event.CauseKilled)
	case unknown && state == "FAILED":
		return slurmAlone(EndCrashSlurm, event.CauseCrash)
	}
	return f
}

// appliesTo says that Slurm's word is about this run: of a job that was requeued
// Slurm tells the last time it ran.
func appliesTo(said *SlurmSays, k *RunScan, last int) bool {
	j := k.Run.Meta.Job
	return j != nil && j.Restarts == last && (said.Start.IsZero() || !k.Wall(k.End).Before(said.Start))
}

// Unwrapped is what Slurm says of a job that left no record. It is the wire form of report
// --json of such a job.
type Unwrapped struct {
	V       int              `json:"v"`
	Outcome event.RunOutcome `json:"outcome"`
	// MaxRSS is the highest that Slurm saw of one task when it polled, of the step Step; 0
	// where it saw none.
	MaxRSS rss.Bytes `json:"max_rss_bytes,omitempty"`
	Step   string    `json:"step,omitempty"`
	// Asked is the step that was asked for, empty for all of the job.
	Asked string `json:"asked_step,omitempty"`
	// Limit is what the job had asked for on a node, and Guess what to ask for next; 0 where
	// it is not known.
	Limit rss.Bytes      `json:"limit_bytes,omitempty"`
	Guess rss.Bytes      `json:"advice_mem_bytes,omitempty"`
	Slurm slurm.EndedJob `json:"slurm"`
}

// OfSlurm is what a report says of such a job, or of one step of it; ok is false where Slurm
// knows no such step.
func OfSlurm(job slurm.EndedJob, step string) (u Unwrapped, ok bool) {
	u = Unwrapped{V: Version, Asked: step, Outcome: stateOutcome(&job), Limit: rss.Bytes(job.NodeMemory()), Slurm: job}
	of := job.Largest()
	if step != "" {
		if of = job.Step(job.ID, step); of == nil {
			return Unwrapped{}, false
		}
		u.Outcome = stepOutcome(&job, of)
	}
	if of != nil {
		u.MaxRSS = rss.Bytes(of.MaxRSS)
		_, u.Step, _ = strings.Cut(of.ID, ".")
	}
	if u.Outcome == event.RunOOM || u.Outcome == event.RunSlurmKill {
		u.Guess = u.Limit.Scale(guessed)
	}
	return u, true
}

// Ended is the state and exit code of what was asked for, in Slurm's words.
func (u *Unwrapped) Ended() (state, code string) {
	if of := u.Slurm.Step(u.Slurm.ID, u.Asked); of != nil {
		return of.State, of.ExitCode
	}
	return u.Slurm.State, u.Slurm.ExitCode
}

// Took is how long the job ran, 0 where Slurm does not know, and of a step.
func (u *Unwrapped) Took() time.Duration {
	if u.Slurm.Start.IsZero() || u.Asked != "" {
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

// stepOutcome is what the state of a step says of its outcome.
func stepOutcome(job *slurm.EndedJob, step *slurm.EndedStep) event.RunOutcome {
	switch cause := causeOf(job, step); {
	case job.KilledBySlurmstepd(step):
		return event.RunSlurmKill
	case slices.Contains(openStates, step.State):
		return event.RunRunning
	case step.State == "FAILED":
		return event.RunFailed
	case cause == event.CauseEnded:
		return event.RunOK
	case cause != "":
		return causeRows[cause].outcome
	}
	return event.RunUnknown
}
