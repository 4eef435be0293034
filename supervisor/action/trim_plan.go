package action

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Plan is what a process has to give back, and the pieces themselves.
type Plan struct {
	Planned
	Sized []trim.Sized
}

// PlanAsk names a process, who traces it, and whose processes are ours.
type PlanAsk struct {
	ID     rss.ProcID
	Tracer int
	Ours   []int
}

// newPlanReader reads plans beside the loop: smaps takes the mmap_lock of the process,
// and hangs for as long as another thread holds that.
func newPlanReader(set *probe.Set, proc string, self int) *probe.Reader[PlanAsk, Plan] {
	var memory trim.Planner
	return probe.New(set, func(ask PlanAsk) Plan {
		fault.Point("planner")
		return ask.read(&memory, proc, self)
	})
}

// read reads what a process has to give back.
func (a *PlanAsk) read(memory *trim.Planner, proc string, self int) Plan {
	id := a.ID
	made := Plan{Planned: Planned{ID: id}}
	target, _ := memory.Plan(trim.CheckOptions{
		Proc: proc, ID: id, Tracer: a.Tracer, Self: self,
		Ours: func(pid int) bool { return slices.Contains(a.Ours, pid) },
	}) // the error is what Detail says
	if target.Refusal != trim.None {
		made.Refused = refusedBy(target.Refusal, target.Detail)
		return made
	}
	for _, m := range target.Mappings {
		pieces, err := trim.Pieces(proc, id, m)
		if err != nil {
			why := trim.Failed
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				why = trim.Vanished
			}
			return Plan{Planned: Planned{ID: id, Refused: refusedBy(why, err.Error())}}
		}
		for _, p := range pieces {
			made.Sized = append(made.Sized, p)
			made.Pieces = append(made.Pieces, p.Resident)
		}
	}
	return made
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

// none says that nothing was refused.
func none(r Refused) bool { return r.Reason == event.ReasonNone }
