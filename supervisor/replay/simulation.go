package replay

import (
	"slices"
	"sort"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// CoolDown is [policy.Options.CoolDown] as the watcher has it.
const CoolDown = 200 * time.Millisecond

const (
	// instant is how long an action takes at most that ends within the step that
	// decided on it.
	instant = 5 * time.Millisecond
	// late is what a look may be later than its sample says.
	late = time.Millisecond - time.Nanosecond
	// endUnsure is for how long at most a rule on the job's end is held up while
	// scontrol is asked for it.
	endUnsure = time.Minute
)

// simulation is one run of the ladder over the whole record.
type simulation struct {
	*recording
	environment environment
	rules       []event.Rule // nil for those of the record
	plain       bool         // no rule asks for a forecast, so none is made
	ladder      *policy.State
	forecasts   policy.Forecasts
	ofJob       bool

	now      time.Duration    // of the look that is judged
	before   time.Duration    // … and of the one before it, -1 for none
	seen     []record.Reading // … in the last look
	readings []event.Limit    // … of the look
	next     int              // in starts
	claimed  map[*recordedDecision]bool
	open     []flight

	decisions []Decision
	skipped   map[event.Rule]*Rung // by rule, what was first crossed without help
	death     *Death
	// passed is when a limit was passed that kills nothing, that of --limit: the run
	// goes on, and with it the ladder. brief says that it is enough to know of it.
	passed *Death
	brief  bool
}

// environment is what the ladder looks at and acts on: the record alone, or a model.
type environment interface {
	// look returns the limits at a sample.
	look(s *record.Sample) []event.Limit
	can(r event.Rule, l *event.Limit) event.Feasibility
	lead(r event.Rule, l *event.Limit) rss.Bytes
	// knew says that what was done about a limit before the record began was done at
	// the size that it has here.
	knew(k event.LimitID) bool
	// exact says that forecasts are those of the record.
	exact() bool
	// claim finds the decision of the record that d is, nil for none.
	claim(d *event.Decision, l *event.Limit) *recordedDecision
	// act carries out what the record does not have, and returns what that frees.
	act(d *event.Decision, l *event.Limit) rss.Bytes
	// ends says that a limit has ended the job.
	ends(l *event.Limit) bool
}

// flight is an action of the replay that has no outcome yet.
type flight struct {
	id       uint64
	action   event.Action
	limit    event.Limit
	recorded *recordedDecision // the recorded one, nil where it is the model's
	freed    rss.Bytes
}

func newSimulation(p *recording, rules []event.Rule) *simulation {
	return &simulation{recording: p, rules: rules, before: -1, claimed: map[*recordedDecision]bool{}, skipped: map[event.Rule]*Rung{}}
}

// play goes through the samples until the job has died.
func (p *simulation) play(w environment) {
	p.environment = w
	for s := range p.run.Samples() {
		if s.At == p.before && slices.Equal(s.Limits, p.seen) {
			continue // the same look: one sample for each decision on it
		}
		p.seen = append(p.seen[:0], s.Limits...)
		p.now = s.At
		p.begin()
		limits := w.look(s)
		p.settle(limits)
		if p.died(limits) || p.brief && p.passed != nil {
			return
		}
		p.step(p.now+late, limits)
		if p.death != nil {
			return
		}
		p.before = s.At
	}
}

// begin starts the ladder where a watcher began.
func (p *simulation) begin() {
	for p.next < len(p.starts) && p.starts[p.next].at <= p.now+sameLook {
		s := p.starts[p.next]
		p.next++
		rules := p.rules
		if rules == nil {
			rules = s.rules
		}
		p.forecasts = policy.Forecasts{}
		p.ladder = policy.New(rules, policy.Options{CoolDown: CoolDown, FirstID: s.firstID})
		p.ofJob, p.open = s.ofJob, nil
		if s.handed != nil {
			p.restore(s.handed)
		}
	}
}

// step judges one look.
func (p *simulation) step(now time.Duration, limits []event.Limit) {
	switch {
	case p.environment.exact():
		p.readings = recorded(limits)
	case p.plain:
		p.readings = slices.Clone(limits)
		for i := range p.readings {
			if l := &p.readings[i]; l.Limit > 0 {
				l.ETA, l.Outlook = nil, event.Outlook{}
			}
		}
		policy.Bind(p.readings)
	default:
		p.readings = p.forecasts.Of(now, limits)
	}
	p.ladder.Observe(now, p.readings)
	in := policy.Input{Now: now, Limits: p.readings, Lead: map[event.Ask]rss.Bytes{}}
	in.JobEnd, in.EndUnsure = p.jobEnd(now, limits)
	for r, l := range p.ladder.Uncrossed(in.Limits) {
		if lead := p.environment.lead(r, l); lead > 0 {
			in.Lead[event.Ask{Rule: r, On: l.ID()}] = lead
		}
	}
	for due := range p.ladder.Asks(&in) {
		in.Feasible[due.Ask] = p.environment.can(due.Rule, due.Reading)
	}
	res := p.ladder.Judge(in)
	for i := range res.Decisions {
		p.decided(min(now, p.now), &res.Decisions[i])
	}
	p.skip(res.Skipped, min(now, p.now))
}

// recorded are the limits with the forecasts of the record. They are whole seconds there: of
// two that are equal the binding one was the shorter.
func recorded(limits []event.Limit) []event.Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		if l := &limits[i]; l.Limit > 0 && l.ETA != nil && !l.Binding {
			eta := *l.ETA + 0.5
			l.ETA = &eta
		}
	}
	policy.Bind(limits)
	return limits
}

// decided writes a decision down and has it done.
func (p *simulation) decided(now time.Duration, d *event.Decision) {
	l := p.meant(d)
	r := p.environment.claim(d, l)
	out := Decision{
		At: now.Seconds(), Rule: d.Rule, Limit: d.Limit, Action: d.Action, Arg: d.Arg, Used: d.Used, Size: d.LimitSize, ETA: d.ETA,
	}
	if r != nil {
		p.claimed[r] = true
		out.Recorded = r.asRecorded()
	}
	f := flight{id: d.ID, action: d.Action, recorded: r}
	if l != nil {
		f.limit = *l
	}
	switch {
	case d.Action == event.ActionStop && r == nil:
		p.death = &Death{At: now.Seconds(), By: "the rule " + d.Rule, Used: d.Used, Size: d.LimitSize}
	case r == nil && l != nil:
		f.freed = p.environment.act(d, l)
		out.Freed = f.freed
	}
	if d.Action.Acts() {
		p.open = append(p.open, f)
	}
	p.decisions = append(p.decisions, out)
}

func (d *recordedDecision) asRecorded() *Recorded {
	r := &Recorded{ID: d.ID, At: d.at.Seconds(), Rule: d.Rule, Used: d.Used}
	if d.outcome != nil {
		r.Freed = d.outcome.Freed
	}
	return r
}

// meant is the reading that a decision is about, nil for the job's end.
func (p *simulation) meant(d *event.Decision) *event.Limit {
	for i := range p.readings {
		if l := &p.readings[i]; l.Name == d.Limit && l.Used == d.Used && l.Limit == d.LimitSize {
			return l
		}
	}
	return nil
}

// settle gives the ladder the results of its actions until now: the record's at the time
// of their outcomes, the model's with the next look.
func (p *simulation) settle(limits []event.Limit) {
	open := p.open
	p.open = nil
	for _, f := range open {
		switch {
		case f.recorded == nil:
			o := event.Outcome{Decision: f.id, OK: f.freed > 0, Reason: event.ReasonDone, Before: f.limit.Used, After: f.limit.Used.Sub(f.freed), Freed: f.freed}
			if l := find(limits, &f.limit); l != nil && f.freed > 0 {
				o.After = l.Used
			}
			p.ladder.Done(o)
		case f.recorded.outcome == nil || f.recorded.doneAt > p.now+rounding || f.recorded.instant() && f.recorded.at >= p.now:
			p.open = append(p.open, f)
		default:
			p.settled(&f)
		}
	}
}

// instant says that an action had ended within the step that decided on it.
func (d *recordedDecision) instant() bool { return d.doneAt-d.at <= instant }

// settled passes a recorded outcome on. The watcher judges again at once, but
// for what has ended within the step that began it: where no sample of that look
// was kept, the limit's use is in the outcome.
func (p *simulation) settled(f *flight) {
	o := *f.recorded.outcome
	o.Decision = f.id
	if p.ofJob && f.action == event.ActionStop {
		o.OK = false // what was not meant goes on, and so did what judged it
	}
	at := f.recorded.doneAt
	p.ladder.Pass(at)
	p.ladder.Done(o)
	if !p.environment.exact() || p.now-at <= 2*sameLook || f.recorded.instant() {
		return
	}
	was := p.readings
	var then []event.Limit
	// Of PSS an outcome has the most that it can be, by which no rule judges.
	if l := find(was, &f.limit); l != nil && l.Accounting != event.AccountingPSS {
		then = []event.Limit{*l}
		then[0].Used = o.After
	}
	p.step(at, then)
	p.readings = was
}

// find returns the reading of the same limit, nil where there is none.
func find(limits []event.Limit, like *event.Limit) *event.Limit {
	for i := range limits {
		if limits[i].ID() == like.ID() {
			return &limits[i]
		}
	}
	return nil
}

// died says that a limit has ended the job. What only our own rules act on is passed,
// and ends nothing.
func (p *simulation) died(limits []event.Limit) bool {
	for i := range limits {
		l := &limits[i]
		if l.Limit == 0 || l.Used < l.Limit || !p.environment.ends(l) {
			continue
		}
		d := &Death{At: p.now.Seconds(), Limit: l.Name, By: l.Enforcer, Used: l.Used, Size: l.Limit}
		if l.Name != event.LimitUser {
			p.death = d
			return true
		}
		if p.passed == nil {
			p.passed = d
		}
	}
	return false
}

// ended is how the job ended, else how a limit was passed that kills nothing; nil where
// it stayed inside.
func (p *simulation) ended() *Death {
	if p.death != nil {
		return p.death
	}
	return p.passed
}

// jobEnd is the time until Slurm ends the job: as it was read, else from the
// time that was known at the start. While scontrol was being asked no rule on it
// fired: so it was before every decision on it.
func (p *simulation) jobEnd(now time.Duration, limits []event.Limit) (left time.Duration, unsure bool) {
	for i := range limits {
		if l := &limits[i]; l.Name == event.LimitTime && l.ETA != nil {
			left = time.Duration(*l.ETA * float64(time.Second))
		}
	}
	if job := p.run.Meta.Job; left == 0 && job != nil && !job.End.IsZero() {
		left = job.End.Sub(p.run.Wall(now))
	}
	for _, d := range p.timed {
		if d.at >= now-sameLook {
			return left, d.at > now+sameLook && d.at <= now+endUnsure
		}
	}
	return left, false
}

// unchanged is the environment as the record has it: nothing is changed, and nothing
// guessed.
type unchanged struct {
	*simulation
	limits []event.Limit
}

func (w *unchanged) exact() bool             { return true }
func (w *unchanged) ends(*event.Limit) bool  { return false }
func (w *unchanged) knew(event.LimitID) bool { return true }

// act has no effect: it did not happen.
func (w *unchanged) act(*event.Decision, *event.Limit) rss.Bytes { return 0 }

func (w *unchanged) look(s *record.Sample) []event.Limit {
	w.limits = w.recording.readings(w.limits[:0], s)
	return w.limits
}

// readings appends the limits of a sample, as the ladder read them.
func (p *recording) readings(to []event.Limit, s *record.Sample) []event.Limit {
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit >= len(p.run.Limits) {
			continue // its description was lost
		}
		l := p.run.Limits[r.Limit]
		l.Used, l.UsedMax, l.Limit, l.Charged, l.WorkingSet, l.Binding = r.Used, r.UsedMax, r.Size, r.Charged, r.WorkingSet, r.Binding
		l.ETA, l.ETAHigh = nil, nil
		if r.ETA >= 0 {
			eta := r.ETA
			if l.ETA = &eta; !r.MayFlatten {
				l.ETAHigh = &eta
			}
		}
		if s.AtDecision {
			l.Used = p.precise(s.At, r)
		}
		to = append(to, l)
	}
	return to
}

// precise is a limit's use to the byte, where a decision says so: the
// rung may lie within the KiB that the sample has.
func (p *recording) precise(at time.Duration, r *record.Reading) rss.Bytes {
	for _, d := range p.near(at, sameLook) {
		if d.isAt(at) && d.limit == r.Limit && d.LimitSize == r.Size && d.Used/rss.KiB == r.Used/rss.KiB {
			return d.Used
		}
	}
	return r.Used
}

// near returns the decisions of the record within that time of a moment.
func (p *recording) near(at, within time.Duration) []*recordedDecision {
	from := sort.Search(len(p.recorded), func(i int) bool { return p.recorded[i].at >= at-within })
	to := sort.Search(len(p.recorded), func(i int) bool { return p.recorded[i].at > at+within })
	return p.recorded[from:to]
}

// can answers as the watcher did: that an action could help where it was decided
// on, else as it was written down last.
func (w *unchanged) can(r event.Rule, l *event.Limit) event.Feasibility {
	rule := r.String()
	for _, d := range w.near(w.now, sameLook) {
		if d.isAt(w.now) && d.Rule == rule && !w.claimed[d] && w.isOn(d, l) {
			return event.Feasibility{OK: true, Gain: l.Limit} // enough, or it was not decided on
		}
	}
	if h := w.answer(helpKey{rule, l.ID()}, w.now+rounding); h != nil {
		return event.Feasibility{OK: h.OK, Gain: h.Gain, AtLeast: h.More, Later: h.Later, Reason: h.Reason, Detail: h.Detail}
	}
	if r.Action == event.ActionExec {
		return event.Feasibility{OK: true} // so it always is
	}
	return event.Feasibility{Reason: event.ReasonUnsupported, Detail: "the record does not tell whether it could help"}
}

// isOn says that a decision of the record was on that limit.
func (p *recording) isOn(d *recordedDecision, l *event.Limit) bool {
	if l == nil || d.limit < 0 || d.limit >= len(p.run.Limits) {
		return l == nil || d.Limit == l.Name
	}
	return p.run.Limits[d.limit].ID() == l.ID()
}

// answer is the last that the ladder was told at that moment, else the next; nil
// where it was never told anything.
func (p *recording) answer(k helpKey, at time.Duration) *event.Help {
	list := p.helps[k]
	if len(list) == 0 {
		return nil
	}
	return list[max(after(list, at)-1, 0)].Help
}

// after is the index of the first answer that was given later.
func after(list []help, at time.Duration) int {
	return sort.Search(len(list), func(i int) bool { return list[i].at > at })
}

// lead is what a rule was met ahead by: where it fired then, or was told then
// that it could not help.
func (w *unchanged) lead(r event.Rule, l *event.Limit) rss.Bytes {
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

// nearest finds the decision of the record nearest to now that is like that and not claimed.
func (p *simulation) nearest(like func(*recordedDecision) bool) (best *recordedDecision) {
	for _, r := range p.near(p.now, p.tolerance()) {
		if !p.claimed[r] && like(r) && (best == nil || (r.at-p.now).Abs() < (best.at-p.now).Abs()) {
			best = r
		}
	}
	return best
}

// claim finds the nearest decision by the same rule on the same limit.
func (w *unchanged) claim(d *event.Decision, l *event.Limit) *recordedDecision {
	return w.nearest(func(r *recordedDecision) bool { return r.Rule == d.Rule && r.Limit == d.Limit && w.isOn(r, l) })
}

// tolerance is how far a decision may be from that of the record and be the same:
// the time between two samples, and what the watcher's looks are late at most.
func (p *recording) tolerance() time.Duration {
	if p.run.Thinned {
		return max(p.interval, time.Minute) + sameLook
	}
	return p.interval + p.interval/2 + sameLook
}
