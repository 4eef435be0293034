package supervisor

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// This file brings in the limits that are none on summed memory: on the numbers
// that one process has, on /dev/shm, on tasks. They are read on the side, each as
// often as it may matter, and judged with the rest.

// sides returns them as they were read last.
func (w *watcher) sides(now time.Duration) []event.Limit {
	return append(w.counts.readings(now), w.shared.update(now, w.sharers(), len(w.workers.trainers) > 0)...)
}

// sharers are the processes whose /dev/shm is looked at: trainers, each of which
// may be in a container of its own, else the command.
func (w *watcher) sharers() []int {
	var pids []int
	for i := range w.last.Procs {
		if p := &w.last.Procs[i]; p.Role == rss.RoleTrainer && p.State != 'Z' && len(pids) < mostSharers {
			pids = append(pids, p.ID.PID)
		}
	}
	switch {
	case len(pids) > 0:
	case w.command.PID != 0:
		pids = append(pids, w.command.PID)
	case len(w.last.Procs) > 0: // a job that is watched as a whole
		pids = append(pids, w.last.Procs[0].ID.PID)
	}
	return pids
}

const mostSharers = 8

// heardSides takes in what was read, and says whether anything was, and whether a limit
// has reached a rung since the last look.
func (w *watcher) heardSides() (news, reached bool) {
	if w.shared.taken() {
		w.shared.ask(w.look())
		news, reached = true, w.reached(w.shared.limits)
	}
	if w.counts.taken() {
		now := w.look()
		w.counts.ask(now)
		news, reached = true, w.reached(w.counts.readings(now)) || reached
	}
	return news, reached
}

// countOutcome is an outcome about a limit on a number, which has no bytes to tell
// of. The samples have the number before and after.
type countOutcome struct {
	event.Outcome
	Before *struct{} `json:"before_bytes,omitempty"`
	After  *struct{} `json:"after_bytes,omitempty"`
	Freed  *struct{} `json:"freed_bytes,omitempty"`
}

// outcomeOf returns an outcome as the event of it is written.
func outcomeOf(l event.LimitName, o event.Outcome) any {
	if !l.Counts() {
		return o
	}
	return countOutcome{Outcome: o}
}

// reached says whether one of these limits stands at or above the rung that was
// the next at the last look.
func (w *watcher) reached(limits []event.Limit) bool {
	for i := range limits {
		l := &limits[i]
		if old := reading(w.readings, l.ID()); old == nil || l.Used >= w.ladder.NextRung(old) {
			return true
		}
	}
	return false
}
