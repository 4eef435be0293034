package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// heed puts what the record shows and what Slurm says together. Where they say
// the same, Slurm makes it certain; where they do not, both are told.
func (q *inquest) heed(f finding) finding {
	says := q.said.cause(q.step)
	switch {
	case says == "":
		return q.hint(f)
	case says == f.cause:
		return q.confirm(f)
	case says == event.CauseCancelled && f.limit >= 0 && q.limits[f.limit].ByJobSum():
		if q.said.By == "0" {
			f.certainty = Slurm
			f.text += "; " + q.word()
		}
		return f
	case q.settled && f.cause != event.CauseUnknown, q.compatible(says, &f):
		return f
	}
	word, was, told := q.word(), f.text, f.sentence()
	switch {
	case f.cause == event.CauseUnknown:
		f.text = q.slurmText(says, word)
	case says == event.CauseEnded:
		// Of a run that the record saw fail: the record knows more.
		f.text = was + "; yet " + word
		return f
	default:
		f.text = fmt.Sprintf("%s; the record alone would say: %s", q.slurmText(says, word), told)
	}
	f.cause, f.certainty = says, Slurm
	if says != event.CauseKernelOOM {
		f.limit = -1
	}
	return f
}

// confirm makes certain what Slurm says too, and takes back the reserves.
func (q *inquest) confirm(f finding) finding {
	if f.certainty == Inferred {
		f.certainty = Slurm
		f.text += "; " + q.word()
	}
	return f
}

// compatible says that Slurm's word is what it says of such an end as well.
func (q *inquest) compatible(says event.Cause, f *finding) bool {
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
func (q *inquest) hint(f finding) finding {
	state, code := q.said.State, q.said.ExitCode
	if q.step != nil {
		state, code = q.step.State, q.step.ExitCode
	}
	switch {
	case slices.Contains([]string{"RUNNING", "COMPLETING", "PENDING", "SUSPENDED", "REQUEUED", "CONFIGURING"}, q.said.State):
		if f.cause == event.CauseUnknown {
			f.text += "; Slurm says the job is " + clean(q.said.State)
		}
	case f.cause == event.CauseOverKill && q.said.killedBySlurmstepd(q.step):
		f.certainty = Slurm
		f.text += "; " + q.word()
	case f.cause == event.CauseUnknown && q.step != nil && q.said.killedBySlurmstepd(q.step) && q.step.MaxRSS > 0 && q.said.reqMem() > 0 && q.step.MaxRSS > q.said.reqMem():
		f.cause, f.certainty = event.CauseOverKill, Slurm
		f.text = fmt.Sprintf("killed by slurmstepd (OverMemoryKill): Slurm saw %v (MaxRSS) where %s was asked for; the record breaks off at %s and does not show it",
			q.step.MaxRSS, q.said.asked(), q.clock(q.end))
	case f.cause == event.CauseUnknown && q.said.killedBySlurmstepd(q.step) && q.stepdLimit().ratio >= worthTelling:
		f = q.overMemory(q.stepdLimit(), death{})
		f.text += ", and may have grown since; " + q.word()
	case f.cause == event.CauseUnknown && strings.HasSuffix(code, ":9"):
		f.cause, f.certainty = event.CauseKilled, Slurm
		f.text = fmt.Sprintf("killed by SIGKILL, watcher and all, at or after %s; %s; %s", q.clock(q.end), q.word(), q.nearest())
	case f.cause == event.CauseUnknown && state == "FAILED":
		f.cause, f.certainty = event.CauseCrash, Slurm
		f.text = fmt.Sprintf("the job failed after the record breaks off at %s; %s; %s", q.clock(q.end), q.word(), q.nearest())
	}
	return f
}

// stepdLimit is how near slurmstepd's limit was at the end.
func (q *inquest) stepdLimit() brink {
	b, _ := q.fullest(event.LimitSlurm)
	return b
}

// word is Slurm's state as it stands in a sentence.
func (q *inquest) word() string {
	if q.step != nil {
		text := fmt.Sprintf("Slurm says step %s %s %s", q.step.ID, q.step.State, q.step.ExitCode)
		if q.step.State != q.said.State {
			text += ", job " + q.said.State
		}
		return clean(text)
	}
	return clean(strings.TrimSpace("Slurm says " + q.said.State + " " + q.said.ExitCode))
}

// slurmText is the sentence on a cause that Slurm names and the record does not.
func (q *inquest) slurmText(says event.Cause, word string) string {
	switch says {
	case event.CauseKernelOOM:
		text := "the kernel's OOM killer ended a process of the step: " + word
		if b, ok := q.fullest(event.LimitCgroup); ok {
			text += "; " + q.kernelText(b)
		}
		return text
	case event.CauseTimeLimit:
		text := "ended by Slurm at the job's time limit"
		if q.said.TimeLimit != "" {
			text += " of " + clean(q.said.TimeLimit)
		}
		return text + ": " + word
	case event.CauseCancelled:
		text := "cancelled"
		if q.said.State == "PREEMPTED" {
			text = "ended by Slurm for another job (preempted)"
		} else if q.said.By != "" {
			text += " by " + clean(user(q.said.By))
		}
		return text + ": " + word + q.breaksOff()
	case event.CauseNodeLost:
		return "the node failed: " + word + q.breaksOff()
	case event.CauseEnded:
		return "ended well as Slurm knows it: " + word + q.breaksOff()
	}
	return word
}

func (q *inquest) breaksOff() string {
	if q.exit != nil {
		return ""
	}
	return "; the record breaks off at " + q.clock(q.end)
}
