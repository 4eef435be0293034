package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// model is the environment with another limit or another ladder. Its assumptions are
// in the comment of the package.
type model struct {
	*simulation
	livingWorkers
	unreplayed unreplayedGains
	goal       *goal
	size       rss.Bytes // of the limit that is replaced, 0 for as recorded

	limits  []event.Limit
	done    []*recordedDecision           // with an outcome, by the time of that
	due     int                           // index in done
	has     map[*recordedDecision]float64 // what the workers had here when it was decided on, as a share of what the record says
	answers map[string]*event.Help
}

// newModel makes one. high says what is made of growth after an action of
// the record that is not taken here.
func newModel(p *simulation, g *goal, size rss.Bytes, high bool) *model {
	m := &model{simulation: p, goal: g, size: size, has: map[*recordedDecision]float64{}, answers: map[string]*event.Help{}}
	m.history, m.unreplayed.high = g.history, high
	for _, d := range p.recorded {
		if d.outcome != nil {
			m.done = append(m.done, d)
		}
	}
	slices.SortStableFunc(m.done, func(a, b *recordedDecision) int { return cmp.Compare(a.doneAt, b.doneAt) })
	return m
}

func (m *model) exact() bool { return false }

func (m *model) knew(k event.LimitID) bool {
	return m.size == 0 || m.size == m.goal.limit.Recorded || !m.goal.keys[k]
}

// lead is nothing: how fast a burst is no sample tells.
func (m *model) lead(event.Rule, *event.Limit) rss.Bytes { return 0 }

func (m *model) look(s *record.Sample) []event.Limit {
	m.noteUnreplayed(s.At)
	m.update(m.recording, s)
	m.limits = m.goal.readings(m.limits[:0], m.recording, s)
	for i := range s.Limits {
		m.unreplayed.rise(s.Limits[i].Limit, s.Limits[i].Used)
	}
	for i := range m.limits {
		l := &m.limits[i]
		if l.Binding = false; l.Name != event.LimitTime { // what is left of the job is no forecast
			l.ETA = nil
		}
		if l.Limit > 0 || m.goal.means(l) {
			more, less := m.unreplayed.left(l.Accounting, m.list), m.less(l.Accounting, s.At)
			l.Used = (l.Used + more).Sub(less)
			l.UsedMax = (l.UsedMax + more).Sub(less)
		}
		if m.size > 0 && m.goal.means(l) {
			l.Limit = m.size
		}
	}
	m.share(s.At)
	return m.limits
}

// share notes, where the record has a decision, what part the workers have of
// what the record says: an action that is not taken here frees so much less.
func (m *model) share(now time.Duration) {
	for _, d := range m.near(now, sameLook) {
		if !d.isAt(now) {
			continue
		}
		var all, less rss.Bytes
		for _, w := range m.list {
			anon, file := w.less(m.history, now)
			all, less = all+w.usage.RSS(), less+anon+file
		}
		m.has[d] = 1 - less.Of(all)
	}
}

// can answers for an action: by what the processes have, unless the record says
// that there was no way to act on them.
func (m *model) can(r event.Rule, l *event.Limit) event.Feasibility {
	if d := m.find(r.Action, r.Arg, l); d != nil {
		return event.Feasibility{OK: true}
	}
	of := r.Action.Row()
	switch {
	case r.Action.Asks():
		if h := m.ever(r.Action, r.Arg); h != nil && !h.OK {
			return event.Feasibility{Reason: h.Reason, Detail: h.Detail}
		}
		return event.Feasibility{OK: true}
	case !of.Trims && !of.Single:
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: "a record does not tell what it would free"}
	}
	if h := m.ever(r.Action, r.Arg); h != nil && !h.OK && lacking(h.Reason) {
		return event.Feasibility{Reason: h.Reason, Detail: h.Detail}
	}
	if len(m.list) == 0 {
		return event.Feasibility{Reason: event.ReasonNoWorker}
	}
	gain, reason := rss.Bytes(0), event.ReasonNothing
	if of.Single {
		_, gain, reason = m.pick(l)
	} else {
		gain = m.mapped(l.Accounting)
		if !r.Action.Fits(l).OK {
			reason = event.ReasonNoHelp
		}
	}
	if gain == 0 {
		return event.Feasibility{Reason: reason}
	}
	return event.Feasibility{OK: true, Gain: gain}
}

// ever is the last report of an action to the ladder in the record; nil where there is
// none.
func (m *model) ever(a event.Action, arg string) *event.Help {
	k := string(a) + "=" + arg
	if h, ok := m.answers[k]; ok {
		return h
	}
	var last *help
	for key, list := range m.helps {
		r, err := event.ParseRecorded(key.rule)
		if err != nil || r.Action != a || r.Arg != arg {
			continue
		}
		for i := range list {
			if last == nil || list[i].OK && !last.OK || list[i].OK == last.OK && list[i].at > last.at {
				last = &list[i]
			}
		}
	}
	m.answers[k] = nil
	if last != nil {
		m.answers[k] = last.Help
	}
	return m.answers[k]
}

// lacking says that a refusal is for want of a way to act, which another limit
// or rung would not give; the others are about sizes.
func lacking(r event.Reason) bool {
	switch r {
	case event.ReasonNone, event.ReasonNothing, event.ReasonTooLittle, event.ReasonRecent, event.ReasonPause, event.ReasonResend,
		event.ReasonNoHelp, event.ReasonRecovered, event.ReasonDeferred, event.ReasonBusy:
		return false
	}
	return true
}

// mapped is what a trim of all would free of a limit.
func (m *model) mapped(a event.Accounting) (gain rss.Bytes) {
	for _, w := range m.list {
		_, less := w.less(m.history, m.now)
		gain += w.counted(a, 0, w.usage.File.Sub(less).Sub(m.history.file))
	}
	for _, d := range m.unreplayed.list {
		if d.accounting == a && d.recorded.Action.Row().Trims {
			gain += d.left(m.unreplayed.high, m.list)
		}
	}
	return gain
}

// pick chooses the worker to recycle, as the watcher does.
func (m *model) pick(l *event.Limit) (index int, gain rss.Bytes, reason event.Reason) {
	list := make([]workers.Usage, len(m.list))
	for i, w := range m.list {
		if !w.able {
			continue
		}
		anon, file := w.less(m.history, m.now)
		list[i].Counted = w.counted(l.Accounting, w.usage.Anon.Sub(anon).Sub(m.history.anon), w.usage.File.Sub(file).Sub(m.history.file))
		if w.recycledAt >= 0 {
			list[i].RecycledAgo = max(m.now-w.recycledAt, 1)
		}
	}
	return workers.Pick(list, event.MinGain(0))
}

// claim finds the decision of the record that one is: the same action on a limit
// of that name, at about that time.
func (m *model) claim(d *event.Decision, l *event.Limit) *recordedDecision {
	r := m.find(d.Action, d.Arg, l)
	if r != nil {
		m.unreplayed.drop(func(e *unreplayedGain) bool { return e.recorded == r })
	}
	return r
}

func (m *model) find(a event.Action, arg string, l *event.Limit) *recordedDecision {
	name := event.LimitTime
	if l != nil {
		name = l.Name
	}
	return m.nearest(func(r *recordedDecision) bool { return r.Action == a && r.Arg == arg && r.Limit == name })
}

// act does what the record does not have.
func (m *model) act(d *event.Decision, l *event.Limit) (freed rss.Bytes) {
	switch of := d.Action.Row(); {
	case of.Trims:
		freed = m.mapped(l.Accounting)
		for _, w := range m.list {
			w.trimAt = m.now
		}
		m.unreplayed.drop(func(e *unreplayedGain) bool { return e.recorded.Action.Row().Trims })
	case of.Single:
		i, gain, _ := m.pick(l)
		if i < 0 {
			return 0
		}
		freed, m.list[i].recycledAt = gain, m.now
	}
	return freed
}

// ends says that a limit kills: the one that is meant always, a --limit too, which nothing
// enforces; another only where the record shows that it was not passed then.
func (m *model) ends(l *event.Limit) bool {
	if m.goal.means(l) {
		return true
	}
	f, ok := m.goal.others[l.ID()]
	return ok && f < l.Limit && l.Name.Row().Kills
}

// unreplayedGain is what a recorded action freed that the model does not take.
type unreplayedGain struct {
	recorded   *recordedDecision
	accounting event.Accounting
	amount     rss.Bytes
	whose      map[int]bool // the workers that lived then; nil where none was seen
	risen      rss.Bytes    // by how much use has risen since, by the record
	last       rss.Bytes    // its last use
}

// unreplayedGains are what recorded actions freed that are not taken. high says that what
// grew after an action comes on top of what that freed, else it is the same come back.
type unreplayedGains struct {
	high bool
	list []*unreplayedGain
	any  bool // there was one
}

// note begins a unreplayedGain.
func (d *unreplayedGains) note(r *recordedDecision, a event.Accounting, amount rss.Bytes, list []*worker) {
	e := &unreplayedGain{recorded: r, accounting: a, amount: amount, last: r.outcome.After}
	for _, w := range list {
		if e.whose == nil {
			e.whose = map[int]bool{}
		}
		e.whose[w.proc] = true
	}
	d.list, d.any = append(d.list, e), true
}

// drop ends those that a test names.
func (d *unreplayedGains) drop(gone func(*unreplayedGain) bool) {
	d.list = slices.DeleteFunc(d.list, gone)
}

// rise takes in the use of a limit, by the record.
func (d *unreplayedGains) rise(limit int, used rss.Bytes) {
	for _, e := range d.list {
		if e.recorded.limit == limit {
			e.risen += used.Sub(e.last)
			e.last = used
		}
	}
}

// left is what an accounting counts of all unreplayedGains now.
func (d *unreplayedGains) left(a event.Accounting, list []*worker) (sum rss.Bytes) {
	for _, e := range d.list {
		if e.accounting == a {
			sum += e.left(d.high, list)
		}
	}
	return sum
}

func (e *unreplayedGain) left(high bool, list []*worker) rss.Bytes {
	amount := e.amount
	if len(e.whose) > 0 {
		alive := 0
		for _, w := range list {
			if e.whose[w.proc] {
				alive++
			}
		}
		amount = amount.Scale(float64(alive) / float64(len(e.whose)))
	}
	if !high {
		amount = amount.Sub(e.risen)
	}
	return amount
}

// noteUnreplayed begins unreplayedGains for what recorded actions have freed until now.
func (m *model) noteUnreplayed(now time.Duration) {
	for m.due < len(m.done) && m.done[m.due].doneAt <= now {
		d := m.done[m.due]
		m.due++
		o := d.outcome
		if m.claimed[d] || !o.OK || o.Freed == 0 || d.limit < 0 || d.limit >= len(m.run.Limits) {
			continue
		}
		freed := o.Freed
		if part, ok := m.has[d]; ok {
			freed = freed.Scale(part)
		}
		m.unreplayed.note(d, m.run.Limits[d.limit].Accounting, freed, m.list)
	}
}
