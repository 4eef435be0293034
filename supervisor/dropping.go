package supervisor

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file trims and drops: what only a limit on a cgroup's charge is better
// off by than by a trim, at the price of reading files again.

// charges says that a limit counts the whole charge of a cgroup, page cache
// included: memory.high does, and slurmstepd on cgroup v2 since Slurm 23.11.
func charges(l *event.Limit) bool {
	return l.Name == event.LimitThrottle ||
		l.Name == event.LimitSlurm && l.Accounting == event.AccountingCgroup && l.Charged > 0 && l.Used == l.Charged
}

// canTrimDrop answers the ladder. How much of the files is in the page cache only
// the file system could tell, and it may hang: what the process with most of
// them maps is less than that.
func (w *watcher) canTrimDrop(l *event.Limit) policy.Help {
	d := &w.dropper
	switch {
	case !charges(l) && l.Accounting != event.AccountingRSS && l.Accounting != event.AccountingPSS:
		return policy.Help{Reason: event.ReasonNoHelp, Detail: "clean pages of files do not count here: the kernel takes them back by itself"}
	case d.busy:
		return policy.Help{Reason: event.ReasonTimeout, Detail: d.at + " is not done with yet"}
	}
	h := w.canGive(l)
	if !h.OK || !charges(l) {
		return h
	}
	h.Gain, h.More = 0, true
	for _, m := range w.mapping(l.Accounting) {
		h.Gain = max(h.Gain, w.workers.trimmable(m))
	}
	return h
}

// mapping are all processes that a trim may reach, by the hook or by ptrace.
func (w *watcher) mapping(a event.Accounting) []policy.Worker {
	all := w.hooked(a, mapsFiles)
	if w.traces() {
		list, _ := w.tracees(a)
		all = append(all, list...)
	}
	return all
}

// mapsFiles says that a process has anything mapped from files.
func mapsFiles(m policy.Worker) bool { return m.Mapped > 0 }

// beginTrimDrop trims all that may be trimmed, whatever the rung is left by: a
// page that one process still maps stays in the page cache. Then the files leave.
func (w *watcher) beginTrimDrop(f *inFlight, l *event.Limit) {
	o := action.TrimDrop{
		Dropper: &w.dropper,
		Trim: func(at action.World) action.Running {
			return w.trimming(f, w.hooked(f.before.Accounting, mapsFiles), at.Used, at.Now)
		},
		Trimmed: func(id rss.ProcID) bool {
			return slices.ContainsFunc(f.actedOn, func(p rss.Proc) bool { return p.ID == id })
		},
	}
	for _, m := range w.mapping(l.Accounting) {
		o.Of = append(o.Of, m.ID)
	}
	if !charges(l) {
		o.Note = "the drop does not lower " + sums[l.Accounting]
	}
	f.running = o.Begin(f.began)
}

// tells says that what the processes acted on gave back can be read off what
// they count. In PSS they may have given it to others; and of a charge they
// count anonymous memory alone, of which a drop takes nothing.
func (f *inFlight) tells() bool {
	return f.before.Accounting != event.AccountingPSS && (f.decision.Action != event.ActionTrimDrop || !charges(&f.before))
}
