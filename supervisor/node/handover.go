package node

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"time"
)

// firedName is the file in which the leader keeps what the next leader must know to do
// nothing twice. It goes with the directory.
const firedName = "fired"

// Handover separates what the leader keeps for the next one from what it kept before.
type Handover struct {
	Changes uint64 // of the ladder
	Waiting uint64 // decision that has not been begun
	Alerts  string // those that receivers may believe to fire
	kept    bool
}

// Keep keeps what encode returns, a JSON value of at most 64 KiB, for the next leader, where
// it has changed. It comes before the actions of a step: killed
// between the two, a leader has left one action out, where it would else have one done twice.
func (p *Place) Keep(is Handover, encode func() ([]byte, error)) error {
	is.kept = true
	if p.post == nil || is == p.handed || !p.handed.kept && is.Changes == 0 {
		return nil
	}
	p.handed = is
	data, err := encode()
	if err != nil {
		return err
	}
	return p.post.dir.write(firedName, json.RawMessage(data))
}

// Kept returns what the leader before us kept, nil for nothing.
func (p *Place) Kept() (data json.RawMessage, err error) {
	if p.post == nil {
		return nil, nil
	}
	err = p.post.dir.read(firedName, &data)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// SomeoneSince says that a rank which is here was here at that time since boot. What was
// kept by ranks that were all killed is about another job step.
func (r *Ranks) SomeoneSince(at time.Duration) bool {
	const tick = time.Second / 100 // USER_HZ, in which /proc/PID/stat counts
	before := func(m Member) bool { return m.Holder.Start > 0 && m.Holder.Start < uint64(at/tick) }
	return before(r.Me) || slices.ContainsFunc(r.Others, before)
}
