package action

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// PlanAsk names a process, who traces it, and whose processes are ours.
type PlanAsk struct {
	ID     rss.ProcID
	Tracer int
	Ours   []int
}

// newPlanReader reads plans beside the loop: smaps takes the mmap_lock of the process,
// and hangs for as long as another thread holds that.
func newPlanReader(set *probe.Set, proc string, self int) *probe.Reader[PlanAsk, Planned] {
	var memory trim.Planner
	return probe.New(set, func(ask PlanAsk) Planned {
		fault.Point("planner")
		target := memory.Plan(trim.CheckOptions{
			Proc: proc, ID: ask.ID, Tracer: ask.Tracer, Self: self,
			Ours: func(pid int) bool { return slices.Contains(ask.Ours, pid) },
		})
		made := Planned{ID: ask.ID, Refused: refusedBy(target.Refusal, target.Detail)}
		for _, m := range target.Mappings {
			made.Pieces = append(made.Pieces, m.Pieces...)
		}
		return made
	})
}

// refusedBy is a refusal as actions know it. Where the machine or the tracer is
// the reason, no other process fares better.
func refusedBy(r trim.Refusal, detail string) Refused {
	if r == trim.None {
		return Refused{}
	}
	return Refused{
		Reason: r.Reason(), Detail: detail, Passing: r.Passing(),
		Brief: r == trim.NoSleeper || r == trim.Waiting || r == trim.Slow || r == trim.Signalled,
		All:   r == trim.Yama || r == trim.Unsupported || r == trim.Broken,
	}
}
