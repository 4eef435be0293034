package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

const (
	// sameLook is within what time of a sample an event belongs to its look, where
	// no decision tells which clock is ahead.
	sameLook = 50 * time.Millisecond
	// rounding is what the time of a sample may be early by: it has milliseconds.
	rounding = 1500 * time.Microsecond
	// defaultInterval is the watcher's, where the record does not say.
	defaultInterval = time.Second
)

// recording is what a record holds beside its samples, put in order once.
type recording struct {
	run         *record.Run
	starts      []start
	recorded    []*recordedDecision
	done        []*recordedDecision // with an outcome, by the time of that
	answers     map[asked]answer    // by action, the answer that the ladder got
	interval    time.Duration       // the longest pause between two samples
	end         time.Duration       // the last sample
	samples     int
	procs       bool // samples have processes
	pss         bool // … and one has the PSS of all of them
	trimsAll    bool // every process of the tree was to be trimmed: --trim ptrace
	fullest     map[int]fullestReading
	badHandover bool // what a leader handed over cannot be made out
	ledger      event.Ledger
}

type start struct {
	event   *event.Start
	at      time.Duration
	rules   []event.Rule
	attempt int
	ofJob   bool // a job is watched whole that rsswarden did not start
	handed  *handover
}

type recordedDecision struct {
	event.Decision
	at      time.Duration // of the sample it was made on
	exact   bool          // that sample was found
	limit   int           // index in Run.Limits, -1 for the job's end or where it is not known
	outcome *event.Outcome
	doneAt  time.Duration
}

// asked is an action of the ladder.
type asked struct {
	event.Action
	arg string
}

// answer is whether an action could help: the last time that it could, else the last time.
type answer struct {
	at     time.Duration
	OK     bool
	Reason event.Reason
	Detail string
}

// told takes in an answer about the action of a rule.
func (p *recording) told(at time.Duration, rule string, ok bool, why event.Reason, detail string) {
	r, err := event.ParseRecorded(rule)
	if err != nil {
		return
	}
	k := asked{r.Action, r.Arg}
	if was, known := p.answers[k]; !known || ok && !was.OK || ok == was.OK && at > was.at {
		p.answers[k] = answer{at, ok, why, detail}
	}
}

type fullestReading struct {
	at         time.Duration
	used, size rss.Bytes
	binding    bool // it was the binding one then
}

// newRecording reads everything but the curve.
func newRecording(run *record.Run) (*recording, error) {
	p := &recording{run: run, answers: map[asked]answer{}, interval: defaultInterval, fullest: map[int]fullestReading{}}
	kept := p.scan()
	if p.samples == 0 {
		return nil, fmt.Errorf("cannot replay %s: the record has no samples", run.Meta.ID)
	}
	events := slices.Clone(run.Events)
	slices.SortStableFunc(events, func(a, b record.Entry) int { return cmp.Compare(a.At, b.At) })
	clocks := p.place(events, kept)
	byID := map[uint64]*recordedDecision{}
	for _, d := range p.recorded {
		byID[d.ID] = d
	}
	for _, e := range events {
		at := clocks.moved(e.At)
		switch v := e.Value.(type) {
		case *event.Start:
			if err := p.start(at, v); err != nil {
				return nil, err
			}
		case *event.Decision:
			p.ledger.Decided(v.Time, v)
		case *event.LoaderSaid:
			p.ledger.Said(v)
		case *event.Outcome:
			p.ledger.Finished(v.Time, v)
			if d := byID[v.Decision]; d != nil && v.Decision != 0 {
				d.outcome, d.doneAt = v, max(at, d.at)
			}
		case *event.Handover:
			p.addHandover(v)
		case *event.Judged:
			for i := range v.Feasible {
				f := &v.Feasible[i]
				p.told(at, f.Rule, f.OK, f.Reason, f.Detail)
			}
		case *event.Help:
			p.told(at, v.Rule, v.OK, v.Reason, v.Detail)
		}
	}
	slices.SortStableFunc(p.recorded, func(a, b *recordedDecision) int { return cmp.Compare(a.at, b.at) })
	for _, d := range p.recorded {
		if d.outcome != nil {
			p.done = append(p.done, d)
		}
	}
	slices.SortStableFunc(p.done, func(a, b *recordedDecision) int { return cmp.Compare(a.doneAt, b.doneAt) })
	if len(p.starts) == 0 {
		p.starts = []start{{rules: policy.Default()}}
	}
	p.starts[0].at = 0 // whatever was seen before it belongs to it
	return p, nil
}

// scan goes through the samples once and returns those on which a rule fired.
func (p *recording) scan() (kept []decisionSample) {
	for s := range p.run.Samples() {
		p.end, p.samples = s.At, p.samples+1
		p.procs = p.procs || len(s.Procs) > 0
		p.pss = p.pss || p.allPSS(s)
		if s.AtDecision {
			kept = append(kept, decisionSample{s.At, slices.Clone(s.Limits)})
		}
		for i := range s.Limits {
			r := &s.Limits[i]
			if f, ok := p.fullest[r.Limit]; r.Size > 0 && (!ok || r.Used > f.used) {
				p.fullest[r.Limit] = fullestReading{s.At, r.Used, r.Size, r.Binding}
			}
		}
	}
	return kept
}

// inTree says that a process is one of the job's own.
func (p *recording) inTree(proc int) bool {
	return proc >= 0 && proc < len(p.run.Procs) && !p.run.Procs[proc].Extra && !p.run.Procs[proc].Ours
}

// allPSS says that the PSS of each process of the tree was read.
func (p *recording) allPSS(s *record.Sample) (all bool) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if !p.inTree(u.Proc) || u.RSS() == 0 {
			continue
		}
		if all = u.PSS > 0; !all {
			return false
		}
	}
	return all
}

func (p *recording) start(at time.Duration, v *event.Start) error {
	s := start{event: v, at: at, attempt: v.Restarts + 1, ofJob: v.Attached && v.Job != ""}
	for _, text := range v.Rules {
		r, err := event.ParseRecorded(text)
		if err != nil {
			return fmt.Errorf("cannot replay %s: cannot read rule %q: %w", p.run.Meta.ID, text, err)
		}
		s.rules = append(s.rules, r)
	}
	for _, o := range v.Settings {
		switch o.Name {
		case "trim":
			p.trimsAll = o.Value == "ptrace"
		case "interval":
			if d, bad := time.ParseDuration(o.Value); bad == nil && d > 0 {
				p.interval = d
			}
		}
	}
	p.starts = append(p.starts, s)
	return nil
}

// A sample has the time of CLOCK_MONOTONIC, an event that of the node's clock, which is set
// and slewed. Both have the use that a decision was made on, which tells them together.
// alignWithin is how far the clocks may come apart from one decision to the next.
const alignWithin = 5 * time.Second

// decisionSample is a sample that was kept because the ladder moved on it.
type decisionSample struct {
	at     time.Duration
	limits []record.Reading
}

// clockShifts tell how far the clock of events is behind that of samples, at each decision.
type clockShifts []struct{ at, shift time.Duration }

// moved is the time of an event on the clock of samples, by the nearest decision.
func (c clockShifts) moved(at time.Duration) time.Duration {
	var shift time.Duration
	off := time.Duration(1<<63 - 1)
	from := sort.Search(len(c), func(i int) bool { return c[i].at >= at })
	for i := max(from-1, 0); i < min(from+1, len(c)); i++ {
		if away := (c[i].at - at).Abs(); away < off {
			off, shift = away, c[i].shift
		}
	}
	return at + shift
}

func (p *recording) place(events []record.Entry, kept []decisionSample) (c clockShifts) {
	var shift time.Duration
	for _, e := range events {
		v, ok := e.Value.(*event.Decision)
		if !ok || v.Asked() {
			continue // by hand: not the ladder's
		}
		d := &recordedDecision{Decision: *v, at: e.At + shift, limit: -1}
		if at, limit, ok := align(kept, e.At+shift, v); ok {
			shift = at - e.At
			d.at, d.limit, d.exact = at, limit, true
			c = append(c, struct{ at, shift time.Duration }{e.At, shift})
		}
		p.recorded = append(p.recorded, d)
	}
	return c
}

func (d *recordedDecision) isAt(now time.Duration) bool {
	if d.exact {
		return d.at == now
	}
	return (d.at - now).Abs() <= sameLook
}

func align(kept []decisionSample, at time.Duration, d *event.Decision) (on time.Duration, limit int, ok bool) {
	off := alignWithin
	from := sort.Search(len(kept), func(i int) bool { return kept[i].at >= at-alignWithin })
	for i := from; i < len(kept) && kept[i].at <= at+alignWithin; i++ {
		away := (kept[i].at - at).Abs()
		if away >= off {
			continue
		}
		if d.Limit == event.LimitTime {
			on, limit, off, ok = kept[i].at, -1, away, true
			continue
		}
		for _, r := range kept[i].limits {
			// A record has whole KiB.
			if r.Size == d.LimitSize && r.Used/rss.KiB == d.Used/rss.KiB {
				on, limit, off, ok = kept[i].at, r.Limit, away, true
				break
			}
		}
	}
	return on, limit, ok
}

// handover is what a ladder took over from the leader before it. In older records there is
// none: they are replayed with a ladder that knows of nothing.
type handover struct {
	at, clock time.Duration // when, on the clock of samples and on that of the memory
	own       string        // see [policy.State.Restore]
	memory    *policy.Memory
}

// addHandover takes in a handover. It belongs to the watcher that began last.
func (p *recording) addHandover(v *event.Handover) {
	m, err := policy.ParseMemory(v.Memory)
	if err != nil || v.Ran < 0 || v.Clock < m.At || max(v.Ran, v.Clock) > math.MaxInt64/4 {
		p.badHandover = true
		return
	}
	if len(p.starts) == 0 { // the start is damaged
		p.starts = []start{{rules: policy.Default()}}
	}
	p.starts[len(p.starts)-1].handed = &handover{v.Ran, v.Clock, v.Own, m}
}

// readings appends the limits of a sample, as the ladder read them.
func (p *recording) readings(to []event.Limit, s *record.Sample) []event.Limit {
	for i := range s.Limits {
		r := &s.Limits[i]
		if r.Limit >= len(p.run.Limits) {
			continue // its description was lost
		}
		l := p.run.Limits[r.Limit]
		l.Used, l.Limit, l.ETA = r.Used, r.Size, nil
		if l.Name == event.LimitTime && r.ETA >= 0 { // the others' forecasts are made again
			l.ETA = &r.ETA
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

// tolerance is how far a decision may be from that of the record and be the same:
// the time between two samples, and what the watcher's looks are late at most.
func (p *recording) tolerance() time.Duration {
	if p.run.Thinned {
		return max(p.interval, time.Minute) + sameLook
	}
	return p.interval + p.interval/2 + sameLook
}

func (d *recordedDecision) asRecorded() *Recorded {
	r := &Recorded{ID: d.ID, At: d.at.Seconds(), Rule: d.Rule, Used: d.Used}
	if d.outcome != nil {
		r.Freed = d.outcome.Freed
	}
	return r
}
