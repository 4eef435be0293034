package action

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// noTarget is the refusal of a command that no process can carry out.
func (m *Requests) noTarget(cmd *control.Command) *control.Refused {
	a := m.set
	who := ""
	if len(cmd.Ranks) > 0 {
		who = text.Named("rank", cmd.Ranks) + ": "
	}
	why := m.whyNone(cmd)
	if len(why) > 3 {
		why = append(why[:3], "and more like it")
	}
	r := &control.Refused{
		Reason: event.ReasonNoWorker,
		Detail: fmt.Sprintf("%sno process to %s: %s", who, cmd.Do, strings.Join(why, "; ")),
	}
	byHand := "rsswarden trim --pid PID"
	if _, ok := a.Limits.Job(); ok {
		byHand = "rsswarden trim without --rank, on the node,"
	}
	r.Hint = "it takes a PyTorch DataLoader that the hook can reach: rsswarden doctor -- PYTHON tells whether it can"
	if does, ok := a.all[cmd.Do].(commanded); ok && does.instead() != "" {
		r.Hint = fmt.Sprintf(does.instead(), byHand)
	}
	return r
}

// whyNone says for each trainer in scope why it and its workers cannot, and
// where there is none, why no loader is known.
func (m *Requests) whyNone(cmd *control.Command) []string {
	a := m.set
	var all []string
	add := func(pid int, why string) {
		if why = fmt.Sprintf("process %d: %s", pid, why); !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	met := false
	for _, t := range a.Workers.Trainers() {
		_, ok := a.wanted(&control.Command{Ranks: cmd.Ranks}, t.ID.PID)
		if !ok {
			continue
		}
		switch {
		case t.Off:
			met = true
			add(t.ID.PID, "hook off: "+t.OffWhy)
		case len(t.Loaders) > 0:
			met = true
		}
		for _, l := range t.Loaders {
			switch {
			case t.Off:
			case len(cmd.PIDs) > 0 && !slices.ContainsFunc(l.Workers, func(pid int) bool { return slices.Contains(cmd.PIDs, pid) }):
			case cmd.Do != event.ActionRecycle:
			case l.NumWorkers == 0:
				add(t.ID.PID, "its DataLoader has no workers (num_workers=0)")
			case !t.CanRecycle:
				add(t.ID.PID, t.Why)
			case !l.CanRecycle:
				add(t.ID.PID, l.Why)
			}
		}
	}
	switch {
	case len(all) > 0:
		return all
	case len(cmd.PIDs) > 0:
		return []string{text.Named("process", cmd.PIDs) + " is no loader worker that can"}
	case met:
		return []string{"no worker of a DataLoader is there now"}
	}
	return []string{"hook off: " + a.NoHook()}
}
