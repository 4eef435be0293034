package report

import (
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// heed puts what the record shows and what Slurm says together. Where they say
// the same, Slurm makes it certain; where they do not, both are kept.
func (q *inquest) heed(f ending) ending {
	says := q.said.cause(q.step)
	switch {
	case says == "":
		return q.hint(f)
	case says == f.cause:
		if f.certainty == Inferred {
			f.certainty, f.slurm = Slurm, slurmConfirms
		}
		return f
	case says == event.CauseCancelled && f.limit >= 0 && q.limits[f.limit].ByJobSum():
		if q.said.By == "0" {
			f.certainty, f.slurm = Slurm, slurmConfirms
		}
		return f
	case q.settled && f.cause != event.CauseUnknown, q.compatible(says, &f):
		return f
	case says == event.CauseEnded && f.cause != event.CauseUnknown:
		f.slurm = slurmYet // of a run that the record saw fail: the record knows more
		return f
	}
	over := ending{kind: endSlurm, cause: says, certainty: Slurm, limit: -1, slurm: slurmOverrules}
	if says == event.CauseKernelOOM {
		over.limit = f.limit
		over.near, _ = q.fullest(event.LimitCgroup)
	}
	if f.cause != event.CauseUnknown {
		over.overruled = &f
	}
	return over
}

// compatible says that Slurm's word is what it says of such an end as well.
func (q *inquest) compatible(says event.Cause, f *ending) bool {
	switch f.cause {
	case event.CauseRequeued:
		return true // Slurm speaks of what came of it
	case event.CauseOverKill:
		// What slurmstepd and slurmd kill for is called by several names.
		return says == event.CauseKernelOOM || says == event.CauseCancelled
	case event.CauseNodeOOM:
		return says == event.CauseKernelOOM
	case event.CauseEnded, event.CauseCrash, event.CauseStopped, event.CauseMaps, event.CauseFDs, event.CauseSHM,
		event.CauseTasks, event.CauseAS:
		// The job may have gone on after the run, and ended otherwise: it is
		// another end unless it came at once.
		if q.goneOn() {
			return true
		}
		// What was near an end of its own is not undone by the job's time.
		return f.cause != event.CauseEnded && says == event.CauseTimeLimit && !q.timeUp() && !q.jobEnd.IsZero()
	case event.CauseKernelOOM:
		// A kill that the kernel counted stands, whatever came of the job.
		return f.certainty == Seen
	case event.CauseKilled:
		return false
	}
	return false
}

// goneOn says that the job went on for some time after this run.
func (q *inquest) goneOn() bool {
	return q.exit != nil && !q.said.End.IsZero() && q.said.End.Sub(q.wall(q.end)) > termToKill
}

// hint takes what Slurm says where its word for the state stands for many
// things.
func (q *inquest) hint(f ending) ending {
	state, code := q.said.State, q.said.ExitCode
	if q.step != nil {
		state, code = q.step.State, q.step.ExitCode
	}
	stepd, _ := q.fullest(event.LimitSlurm)
	killed, unknown := q.said.killedBySlurmstepd(q.step), f.cause == event.CauseUnknown
	slurmAlone := func(kind endKind, cause event.Cause) ending {
		return ending{kind: kind, cause: cause, certainty: Slurm, limit: -1}
	}
	switch {
	case slices.Contains([]string{"RUNNING", "COMPLETING", "PENDING", "SUSPENDED", "REQUEUED", "CONFIGURING"}, q.said.State):
		if unknown {
			f.slurm = slurmState
		}
	case f.cause == event.CauseOverKill && killed:
		f.certainty, f.slurm = Slurm, slurmConfirms
	case unknown && q.step != nil && killed && q.step.MaxRSS > 0 && q.said.requested() > 0 && q.step.MaxRSS > q.said.requested():
		return slurmAlone(endStepKillSlurm, event.CauseOverKill)
	case unknown && killed && stepd.ratio >= worthTelling:
		f = inferred(endStepKill, event.CauseOverKill).by(stepd, death{})
		f.slurm = slurmStepKill
	case unknown && strings.HasSuffix(code, ":9"):
		return slurmAlone(endSIGKILLSlurm, event.CauseKilled)
	case unknown && state == "FAILED":
		return slurmAlone(endCrashSlurm, event.CauseCrash)
	}
	return f
}
