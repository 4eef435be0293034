package node

import (
	"slices"
	"time"
)

// Handover tells what the leader keeps for who leads next from what it kept before.
type Handover struct {
	Changes uint64 // of the ladder
	Waiting uint64 // decision that has not been begun
	Alerts  string // those that receivers may believe to fire
	kept    bool
}

// KeepDue says that there is something new to keep.
func (p *Place) KeepDue(is Handover) bool {
	is.kept = true
	return p.post != nil && is != p.handed && (p.handed.kept || is.Changes != 0)
}

// Keep keeps data, a JSON value of at most 64 KiB, for who leads next. It comes before the
// actions of a step: killed between the two, a leader has left one action out, where it
// would else have one done twice.
func (p *Place) Keep(is Handover, data []byte) error {
	is.kept = true
	p.handed = is
	return p.post.Keep(data)
}

// Kept returns what the leader before us kept, nil for nothing.
func (p *Place) Kept() ([]byte, error) {
	if p.post == nil {
		return nil, nil
	}
	return p.post.Kept()
}

// SomeoneSince says that a rank which is here was here at that time since boot. What was
// kept by ranks that were all killed is about another job step.
func (p *Place) SomeoneSince(at time.Duration) bool {
	const tick = time.Second / 100 // USER_HZ, in which /proc/PID/stat counts
	before := func(m Member) bool { return m.Holder.Start > 0 && m.Holder.Start < uint64(at/tick) }
	return before(p.Me) || slices.ContainsFunc(p.Others, before)
}
