package replay

import (
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// finest is the part of a size down to which the least one is looked for.
const finest = 0.01

// least finds the least size of the limit by each way of asking.
func (p *past) least(r *Result, g *goal, opt Options) {
	if r.Limit == nil || g.limit.Peak == 0 {
		return
	}
	fate, _, _ := p.fate()
	ended := fate != Lives // more may have been used had it gone on
	most := upTo(g.limit.Peak)
	r.Least = append(r.Least, Least{Way: AsRecorded, Mem: most, Most: most, AtLeast: ended})

	low, high := p.peaks(g)
	r.Least = append(r.Least, Least{Way: WithoutActions, Estimate: true, Mem: upTo(low), Most: upTo(high), AtLeast: ended})

	// With no more than the ladder needs to keep the job inside.
	rules := opt.Rules
	if rules == nil {
		rules = p.starts[len(p.starts)-1].rules
	}
	if !slices.ContainsFunc(rules, func(r event.Rule) bool { return r.Action.Acts() }) {
		return // that is the way before
	}
	mem, owed := p.search(g, rules, upTo(high), opt.Limit, false)
	more := mem
	if owed {
		// From above none may be found where from below one is.
		more, _ = p.search(g, rules, upTo(high), opt.Limit, true)
	}
	r.Least = append(r.Least, Least{Way: WithLadder, Estimate: true, Mem: mem, Most: more, AtLeast: ended})
}

// upTo is the least limit in whole MiB that lies above a use.
func upTo(used rss.Bytes) rss.Bytes { return (used/rss.MiB + 1) * rss.MiB }

// peaks is the most that would have been used had nobody acted, at least and at
// most.
func (p *past) peaks(g *goal) (low, high rss.Bytes) {
	for _, above := range []bool{false, true} {
		run := newPass(p, []event.Rule{})
		run.plain = true
		w := &highest{model: newModel(run, g, unlimited, above)}
		run.play(w)
		if above {
			high = w.most
		} else {
			low = w.most
		}
		if !w.owed.any {
			return low, low
		}
	}
	return min(low, high), max(low, high)
}

// unlimited is a limit that no job reaches.
const unlimited = 1 << 60

// highest is a model that remembers the most that was used.
type highest struct {
	*model
	most rss.Bytes
}

func (h *highest) ends(*event.Limit) bool { return false }

func (h *highest) look(s *record.Sample) []event.Limit {
	limits := h.model.look(s)
	for i := range limits {
		if h.goal.means(&limits[i]) {
			h.most = max(h.most, limits[i].Used)
		}
	}
	return limits
}

// search finds the least size with which the ladder keeps the job inside, by
// halving, and by trying size, that of the replay: 0 where even most is too little. owed says that recorded actions were
// not taken.
func (p *past) search(g *goal, rules []event.Rule, most, size rss.Bytes, high bool) (mem rss.Bytes, owed bool) {
	rules = slices.DeleteFunc(slices.Clone(rules), func(r event.Rule) bool { return r.Action == event.ActionWarn })
	plain := !slices.ContainsFunc(rules, func(r event.Rule) bool { return r.Cond.Kind == event.KindETA && r.Limit != event.LimitTime })
	lives := func(size rss.Bytes) bool {
		run := newPass(p, rules)
		run.plain, run.brief = plain, true // a forecast is dear, and much is played
		m := newModel(run, g, size, high)
		run.play(m)
		owed = owed || m.owed.any
		return run.ended() == nil
	}
	if !lives(most) {
		return 0, owed
	}
	// A larger size may fare worse, where an action comes too late: what is known
	// to do is not passed over.
	for _, known := range []rss.Bytes{g.limit.Recorded, size / rss.MiB * rss.MiB} {
		if known > 0 && known < most && lives(known) {
			most = known
		}
	}
	least := most / 64
	for most-least > max(most.Scale(finest), rss.MiB) {
		if mid := (least + most) / 2 / rss.MiB * rss.MiB; lives(mid) {
			most = mid
		} else {
			least = mid
		}
	}
	return most, owed
}
