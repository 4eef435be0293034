package supervisor

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// plan is what a process has to give back, and the pieces themselves.
type plan struct {
	action.Planned
	pieces []trim.Sized
}

// planAsk names a process, who traces it, and whose processes are ours.
type planAsk struct {
	id     rss.ProcID
	tracer int
	ours   []int
}

// newPlanReader reads plans beside the loop: smaps takes the mmap_lock of the process,
// and hangs for as long as another thread holds that.
func newPlanReader(set *probe.Set, proc string, self int) *probe.Reader[planAsk, plan] {
	var memory trim.Planner
	return probe.New(set, func(ask planAsk) plan {
		fault.Point("planner")
		return ask.read(&memory, proc, self)
	})
}

// read reads what a process has to give back.
func (a *planAsk) read(memory *trim.Planner, proc string, self int) plan {
	id := a.id
	made := plan{Planned: action.Planned{ID: id}}
	target, _ := memory.Plan(trim.CheckOptions{
		Proc: proc, ID: id, Tracer: a.tracer, Self: self,
		Ours: func(pid int) bool { return slices.Contains(a.ours, pid) },
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
			return plan{Planned: action.Planned{ID: id, Refused: refusedBy(why, err.Error())}}
		}
		for _, p := range pieces {
			made.pieces = append(made.pieces, p)
			made.Pieces = append(made.Pieces, p.Resident)
		}
	}
	return made
}

// refusedBy is a refusal as actions know it. Where the machine or the tracer is
// the reason, no other process fares better.
func refusedBy(r trim.Refusal, detail string) action.Refused {
	if r == trim.None {
		return action.Refused{}
	}
	return action.Refused{
		Reason: r.Reason(), Detail: detail, Passing: r.Passing(),
		Brief: r == trim.NoSleeper || r == trim.Waiting || r == trim.Slow || r == trim.Signalled,
		All:   r == trim.Yama || r == trim.Unsupported || r == trim.Broken,
	}
}

// none says that nothing was refused.
func none(r action.Refused) bool { return r.Reason == event.ReasonNone }
