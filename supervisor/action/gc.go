package action

import (
	"cmp"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// collecting has processes with the loader hook run gc.collect and malloc_trim. It gives
// anonymous memory back: every way of adding memory up counts that but the virtual size, of
// which little goes.
type collecting struct{ *Env }

func (a collecting) Can(event.Rule, *event.Limit) event.Feasibility {
	if a.Loader == nil {
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: cmp.Or(a.Able.Hook, noHook)}
	}
	if pids, _ := a.Workers.Trainers().Collectors(); len(pids) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker, Detail: a.Workers.NoHello()}
	}
	return event.Feasibility{OK: true} // how much is garbage shows only afterwards
}

func (a collecting) Begin(f *Flight, _ *event.Limit) (Running, Result) {
	pids, trainers := a.Workers.Trainers().Collectors()
	f.actOn(&a.View.Sample, pids)
	return Collect(a.Loader, pids, trainers, f.Began), Result{}
}

func (a collecting) targets(cmd *control.Command) []target {
	pids, _ := a.Workers.Trainers().Collectors()
	return a.hookTargets(cmd, pids)
}

func (a collecting) beginFor(f *Flight, pids []int) (Running, Result) {
	_, trainers := a.Workers.Trainers().Collectors()
	return Collect(a.Loader, pids, trainers, f.Began), Result{}
}

func (a collecting) instead() string { return "" }

// Collect asks the processes with those PIDs to run gc.collect and malloc_trim
// and ends when each has answered or is gone. The trainers among them pause meanwhile;
// the longest pause counts.
func Collect(h Hook, pids, trainers []int, now time.Duration) Running {
	a := &round{
		what: event.LoaderCollected, words: "%d of %d processes gave back %v of anonymous memory", deadline: now + CollectDeadline,
		trainers: trainers,
	}
	return a.ask(h.GC, pids)
}
