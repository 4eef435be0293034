package replay

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// recorded is the world as the record has it: nothing is changed, and nothing
// guessed.
type recorded struct {
	*pass
	limits []event.Limit
}

func (w *recorded) exact() bool             { return true }
func (w *recorded) ends(*event.Limit) bool  { return false }
func (w *recorded) knew(event.LimitID) bool { return true }

// act has no effect: it did not happen.
func (w *recorded) act(*event.Decision, *event.Limit) rss.Bytes { return 0 }

func (w *recorded) look(s *record.Sample) []event.Limit {
	w.limits = w.past.readings(w.limits[:0], s)
	return w.limits
}

// readings appends the limits of a sample, as the ladder read them.
func (p *past) readings(to []event.Limit, s *record.Sample) []event.Limit {
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit >= len(p.run.Limits) {
			continue // what told of it was lost
		}
		l := p.run.Limits[r.Limit]
		l.Used, l.UsedMax, l.Limit, l.Charged, l.WorkingSet, l.Binding = r.Used, r.UsedMax, r.Size, r.Charged, r.WorkingSet, r.Binding
		l.ETA = nil
		if r.ETA >= 0 {
			eta := r.ETA
			l.ETA = &eta
		}
		if s.AtDecision {
			l.Used = p.precise(s.At, r)
		}
		to = append(to, l)
	}
	return to
}

// precise is what a limit stood at to the byte, where a decision says so: the
// rung may lie within the KiB that the sample has.
func (p *past) precise(at time.Duration, r *record.Reading) rss.Bytes {
	for _, d := range p.near(at, sameLook) {
		if d.isAt(at) && d.limit == r.Limit && d.LimitSize == r.Size && d.Used/rss.KiB == r.Used/rss.KiB {
			return d.Used
		}
	}
	return r.Used
}

// near returns the decisions of the record within that time of a moment.
func (p *past) near(at, within time.Duration) []*deed {
	from, _ := slices.BinarySearchFunc(p.deeds, at-within, func(d *deed, at time.Duration) int {
		if d.at < at {
			return -1
		}
		return 1
	})
	to := from
	for to < len(p.deeds) && p.deeds[to].at <= at+within {
		to++
	}
	return p.deeds[from:to]
}

// can answers as the watcher did: that an action could help where it was decided
// on, else as it was written down last.
func (w *recorded) can(r event.Rule, l *event.Limit) policy.Help {
	rule := r.String()
	for _, d := range w.near(w.now, sameLook) {
		if d.isAt(w.now) && d.Rule == rule && !w.claimed[d] && w.isOn(d, l) {
			return policy.Help{OK: true, Gain: l.Limit} // enough, or it was not decided on
		}
	}
	if h := w.answer(helpKey{rule, l.ID()}, w.now+rounding); h != nil {
		return policy.Help{OK: h.OK, Gain: h.Gain, More: h.More, Later: h.Later, Reason: h.Reason, Detail: h.Detail}
	}
	if r.Action == event.ActionExec {
		return policy.Help{OK: true} // so it always is
	}
	return policy.Help{Reason: event.ReasonUnsupported, Detail: "the record does not tell whether it could help"}
}

// isOn says that a decision of the record was on that limit.
func (p *past) isOn(d *deed, l *event.Limit) bool {
	if l == nil || d.limit < 0 || d.limit >= len(p.run.Limits) {
		return l == nil || d.Limit == l.Name
	}
	return p.run.Limits[d.limit].ID() == l.ID()
}

// answer is the last that the ladder was told at that moment, else the next; nil
// where it was never told anything.
func (p *past) answer(k helpKey, at time.Duration) *event.Help {
	list := p.helps[k]
	if len(list) == 0 {
		return nil
	}
	return list[max(after(list, at)-1, 0)].Help
}

// after is the index of the first answer that was given later.
func after(list []help, at time.Duration) int {
	i, _ := slices.BinarySearchFunc(list, at, func(h help, at time.Duration) int {
		if h.at > at {
			return 1
		}
		return -1
	})
	return i
}

// lead is what a rule was met ahead by: where it fired then, or was told then
// that it could not help.
func (w *recorded) lead(r event.Rule, l *event.Limit) rss.Bytes {
	rule := r.String()
	for _, d := range w.near(w.now, sameLook) {
		if d.Lead > 0 && d.isAt(w.now) && d.Rule == rule && !w.claimed[d] && w.isOn(d, l) {
			return d.Lead
		}
	}
	list := w.helps[helpKey{rule, l.ID()}]
	for _, h := range list[after(list, w.before+rounding):after(list, w.now+rounding)] {
		if h.Lead > 0 {
			return h.Lead
		}
	}
	return 0
}

// claim finds the nearest decision by the same rule on the same limit.
func (w *recorded) claim(d *event.Decision, l *event.Limit) *deed {
	var best *deed
	for _, r := range w.near(w.now, w.tolerance()) {
		if w.claimed[r] || r.Rule != d.Rule || r.Limit != d.Limit || !w.isOn(r, l) {
			continue
		}
		if best == nil || (r.at-w.now).Abs() < (best.at-w.now).Abs() {
			best = r
		}
	}
	return best
}

// tolerance is how far a decision may be from that of the record and be the same:
// the time between two samples, and what the watcher's looks are late at most.
func (p *past) tolerance() time.Duration {
	if p.run.Thinned {
		return max(p.interval, time.Minute) + sameLook
	}
	return p.interval + p.interval/2 + sameLook
}
