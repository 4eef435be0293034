package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// past is what a record holds beside its samples, put in order once.
type past struct {
	run      *record.Run
	starts   []start
	deeds    []*deed
	timed    []*deed // … those on the job's end
	helps    map[helpKey][]help
	interval time.Duration // the longest pause between two samples
	end      time.Duration // the last sample
	samples  int
	procs    bool // samples have processes
	pss      bool // … and one has the PSS of all of them
	anybody  bool // every process of the tree was to be trimmed: --trim ptrace
	fullest  map[int]reached
	unread   bool // what a leader handed over cannot be made out
}

// start is a watcher that began.
type start struct {
	at      time.Duration
	rules   []event.Rule
	firstID uint64
	ofJob   bool // a job that somebody else started is watched as a whole
	handed  *handed
}

// deed is a decision of the record and what came of it.
type deed struct {
	event.Decision
	at      time.Duration // of the sample it was made on
	exact   bool          // that sample was found
	limit   int           // index in Run.Limits, -1 for the job's end or where it is not known
	outcome *event.Outcome
	doneAt  time.Duration
}

type helpKey struct {
	rule  string
	limit event.LimitID
}

type help struct {
	at time.Duration
	*event.Help
}

// reached is the most that was used of a limit.
type reached struct {
	at         time.Duration
	used, size rss.Bytes
	binding    bool // it was the binding one then
}

// remember reads everything but the curve.
func remember(run *record.Run) (*past, error) {
	p := &past{run: run, helps: map[helpKey][]help{}, interval: defaultInterval, fullest: map[int]reached{}}
	looks := p.scan()
	if p.samples == 0 {
		return nil, fmt.Errorf("cannot replay %s: the record has no samples", run.Meta.ID)
	}
	events := slices.Clone(run.Events)
	slices.SortStableFunc(events, func(a, b record.Entry) int { return cmp.Compare(a.At, b.At) })
	clocks := p.place(events, looks)
	byID := map[uint64]*deed{}
	for _, d := range p.deeds {
		byID[d.ID] = d
	}
	for _, e := range events {
		at := clocks.moved(e.At)
		switch v := e.Value.(type) {
		case *event.Start:
			if err := p.start(at, v); err != nil {
				return nil, err
			}
		case *event.Outcome:
			if d := byID[v.Decision]; d != nil && v.Decision != 0 {
				d.outcome, d.doneAt = v, max(at, d.at)
			}
		case *event.Handover:
			p.handedOver(v)
		case *event.Help:
			k := helpKey{v.Rule, event.LimitID{Name: v.Limit, Scope: v.Scope, Accounting: v.Acct, Level: v.Level}}
			p.helps[k] = append(p.helps[k], help{at, v})
		}
	}
	slices.SortStableFunc(p.deeds, func(a, b *deed) int { return cmp.Compare(a.at, b.at) })
	if len(p.starts) == 0 {
		p.starts = []start{{rules: policy.Default()}}
	}
	p.starts[0].at = 0 // whatever was seen before it belongs to it
	return p, nil
}

// scan goes through the samples once and returns those on which a rule fired.
func (p *past) scan() (looks []look) {
	for s := range p.run.Samples() {
		p.end, p.samples = s.At, p.samples+1
		p.procs = p.procs || len(s.Procs) > 0
		p.pss = p.pss || p.allPSS(s)
		if s.AtDecision {
			looks = append(looks, look{s.At, slices.Clone(s.Limits)})
		}
		for i := range s.Limits {
			r := &s.Limits[i]
			if f, ok := p.fullest[r.Limit]; r.Size > 0 && (!ok || r.Used > f.used) {
				p.fullest[r.Limit] = reached{s.At, r.Used, r.Size, r.Binding}
			}
		}
	}
	return looks
}

// allPSS says that the PSS of each process of the tree was read.
func (p *past) allPSS(s *record.Sample) (all bool) {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= len(p.run.Procs) || p.run.Procs[u.Proc].Extra || p.run.Procs[u.Proc].Ours || u.RSS() == 0 {
			continue
		}
		if all = u.PSS > 0; !all {
			return false
		}
	}
	return all
}

// start takes in a start event.
func (p *past) start(at time.Duration, v *event.Start) error {
	s := start{at: at, ofJob: v.Attached && v.Job != ""}
	if v.Restarts > 0 {
		s.firstID = uint64(v.Restarts+1)<<32 | 1 // as the watcher numbers them
	}
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
			p.anybody = o.Value == "ptrace"
		case "interval":
			if d, bad := time.ParseDuration(o.Value); bad == nil && d > 0 {
				p.interval = d
			}
		}
	}
	p.starts = append(p.starts, s)
	return nil
}

// This file brings events and samples together. A sample has the time of a clock
// that nobody sets, an event that of the node's, which is set and slewed. A
// decision has the use that it was made on, and so has a sample.

// alignWithin is how far the two clocks may come apart from one decision to the
// next.
const alignWithin = 5 * time.Second

// look is a sample that was kept because the ladder moved on it.
type look struct {
	at     time.Duration
	limits []record.Reading
}

// clocks tell how far the clock of events is behind that of samples, at each
// decision.
type clocks []struct{ at, shift time.Duration }

// moved is the time of an event on the clock of samples, by the nearest decision.
func (c clocks) moved(at time.Duration) time.Duration {
	var shift time.Duration
	off := time.Duration(1<<63 - 1)
	from, _ := slices.BinarySearchFunc(c, at, func(e struct{ at, shift time.Duration }, at time.Duration) int {
		if e.at < at {
			return -1
		}
		return 1
	})
	for i := max(from-1, 0); i < min(from+1, len(c)); i++ {
		if away := (c[i].at - at).Abs(); away < off {
			off, shift = away, c[i].shift
		}
	}
	return at + shift
}

// place finds the sample of each decision.
func (p *past) place(events []record.Entry, looks []look) (c clocks) {
	var shift time.Duration
	for _, e := range events {
		v, ok := e.Value.(*event.Decision)
		if !ok || v.Asked() {
			continue // what somebody asked for is no doing of the ladder's
		}
		d := &deed{Decision: *v, at: e.At + shift, limit: -1}
		if at, limit, ok := align(looks, e.At+shift, v); ok {
			shift = at - e.At
			d.at, d.limit, d.exact = at, limit, true
			c = append(c, struct{ at, shift time.Duration }{e.At, shift})
		}
		p.deeds = append(p.deeds, d)
		if v.Limit == event.LimitTime {
			p.timed = append(p.timed, d)
		}
	}
	return c
}

// isAt says that a decision was made on the look at that moment.
func (d *deed) isAt(now time.Duration) bool {
	if d.exact {
		return d.at == now
	}
	return (d.at - now).Abs() <= sameLook
}

// align finds the sample that a decision was made on, and the limit.
func align(looks []look, at time.Duration, d *event.Decision) (on time.Duration, limit int, ok bool) {
	off := alignWithin
	from, _ := slices.BinarySearchFunc(looks, at-alignWithin, func(l look, at time.Duration) int {
		if l.at < at {
			return -1
		}
		return 1
	})
	for i := from; i < len(looks) && looks[i].at <= at+alignWithin; i++ {
		away := (looks[i].at - at).Abs()
		if away >= off {
			continue
		}
		if d.Limit == event.LimitTime {
			on, limit, off, ok = looks[i].at, -1, away, true
			continue
		}
		for _, r := range looks[i].limits {
			// A record has whole KiB.
			if r.Size == d.LimitSize && r.Used/rss.KiB == d.Used/rss.KiB {
				on, limit, off, ok = looks[i].at, r.Limit, away, true
				break
			}
		}
	}
	return on, limit, ok
}

// This file gives a ladder what it took over from the leader before it. A record
// that does not tell, as older ones, is replayed with a ladder that knows of nothing.

// handed is what was taken over.
type handed struct {
	at, clock time.Duration // when, on the clock of samples and on that of the memory
	own       string        // see [policy.OwnLevel]
	memory    *policy.Memory
}

// handedOver takes in a handover. It belongs to the watcher that began last.
func (p *past) handedOver(v *event.Handover) {
	m, err := policy.ParseMemory(v.Memory)
	if err != nil || v.Ran < 0 || v.Clock < m.At || max(v.Ran, v.Clock) > math.MaxInt64/4 {
		p.unread = true
		return
	}
	if len(p.starts) == 0 { // the start is damaged
		p.starts = []start{{rules: policy.Default()}}
	}
	p.starts[len(p.starts)-1].handed = &handed{v.Ran, v.Clock, v.Own, m}
}

// takeOver gives the ladder, which is new, what the watcher gave it. Of a limit that
// has another size here it is not known what would have been done about it.
func (p *pass) takeOver(h *handed) {
	m := *h.memory
	alone := policy.OwnLevel(h.own)
	m.Rungs = slices.DeleteFunc(slices.Clone(m.Rungs), func(e policy.RungMemory) bool {
		k := e.ID()
		if !p.world.knew(k) {
			return true
		}
		level, ok := alone(&e)
		k.Level = level
		return ok && !p.world.knew(k)
	})
	p.ladder.Restore(&m, h.at, h.clock, alone)
}
