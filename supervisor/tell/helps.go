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
	// note puts an event into the record; nil where there is none.
	note func(event.Name, func(event.Head) any)
	last map[helpKey]*told
}

type helpKey struct {
	rule  event.Rule
	limit event.LimitID
}

// told is an answer as it was written down last.
type told struct {
	policy.Help
	worth bool          // what it gives back is worth it, see [event.Rule.Worth]
	again bool          // … again, see [event.Rule.Again]
	at    time.Duration // when it was written down
	asked time.Duration // when the ladder asked last
}

// Listen returns can and lead as the ladder is to call them in one step.
func (n *Helps) Listen(
	now time.Duration,
	can func(event.Rule, *event.Limit) policy.Help,
	lead func(event.Rule, *event.Limit) rss.Bytes,
) (func(event.Rule, *event.Limit) policy.Help, func(event.Rule, *event.Limit) rss.Bytes) {
	if n.note == nil {
		return can, lead
	}
	// The ladder asks for the lead right before it asks for help, or not at all.
	var ahead rss.Bytes
	var of helpKey
	return func(r event.Rule, l *event.Limit) policy.Help {
			h, key := can(r, l), helpKey{r, l.ID()}
			if of != key {
				ahead = 0
			}
			n.heard(now, key, l, h, ahead)
			return h
		}, func(r event.Rule, l *event.Limit) rss.Bytes {
			ahead, of = lead(r, l), helpKey{r, l.ID()}
			return ahead
		}
}

// heard takes in one answer and writes it down where it has changed.
func (n *Helps) heard(now time.Duration, key helpKey, l *event.Limit, h policy.Help, lead rss.Bytes) {
	worth, again := h.Gain >= key.rule.Worth(l), h.Gain >= key.rule.Again(l)
	was := n.last[key]
	if was != nil {
		was.asked = now
		if !was.differs(now, h, worth, again) {
			return
		}
	}
	if n.last == nil {
		n.last = map[helpKey]*told{}
	}
	n.last[key] = &told{Help: h, worth: worth, again: again, at: now, asked: now}
	n.note(event.NameHelp, func(head event.Head) any {
		return event.Help{
			Head: head, Rule: key.rule.String(), Limit: l.Name, Scope: l.Scope, Acct: l.Accounting, Level: l.Level,
			OK: h.OK, Gain: h.Gain, More: h.More, Later: h.Later, Reason: h.Reason, Detail: h.Detail, Lead: lead,
		}
	})
	if len(n.last) > helpsKept {
		maps.DeleteFunc(n.last, func(_ helpKey, t *told) bool { return now-t.asked > helpsOld })
	}
}

// differs says that the ladder could do something else with h than with what
// was written down, or that what is to be gained has changed much. A detail that
// changes alone names another process, and changes nothing.
func (t *told) differs(now time.Duration, h policy.Help, worth, again bool) bool {
	if t.OK != h.OK || t.Reason != h.Reason || t.Later != h.Later || t.More != h.More {
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
