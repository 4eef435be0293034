package replay

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// instant is how long an action takes at most that ends within the step that decided on it.
const instant = 5 * time.Millisecond

type decided struct {
	ladder    *policy.State
	decisions []Decision
	claimed   map[*recordedDecision]bool // they were made again
	skipped   map[event.Rule]*Rung       // by rule, what was first crossed without help
}

func newDecided() decided {
	return decided{claimed: map[*recordedDecision]bool{}, skipped: map[event.Rule]*Rung{}}
}

// decide adds a decision, which may be one of the record.
func (p *decided) decide(at time.Duration, d *event.Decision, was *recordedDecision) *Decision {
	out := Decision{At: at.Seconds(), Rule: d.Rule, Limit: d.Limit, Action: d.Action, Arg: d.Arg, Used: d.Used, Size: d.LimitSize, ETA: d.ETA}
	if was != nil {
		p.claimed[was] = true
		out.Recorded = was.asRecorded()
	}
	p.decisions = append(p.decisions, out)
	return &p.decisions[len(p.decisions)-1]
}

// skip notes when a rung was first crossed without help.
func (p *decided) skip(all []policy.Skipped, at time.Duration) {
	for i := range all {
		if k := &all[i]; p.skipped[k.Rule] == nil {
			met := at.Seconds()
			p.skipped[k.Rule] = &Rung{Met: &met, Reason: k.Reason, Detail: k.Detail}
		}
	}
}

// model is one run of the ladder over the whole record with another limit or other rules. Its
// assumptions are in the comment of the package.
type model struct {
	*recording
	decided
	livingWorkers
	unreplayed unreplayedGains
	goal       *goal
	conditions

	forecasts policy.Forecasts
	now       time.Duration    // of the look that is judged
	before    time.Duration    // … and of the one before it, -1 for none
	seen      []record.Reading // … in the last look
	limits    []event.Limit    // as the model has them
	readings  []event.Limit    // … with forecasts
	next      int              // in starts
	open      []flight
	due       int                           // in done
	has       map[*recordedDecision]float64 // what the workers had here when it was decided on, as a share of what the record says

	death *Death
	// passed is when a limit was passed that kills nothing, that of --limit: the run
	// goes on, and with it the ladder.
	passed *Death
	most   rss.Bytes // the highest use of the limit that is meant
}

// conditions are what is different in a model.
type conditions struct {
	size    rss.Bytes    // of the limit that is replaced, 0 for as recorded
	rules   []event.Rule // nil for those of the record
	high    bool         // what grew after an action of the record that is not taken here is new memory
	plain   bool         // no rule asks for a forecast, so none is made
	brief   bool         // it is enough to know that a limit was passed
	endless bool         // no limit ends the job
}

// flight is an action of the replay that has no outcome yet.
type flight struct {
	id       uint64
	action   event.Action
	limit    event.Limit
	recorded *recordedDecision // the recorded one, nil where it is the model's
	freed    rss.Bytes
}

// play runs the ladder over the samples until the job has died.
func (p *recording) play(g *goal, how conditions) *model {
	m := &model{recording: p, decided: newDecided(), goal: g, conditions: how, before: -1, has: map[*recordedDecision]float64{}}
	m.history, m.unreplayed.high = g.history, how.high
	for s := range p.run.Samples() {
		if s.At == m.before && slices.Equal(s.Limits, m.seen) {
			continue // the same look: one sample for each decision on it
		}
		m.seen = append(m.seen[:0], s.Limits...)
		m.now = s.At
		m.begin()
		m.look(s)
		m.settle()
		if m.died() || m.brief && m.passed != nil {
			break
		}
		if m.step(); m.death != nil {
			break
		}
		m.before = s.At
	}
	return m
}

func (m *model) begin() {
	for m.next < len(m.starts) && m.starts[m.next].at <= m.now+sameLook {
		s := m.starts[m.next]
		m.next++
		rules := m.rules
		if rules == nil {
			rules = s.rules
		}
		m.forecasts = policy.Forecasts{}
		m.ladder = policy.New(rules, s.attempt)
		m.open = nil
		if h := s.handed; h != nil {
			// Of a limit that has another size here it is not known what would have been done
			// about it.
			memory := *h.memory
			memory.Rungs = slices.DeleteFunc(slices.Clone(memory.Rungs), func(e policy.RungMemory) bool {
				k := e.LimitID
				if !m.knew(k) {
					return true
				}
				k.Level = ""
				return e.Own(h.own) && !m.knew(k)
			})
			m.ladder.Restore(&memory, h.at, h.clock, h.own)
		}
	}
}

// knew says that what was done about a limit before the record began was done at the size
// that it has here.
func (m *model) knew(k event.LimitID) bool {
	return m.size == 0 || m.size == m.goal.limit.Recorded || !m.goal.keys[k]
}

func (m *model) look(s *record.Sample) {
	m.noteUnreplayed()
	m.update(m.recording, s)
	m.limits = m.goal.readings(m.limits[:0], m.recording, s)
	for i := range s.Limits {
		m.unreplayed.rise(s.Limits[i].Limit, s.Limits[i].Used)
	}
	for i := range m.limits {
		l := &m.limits[i]
		meant := m.goal.means(l)
		if l.Limit > 0 || meant {
			l.Used = (l.Used + m.unreplayed.left(l.Accounting, m.list)).Sub(m.less(l.Accounting, s.At))
		}
		if meant {
			m.most = max(m.most, l.Used)
			if m.size > 0 {
				l.Limit = m.size
			}
		}
	}
	m.share(s.At)
}

func (m *model) step() {
	if m.plain {
		m.readings = slices.Clone(m.limits)
		policy.Bind(m.readings)
	} else {
		m.readings = m.forecasts.Of(m.now, m.limits, len(m.open) > 0)
	}
	m.ladder.Observe(m.now, m.readings)
	in := policy.Input{Now: m.now, Limits: m.readings, JobEnd: m.jobEnd()}
	for due := range m.ladder.Asks(&in) {
		in.Feasible[due.Ask] = m.can(due.Rule, due.Reading)
	}
	res := m.ladder.Judge(in)
	for i := range res.Decisions {
		m.carryOut(&res.Decisions[i])
	}
	m.skip(res.Skipped, m.now)
}

// carryOut writes a decision down and has it done: what the record does not have frees what
// the model says.
func (m *model) carryOut(d *event.Decision) {
	f := flight{id: d.ID, action: d.Action}
	i := slices.IndexFunc(m.readings, func(l event.Limit) bool { return l.Name == d.Limit && l.Used == d.Used && l.Limit == d.LimitSize })
	name := event.LimitTime
	if i >= 0 {
		f.limit = m.readings[i]
		name = f.limit.Name
	}
	if f.recorded = m.find(d.Action, d.Arg, name); f.recorded != nil {
		m.unreplayed.drop(func(e *unreplayedGain) bool { return e.recorded == f.recorded })
	}
	out := m.decide(m.now, d, f.recorded)
	switch {
	case d.Action == event.ActionStop && f.recorded == nil:
		m.death = &Death{At: m.now.Seconds(), By: "the rule " + d.Rule, Used: d.Used, Size: d.LimitSize}
	case f.recorded == nil && i >= 0:
		f.freed = m.act(d, &f.limit)
		out.Freed = f.freed
	}
	if d.Action.Acts() {
		m.open = append(m.open, f)
	}
}

// settle gives the ladder the results of its actions until now: the record's at the time
// of their outcomes, the model's with the next look.
func (m *model) settle() {
	m.open = slices.DeleteFunc(m.open, func(f flight) bool {
		r := f.recorded
		switch {
		case r == nil:
			o := event.Outcome{Decision: f.id, OK: f.freed > 0, Reason: event.ReasonDone, Before: f.limit.Used, After: f.limit.Used.Sub(f.freed), Freed: f.freed}
			if i := slices.IndexFunc(m.limits, func(l event.Limit) bool { return l.ID() == f.limit.ID() }); i >= 0 && f.freed > 0 {
				o.After = m.limits[i].Used
			}
			m.ladder.Done(o)
		case r.outcome == nil || r.doneAt > m.now+rounding || r.doneAt-r.at <= instant && r.at >= m.now:
			return false
		default:
			o := *r.outcome
			o.Decision = f.id
			if m.starts[m.next-1].ofJob && f.action == event.ActionStop {
				o.OK = false // what was not meant goes on, and so did what judged it
			}
			m.ladder.Pass(r.doneAt)
			m.ladder.Done(o)
		}
		return true
	})
}

// died says that a limit has ended the job: the one that is meant always, a --limit too, which
// nothing enforces, so that it is passed and ends nothing; another only where the record shows
// that it was not passed then.
func (m *model) died() bool {
	for i := range m.limits {
		l := &m.limits[i]
		if m.endless || l.Limit == 0 || l.Used < l.Limit {
			continue
		}
		if most, ok := m.goal.others[l.ID()]; !m.goal.means(l) && (!ok || most >= l.Limit || !l.Name.Row().Kills) {
			continue
		}
		d := &Death{At: m.now.Seconds(), Limit: l.Name, By: l.Enforcer, Used: l.Used, Size: l.Limit}
		if l.Name != event.LimitUser {
			m.death = d
			return true
		}
		if m.passed == nil {
			m.passed = d
		}
	}
	return false
}

// ended is how the job ended, else how a limit was passed that kills nothing; nil where
// it stayed inside.
func (m *model) ended() *Death {
	if m.death != nil {
		return m.death
	}
	return m.passed
}

// jobEnd is the time until Slurm ends the job: as it was read, else from the
// time that was known at the start.
func (m *model) jobEnd() (left time.Duration) {
	for i := range m.limits {
		if l := &m.limits[i]; l.Name == event.LimitTime && l.ETA != nil {
			left = time.Duration(*l.ETA * float64(time.Second))
		}
	}
	if job := m.run.Meta.Job; left == 0 && job != nil && !job.End.IsZero() {
		left = job.End.Sub(m.run.Wall(m.now))
	}
	return left
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
	if m.find(r.Action, r.Arg, l.Name) != nil {
		return event.Feasibility{OK: true}
	}
	of := r.Action.Row()
	was, known := m.answers[asked{r.Action, r.Arg}]
	refused := event.Feasibility{Reason: was.Reason, Detail: was.Detail}
	switch {
	case r.Action.Asks() && known && !was.OK:
		return refused
	case r.Action.Asks():
		return event.Feasibility{OK: true}
	case !of.Trims && !of.Single:
		return event.Feasibility{Reason: event.ReasonUnsupported, Detail: "a record does not tell what it would free"}
	case known && !was.OK && lacking(was.Reason):
		return refused
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

// lacking says that a refusal is for want of a way to act, which another limit
// or rung would not give; the others are about sizes.
func lacking(r event.Reason) bool {
	switch r {
	case event.ReasonNone, event.ReasonNothing, event.ReasonTooLittle, event.ReasonRecent, event.ReasonPause, event.ReasonResend,
		event.ReasonNoHelp, event.ReasonRecovered, event.ReasonDeferred, event.ReasonTask, event.ReasonBusy:
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

// find is the decision of the record that is nearest to now and not claimed, of the same
// action on a limit of that name.
func (m *model) find(a event.Action, arg string, name event.LimitName) (best *recordedDecision) {
	for _, r := range m.near(m.now, m.tolerance()) {
		if !m.claimed[r] && r.Action == a && r.Arg == arg && r.Limit == name && (best == nil || (r.at-m.now).Abs() < (best.at-m.now).Abs()) {
			best = r
		}
	}
	return best
}

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

func (d *unreplayedGains) drop(gone func(*unreplayedGain) bool) {
	d.list = slices.DeleteFunc(d.list, gone)
}

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
func (m *model) noteUnreplayed() {
	for ; m.due < len(m.done) && m.done[m.due].doneAt <= m.now; m.due++ {
		d := m.done[m.due]
		if o := d.outcome; m.claimed[d] || !o.OK || o.Freed == 0 || d.limit < 0 || d.limit >= len(m.run.Limits) {
			continue
		}
		freed := d.outcome.Freed
		if part, ok := m.has[d]; ok {
			freed = freed.Scale(part)
		}
		m.unreplayed.note(d, m.run.Limits[d.limit].Accounting, freed, m.list)
	}
}
