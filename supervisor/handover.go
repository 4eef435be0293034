package supervisor

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/observe"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

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
	is := handing{true, w.ladder.Changes(), w.programs.Waiting(), w.tell.Alerts.OpenIDs()}
	if is == p.handing || !p.handing.laid && is.changes == 0 {
		return
	}
	p.handing = is
	m := w.ladder.Snapshot(w.now(), bootTime(), is.waiting)
	w.tell.Alerts.Remember(&m)
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
	if f := w.flight; f != nil && f.decision.Action == event.ActionRequeue && w.requeue.asked == "" {
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
	w.tell.Alerts.Inherit(m)
	own, ran := w.ownPart(), w.runTime()
	w.ladder.Restore(m, w.now(), clock, policy.OwnLevel(own))
	if data, err = m.Encode(); err == nil {
		w.tell.Note(event.NameHandover, func(h event.Head) any { return event.Handover{Head: h, Ran: ran, Clock: clock, Own: own, Memory: data} })
	}
}

// someoneSince says that a rank which is here was here at that time since boot.
func (w *watcher) someoneSince(at time.Duration) bool {
	const tick = time.Second / 100 // USER_HZ, in which /proc/PID/stat counts
	before := func(start uint64) bool { return start > 0 && start < uint64(at/tick) }
	p := &w.peers
	return before(p.me.Holder.Start) || slices.ContainsFunc(p.others, func(m node.Member) bool { return before(m.Holder.Start) })
}

// ownPart is what the limits of our step are called among those of several; see
// [limit.Union.Read]. Alone they have no name, and others are found on the side.
func (w *watcher) ownPart() string {
	if w.peers.me.Step == "" {
		return ""
	}
	return observe.PartName(w.observe.Pop.Name, w.peers.me.Step)
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

// resolveLeft resolves what the leader before us has told of, where the lead fell to
// us and there is nothing left to lead: our command has ended, and nobody else's
// lives.
func (w *watcher) resolveLeft() {
	p := &w.peers
	if !p.heir || p.post == nil || w.Settings.DryRun || len(w.Settings.Alerts) == 0 {
		return
	}
	data, err := p.post.Kept()
	if err != nil || data == nil {
		return
	}
	m, err := policy.ParseMemory(data)
	members, _, merr := p.post.Members()
	if err != nil || merr != nil {
		return
	}
	for i := range members {
		if m := &members[i]; m.Ended == nil && m.Holder != p.me.Holder {
			return
		}
	}
	w.tell.Alerts.Inherit(m)
	if len(m.Alerts) == 0 {
		return
	}
	w.openAlerts()
	w.tell.Alerts.Close(true)
}
