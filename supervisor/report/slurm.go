package report

import (
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Says is what a report keeps of what Slurm says of a job that has ended.
func Says(j slurm.EndedJob) SlurmSays {
	s := SlurmSays{
		Source: j.Source, State: j.State, By: j.By, Reason: j.Reason, ExitCode: j.ExitCode, DerivedExit: j.DerivedExit,
		ReqMem: j.ReqMem, Start: j.Start, End: j.End, TimeLimit: j.TimeLimit,
	}
	for _, e := range j.Steps {
		s.Steps = append(s.Steps, StepSays{ID: e.ID, State: e.State, By: e.By, ExitCode: e.ExitCode, MaxRSS: rss.Bytes(e.MaxRSS)})
	}
	return s
}

// step is what Slurm says of one step, nil where it says nothing of it.
func (s *SlurmSays) step(job, step string) *StepSays {
	for i := range s.Steps {
		if s.Steps[i].ID == job+"."+step {
			return &s.Steps[i]
		}
	}
	return nil
}

// requested is the memory that was asked for, 0 where Slurm's word for it is for
// each CPU or not known.
func (s *SlurmSays) requested() rss.Bytes {
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

// cause is what Slurm's word for the end of a run stands for, empty where it
// stands for many things. That a step is CANCELLED says only that a signal ended
// it, unless somebody is named: sacct has the same for SIGSEGV, and where the
// job ran into its time limit.
func (s *SlurmSays) cause(step *StepSays) event.Cause {
	if step != nil {
		switch {
		case step.State == "OUT_OF_MEMORY":
			return event.CauseKernelOOM
		case step.State == "COMPLETED":
			return event.CauseEnded
		case step.State == "TIMEOUT":
			return event.CauseTimeLimit
		case step.State == "CANCELLED" && step.By != "" && step.By != "0":
			return event.CauseCancelled
		case step.State == "FAILED":
			return ""
		}
	}
	switch s.State {
	case "OUT_OF_MEMORY":
		return event.CauseKernelOOM
	case "TIMEOUT", "DEADLINE":
		return event.CauseTimeLimit
	case "CANCELLED", "PREEMPTED", "REVOKED":
		return event.CauseCancelled
	case "NODE_FAIL", "BOOT_FAIL":
		return event.CauseNodeLost
	case "COMPLETED":
		if step == nil {
			return event.CauseEnded
		}
	}
	return ""
}

// killedBySlurmstepd says that the step was ended the way OverMemoryKill does
// it: by SIGKILL, on root's behalf.
func (s *SlurmSays) killedBySlurmstepd(step *StepSays) bool {
	if step != nil {
		return step.State == "CANCELLED" && step.By == "0" && strings.HasSuffix(step.ExitCode, ":9")
	}
	return s.State == "FAILED" && s.Reason == "JobLaunchFailure" && s.ExitCode == "0:9"
}
