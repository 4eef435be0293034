package replay_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

// booted is how long the node was up when the run began.
const booted = 100 * time.Hour

// leads is a leader whose record has the use of one limit, once a second.
type leads struct {
	forecasts policy.Forecasts
	t         *testing.T
	b         *record.Builder
	ladder    *policy.State
	now       time.Duration
	fired     []string
}

var handoverRules = []string{"80%:warn", "85%:signal=USR2", "85%:exec=x", "eta<10m:warn"}

func newLeads(t *testing.T) *leads {
	l := &leads{t: t, b: record.NewBuilder(record.Meta{V: record.Version, ID: "leads", Holder: 7})}
	l.b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS})
	return l
}

// begins has a watcher begin to lead, with what the one before remembered.
func (l *leads) begins(from *policy.Memory, own string) {
	l.t.Helper()
	l.forecasts = policy.Forecasts{}
	l.ladder = policy.New(ladder(l.t, handoverRules...), policy.Options{CoolDown: replay.CoolDown})
	l.b.Event(record.Entry{At: l.now, Name: event.NameRank, Value: &event.Rank{What: event.RankLeads, Holder: 7}})
	l.b.Event(record.Entry{At: l.now, Name: event.NameStart, Value: &event.Start{Rules: handoverRules}})
	if from != nil {
		data, err := from.Encode()
		if err != nil {
			l.t.Fatal(err)
		}
		l.ladder.Restore(from, l.now, booted+l.now, policy.OwnLevel(own))
		l.b.Event(record.Entry{At: l.now, Name: event.NameHandover, Value: &event.Handover{Ran: l.now, Clock: booted + l.now, Own: own, Memory: data}})
	}
}

// uses lets so many seconds pass at a use in percent.
func (l *leads) uses(seconds int, percent float64) {
	for range seconds {
		l.now += time.Second
		limits := []event.Limit{{
			Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS,
			Used: (3000 * rss.MiB).Scale(percent / 100), UsedMax: (3000 * rss.MiB).Scale(percent / 100), Limit: 3000 * rss.MiB,
		}}
		in := policy.Input{Now: l.now, Limits: l.forecasts.Of(l.now, limits)}
		l.ladder.Observe(l.now, in.Limits)
		for due := range l.ladder.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{OK: true}
		}
		res := l.ladder.Judge(in)
		r := record.Reading{Used: limits[0].Used, UsedMax: limits[0].Used, Size: limits[0].Limit, ETA: -1}
		if eta := in.Limits[0].ETA; eta != nil {
			r.ETA, r.MayFlatten = *eta, in.Limits[0].ETAHigh == nil
		}
		l.b.Sample(&record.Sample{At: l.now, AtDecision: res.Changed || len(res.Decisions) > 0, Limits: []record.Reading{r}})
		for _, d := range res.Decisions {
			l.fired = append(l.fired, d.Rule)
			l.b.Event(record.Entry{At: l.now, Name: event.NameDecision, Value: &d})
			l.ladder.Done(event.Outcome{Decision: d.ID, OK: true, Before: d.Used, After: d.Used})
			l.b.Event(record.Entry{At: l.now, Name: event.NameHelp, Value: &event.Help{
				Rule: d.Rule, Limit: d.Limit, Scope: event.ScopeStep, Acct: event.AccountingRSS, OK: true,
			}})
			l.b.Event(record.Entry{At: l.now, Name: event.NameOutcome, Value: &event.Outcome{Decision: d.ID, OK: true, Before: d.Used, After: d.Used}})
		}
	}
}

// predecessor is a leader at 86 % of the limit, successor the one that takes over from it.
func predecessor(t *testing.T) *leads {
	l := newLeads(t)
	l.begins(nil, "")
	l.uses(20, 86)
	return l
}

func successor(t *testing.T, from *policy.Memory, own string) *leads {
	l := newLeads(t)
	l.now = 20 * time.Second
	l.begins(from, own)
	return l
}

func (l *leads) memory() *policy.Memory {
	m := l.ladder.Snapshot(l.now, booted+l.now, 0)
	return &m
}

// changed is a run whose handovers are changed, or left out where change is nil.
func changed(run *record.Run, change func(*event.Handover)) *record.Run {
	out := run.Part(math.MinInt64, math.MaxInt64)
	out.Events = nil
	for _, e := range run.Events {
		if h, ok := e.Value.(*event.Handover); ok {
			if change == nil {
				continue
			}
			c := *h
			change(&c)
			e.Value = &c
		}
		out.Events = append(out.Events, e)
	}
	return out
}

// TestSuccessorAgain: the record of who took over at a use that stays above the rungs is
// replayed with what it took over; as older ones, which do not tell, it is not.
func TestSuccessorAgain(t *testing.T) {
	before := predecessor(t)
	if len(before.fired) != 3 {
		t.Fatalf("fired %v", before.fired)
	}
	successor := successor(t, before.memory(), "")
	successor.uses(30, 86)
	if len(successor.fired) != 0 {
		t.Fatalf("did again %v", successor.fired)
	}
	successor.uses(10, 60)
	successor.uses(120, 87)
	if len(successor.fired) < 3 {
		t.Fatalf("armed again it fired %v", successor.fired)
	}
	run := successor.b.Run()
	r := replayed(t, run, replay.Options{})
	if !*r.Same || len(r.Decisions) != len(successor.fired) {
		t.Fatalf("same %v: %+v, missed %+v", *r.Same, r.Decisions, r.Missed)
	}
	for i, d := range r.Decisions {
		if d.Rule != successor.fired[i] {
			t.Errorf("%d: %s, want %s", i, d.Rule, successor.fired[i])
		}
	}
	if r := replayed(t, changed(run, nil), replay.Options{}); *r.Same || len(r.Decisions) <= len(successor.fired) {
		t.Errorf("without what it took over: same %v, %+v", *r.Same, r.Decisions)
	}
	for name, change := range map[string]func(*event.Handover){
		"nothing":          func(h *event.Handover) { h.Memory = nil },
		"null":             func(h *event.Handover) { h.Memory = json.RawMessage("null") },
		"of tomorrow":      func(h *event.Handover) { h.Memory = json.RawMessage(`{"v":77}`) },
		"before the run":   func(h *event.Handover) { h.Ran = -1 },
		"before it was":    func(h *event.Handover) { h.Clock = 0 },
		"beyond all times": func(h *event.Handover) { h.Clock = math.MaxInt64 },
	} {
		r := replayed(t, changed(run, change), replay.Options{})
		told := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "cannot be made out") })
		if *r.Same || !told {
			t.Errorf("%s: same %v, notes %v", name, *r.Same, r.Notes)
		}
	}
	// What is damaged may be the start.
	run.Events = slices.DeleteFunc(run.Events, func(e record.Entry) bool { return e.Name == event.NameStart })
	if r := replayed(t, run, replay.Options{}); len(r.Decisions) > 0 && r.Decisions[0].At < 50 {
		t.Errorf("without the start: %+v", r.Decisions)
	}
}

// TestSuccessorOfOneStep: the limits of a step that have its name in the memory have none
// in the record of a single rank.
func TestSuccessorOfOneStep(t *testing.T) {
	before := predecessor(t)
	m := before.memory()
	for i := range m.Rungs {
		m.Rungs[i].Level = "46.0"
	}
	successor := successor(t, m, "46.0")
	successor.uses(30, 86)
	run := successor.b.Run()
	if r := replayed(t, run, replay.Options{}); !*r.Same || len(r.Decisions) != 0 {
		t.Errorf("same %v, %+v", *r.Same, r.Decisions)
	}
	if r := replayed(t, changed(run, func(h *event.Handover) { h.Own = "46.1" }), replay.Options{}); *r.Same {
		t.Error("another step's memory is taken for its own")
	}
}

// TestLeadsAgain: a record with several leads has a handover for each, in the whole
// and in its parts.
func TestLeadsAgain(t *testing.T) {
	l := predecessor(t)
	m := l.memory()
	l.now += 3 * time.Second
	l.begins(m, "") // a watcher that was killed is started again
	l.uses(20, 86)
	m = l.memory()
	l.now += time.Minute // another rank leads meanwhile
	l.begins(m, "")
	l.uses(100, 86)
	l.uses(5, 60)
	l.uses(100, 86)
	run := l.b.Run()
	if r := replayed(t, run, replay.Options{}); !*r.Same {
		t.Errorf("%+v, missed %+v", r.Decisions, r.Missed)
	}
	if r := replayed(t, changed(run, nil), replay.Options{}); *r.Same {
		t.Error("the same without what was taken over")
	}
	at := append(run.Leads(), math.MaxInt64)
	if len(at) != 4 {
		t.Fatalf("leads %v", at)
	}
	for i := range at[:3] {
		if r := replayed(t, run.Part(at[i], at[i+1]), replay.Options{}); !*r.Same {
			t.Errorf("part %d: %+v, missed %+v", i, r.Decisions, r.Missed)
		}
	}
}

// TestSuccessorWithAnotherLimit: what was done at the size that the limit had is not known
// of another size.
func TestSuccessorWithAnotherLimit(t *testing.T) {
	before := predecessor(t)
	successor := successor(t, before.memory(), "")
	successor.uses(100, 86)
	run := successor.b.Run()
	count := func(opt replay.Options, rule string) int {
		n := 0
		for _, d := range replayed(t, run, opt).Decisions {
			if d.Rule == rule {
				n++
			}
		}
		return n
	}
	more := ladder(t, append(slices.Clone(handoverRules), "70%:warn")...)
	if a, b := count(replay.Options{Rules: more}, "85%:exec=x"), count(replay.Options{Rules: more}, "70%:warn"); a != 0 || b == 0 {
		t.Errorf("with a rung more: it ran %d times again, warned %d times by the rung", a, b)
	}
	if n := count(replay.Options{Limit: 2900 * rss.MiB}, "85%:exec=x"); n != 1 {
		t.Errorf("with less: it ran %d times", n)
	}
}
