package supervisor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// saveHandover keeps what the ladder remembers for who leads next, where that has changed.
func (w *watcher) saveHandover() {
	if !w.node.Joined() || w.acts.Ladder == nil {
		return
	}
	is := node.Handover{Changes: w.acts.Ladder.Changes(), Waiting: w.acts.Waiting(), Alerts: w.tell.Alerts.OpenIDs()}
	err := w.node.Keep(is, func() ([]byte, error) {
		m := w.acts.Ladder.Snapshot(w.now(), bootTime(), is.Waiting)
		w.tell.Alerts.Remember(&m)
		for i := range m.Rungs {
			if e := &m.Rungs[i]; e.Limit == event.LimitSlurm && e.Scope == event.ScopeStep && e.Level == "" {
				e.Level = ownPart(w.observe.Pop.Name, w.node.Me.Step)
			}
		}
		return m.Encode()
	})
	if err != nil {
		w.fault("leader", err)
	}
}

// loadHandover takes in what the leader before us kept. What was kept by ranks that were all
// killed is about another job step.
func (w *watcher) loadHandover() {
	data, err := w.node.Kept()
	if data == nil && err == nil {
		return
	}
	var m *policy.Memory
	if err == nil {
		m, err = policy.ParseMemory(data)
	}
	if err != nil {
		w.fault("leader", fmt.Errorf("what the leader before has done is not known, and may be done again: %w", err))
		return
	}
	clock := bootTime()
	if m.At > clock || !w.node.SomeoneSince(m.At) {
		return
	}
	w.tell.Alerts.Inherit(m)
	own, ran := ownPart(w.observe.Pop.Name, w.node.Me.Step), w.runTime()
	now := w.now()
	w.acts.Ladder.Restore(m, now, clock, policy.OwnLevel(own))
	if data, err = m.Encode(); err == nil {
		w.tell.Note(event.NameHandover, func(h event.Head) any {
			return event.Handover{Head: h, Ran: ran, Clock: clock, Own: own, Memory: data, Now: now}
		})
	}
}

// ownPart is what the limits of our step are called among those of several; see
// [limit.Union.Read]. Alone they have no name, and others are found on the side.
func ownPart(job, step string) string {
	if step == "" {
		return ""
	}
	return observe.PartName(job, step)
}

// bootTime is the time since boot, which all processes of a node share, and by
// which the kernel has their starts.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
