package tell

import (
	"maps"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

const (
	// gainMoved is the part by which an expected gain must have changed to be
	// written down although nothing else has, and gainEvery how often that is
	// done at most for one rung: a worker that grows gives more each second.
	gainMoved = 0.1
	gainEvery = 10 * time.Second
	// helpsKept is the number of answers beyond which those are forgotten that
	// nobody has asked for within helpsOld: a job may have thousands of steps.
	helpsKept = 512
	helpsOld  = 10 * time.Minute
)

// Helps writes down what the ladder is told of an action where that has
// changed. What an action could do rests on loaders, ptrace and much else that
// no record has: with the answers the ladder can be run again without them.
type Helps struct {
	out  *events
	last map[event.Ask]*told
}

// told is an answer as it was written down last.
type told struct {
	event.Feasibility
	worth bool          // what it gives back is worth it, see [event.Rule.Worth]
	again bool          // … again, see [event.Rule.Again]
	at    time.Duration // when it was written down
	asked time.Duration // when the ladder asked last
}

// Heard writes down what a judgement rests on, where that has changed.
func (n *Helps) Heard(in *policy.Input, asked []policy.Due) {
	if n.out.Recorder == nil {
		return
	}
	for _, d := range asked {
		n.heard(in.Now, d.Ask, d.Reading, in.Feasible[d.Ask], in.Lead[d.Ask])
	}
}

// heard takes in one answer and writes it down where it has changed.
func (n *Helps) heard(now time.Duration, key event.Ask, l *event.Limit, h event.Feasibility, lead rss.Bytes) {
	worth, again := h.Gain >= key.Rule.Worth(l), h.Gain >= key.Rule.Again(l)
	was := n.last[key]
	if was != nil {
		was.asked = now
		if !was.differs(now, h, worth, again) {
			return
		}
	}
	if n.last == nil {
		n.last = map[event.Ask]*told{}
	}
	n.last[key] = &told{Feasibility: h, worth: worth, again: again, at: now, asked: now}
	n.out.Note(event.NameHelp, func(head event.Head) any {
		return event.Help{
			Head: head, Rule: key.Rule.String(), Limit: l.Name, Scope: l.Scope, Acct: l.Accounting, Level: l.Level,
			OK: h.OK, Gain: h.Gain, More: h.AtLeast, Later: h.Later, Reason: h.Reason, Detail: h.Detail, Lead: lead,
		}
	})
	if len(n.last) > helpsKept {
		maps.DeleteFunc(n.last, func(_ event.Ask, t *told) bool { return now-t.asked > helpsOld })
	}
}

// differs says that the ladder could do something else with h than with what
// was written down, or that what is to be gained has changed much. A detail that
// changes alone names another process, and changes nothing.
func (t *told) differs(now time.Duration, h event.Feasibility, worth, again bool) bool {
	if t.OK != h.OK || t.Reason != h.Reason || t.Later != h.Later || t.AtLeast != h.AtLeast {
		return true
	}
	if !h.OK {
		return false
	}
	if t.worth != worth || t.again != again || (t.Gain == 0) != (h.Gain == 0) {
		return true
	}
	moved := max(t.Gain, h.Gain) - min(t.Gain, h.Gain)
	return moved.Of(t.Gain) > gainMoved && now-t.at >= gainEvery
}
