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
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// This file reads, on the side, what a process has to give back by ptrace: smaps
// takes the mmap_lock of the process, and can hang for as long as somebody else
// holds that.

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

// planner reads one plan at a time, on a goroutine that the first one starts.
type planner struct {
	read  func(planAsk) plan
	asks  chan planAsk
	plans chan plan
	busy  bool
}

// ask has a plan read. It must not be called while one is being read.
func (p *planner) ask(a planAsk) {
	if p.asks == nil {
		p.asks, p.plans = make(chan planAsk, 1), make(chan plan, 1)
		go func(asks <-chan planAsk, plans chan<- plan, read func(planAsk) plan) {
			for a := range asks {
				fault.Point("planner")
				plans <- read(a)
			}
		}(p.asks, p.plans, p.read)
	}
	p.busy = true
	p.asks <- a
}

// readPlan reads what a process has to give back. It is called by the planner's
// goroutine, and uses nothing that changes elsewhere.
func (w *watcher) readPlan(a planAsk) plan {
	id := a.id
	made := plan{Planned: action.Planned{ID: id}}
	target, _ := w.tracer.memory.Plan(trim.CheckOptions{
		Proc: w.Proc, ID: id, Tracer: a.tracer, Self: w.Self,
		Ours: func(pid int) bool { return slices.Contains(a.ours, pid) },
	}) // the error is what Detail says
	if target.Refusal != trim.None {
		made.Refused = refusedBy(target.Refusal, target.Detail)
		return made
	}
	for _, m := range target.Mappings {
		pieces, err := trim.Pieces(w.Proc, id, m)
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
