package supervisor

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/leader"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// This file hands the ladder's memory from one leader to the next: at a use that
// stays above a rung the new one would else warn, signal and run programs again,
// once for each rank that ends before the others.

// handing is what was laid down last.
type handing struct {
	laid    bool
	changes uint64 // of the ladder
	waiting uint64 // the decision that had not been begun
	open    string // alerts that receivers may believe to fire
}

// layDown keeps what the ladder remembers for who leads next, where that has
// changed. It comes before the actions of a step: killed between the two, a leader
// has left one action out, where it would else have one done twice.
func (w *watcher) layDown() {
	p := &w.peers
	if p.post == nil || w.ladder == nil {
		return
	}
	open := w.alerts.sender.Open()
	is := handing{true, w.ladder.Changes(), w.programs.Waiting(), alertIDs(open)}
	if is == p.handing || !p.handing.laid && is.changes == 0 {
		return
	}
	p.handing = is
	m := w.ladder.Snapshot(w.now(), bootTime(), is.waiting)
	m.Step, m.Run, m.Alerts = w.alerts.step, w.alerts.run, rememberAlerts(open, m.At)
	for i := range m.Rungs {
		if e := &m.Rungs[i]; e.Limit == event.LimitSlurm && e.Scope == event.ScopeStep && e.Level == "" {
			e.Level = w.ownPart()
		}
	}
	data, err := m.Encode()
	if err == nil {
		err = p.post.Keep(data)
	}
	if err != nil {
		w.fault("leader", err)
	}
}

// layLast is layDown for when our command has ended by itself: a requeue that only
// waited for its checkpoint is begun now by us, see endRequeue.
func (w *watcher) layLast() {
	if f := w.flight; f != nil && f.decision.Action == event.ActionRequeue && w.sum.requeue.asked == "" {
		w.ladder.Begun(f.decision.ID)
	}
	w.layDown()
}

// takeOver takes in what the leader before us laid down. What was left by ranks of
// which nobody lives any more, killed with all of theirs, is about another job step.
func (w *watcher) takeOver() {
	p := &w.peers
	data, err := p.post.Kept()
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
	if m.At > clock || !w.someoneSince(m.At) {
		return
	}
	w.alerts.step, w.alerts.run, w.alerts.inherited = m.Step, m.Run, m.Alerts
	own, ran := w.ownPart(), w.runTime()
	w.ladder.Restore(m, w.now(), clock, policy.OwnLevel(own))
	if data, err = m.Encode(); err == nil {
		w.note(event.NameHandover, func(h event.Head) any {
			return event.Handover{Head: h, Ran: ran, Clock: clock, Own: own, Memory: data}
		})
	}
}

// someoneSince says that a rank which is here was here at that time since boot.
func (w *watcher) someoneSince(at time.Duration) bool {
	const tick = time.Second / 100 // USER_HZ, in which /proc/PID/stat counts
	before := func(start uint64) bool { return start > 0 && start < uint64(at/tick) }
	p := &w.peers
	return before(p.me.Holder.Start) || slices.ContainsFunc(p.others, func(m leader.Member) bool { return before(m.Holder.Start) })
}

// ownPart is what the limits of our step are called among those of several; see
// [limit.Union.Read]. Alone they have no name, and others are found on the side.
func (w *watcher) ownPart() string {
	if w.peers.me.Step == "" {
		return ""
	}
	return partName(w.jobName(), w.peers.me.Step)
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
