package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/replay"
)

func gb(b rss.Bytes) string { return fmt.Sprintf("%.2f", float64(b)/float64(rss.GiB)) }

// play replays the seed.
func play(t *testing.T, opt replay.Options) *replay.Result {
	t.Helper()
	return replayed(t, recordtest.SeedRun(), opt)
}

// TestSeedAsRecorded: peak and growth are the post's.
func TestSeedAsRecorded(t *testing.T) {
	r := play(t, replay.Options{})
	if r.Same == nil || !*r.Same || r.Estimate || r.Fate != replay.Lives || len(r.Decisions) > 0 {
		t.Errorf("%+v", r)
	}
	if gb(r.Limit.Peak) != "5.39" || r.Limit.Name != event.LimitUser || r.Limit.Accounting != event.AccountingRSS {
		t.Errorf("limit %+v, want a peak of 5.39 GB", r.Limit)
	}
	if l := r.Least[0]; l.Way != replay.AsRecorded || l.Estimate || policy.MemArg(l.Mem) != "5520M" || l.AtLeast {
		t.Errorf("least %+v, want the first whole MiB above 5.39 GB", l)
	}
	epochs := map[int]rss.Bytes{}
	for s := range recordtest.SeedRun().Samples() {
		epoch := int(s.At / recordtest.PerEpoch)
		epochs[epoch] = max(epochs[epoch], s.Limits[0].Used)
	}
	if gb(epochs[0]) != "4.95" || gb(epochs[1]) != "5.26" || gb(epochs[2]) != "5.39" {
		t.Errorf("peaks by epoch %v", epochs)
	}
}

// TestSeedWithFive: with 5 GB and without actions the job ends in the second epoch,
// between batches 4 and 8; only the accounting by RSS is there.
func TestSeedWithFive(t *testing.T) {
	at := recordtest.PerEpoch + recordtest.FirstBatch + 8*recordtest.PerBatch
	r := play(t, replay.Options{Limit: 5 * rss.GiB, Accounting: event.AccountingRSS, Rules: []event.Rule{}})
	if r.Fate != replay.Dies || !r.Estimate || r.Same != nil || r.Death == nil {
		t.Fatalf("%+v", r)
	}
	if d := r.Death; d.At != at.Seconds() || gb(d.Used) != "5.26" || d.Size != 5*rss.GiB || d.Limit != event.LimitUser {
		t.Errorf("death %+v, want it after %v", d, at)
	}
	if r, err := replay.Replay(recordtest.SeedRun(), replay.Options{Accounting: event.AccountingCgroup}); err == nil {
		t.Errorf("%+v", r)
	}
}

// TestSeedWithFiveAndLadder: the default ladder warns in the first epoch at 4.07
// GB, and its trim at batch 8 there keeps the job inside, by the model.
func TestSeedWithFiveAndLadder(t *testing.T) {
	r := play(t, replay.Options{Limit: 5 * rss.GiB})
	if r.Fate != replay.Lives || !r.Estimate {
		t.Fatalf("%+v", r)
	}
	first := func(rule string) float64 {
		i := slices.IndexFunc(r.Rungs, func(g replay.Rung) bool { return g.Rule == rule })
		if i < 0 || r.Rungs[i].First == nil {
			t.Fatalf("%s never fired: %+v", rule, r.Rungs)
		}
		return *r.Rungs[i].First
	}
	if got := first("80%:warn"); got != recordtest.FirstBatch.Seconds() {
		t.Errorf("80%%:warn first after %v s", got)
	}
	if got := first("85%:trim"); got != (recordtest.FirstBatch + 8*recordtest.PerBatch).Seconds() {
		t.Errorf("85%%:trim first after %v s", got)
	}
	for _, d := range r.Decisions {
		if d.Recorded != nil || d.Action == event.ActionTrim && d.Freed == 0 {
			t.Errorf("%+v", d)
		}
	}
	// Without the ladder the peak itself is the least, with it less.
	if len(r.Least) != 3 || r.Least[1].Mem != r.Least[0].Mem || !r.Least[2].Estimate || r.Least[2].Mem >= r.Least[0].Mem || r.Least[2].Mem == 0 {
		t.Errorf("least %+v", r.Least)
	}
}

// TestSeedWithFour: no ladder can carry it there.
func TestSeedWithFour(t *testing.T) {
	r := play(t, replay.Options{Limit: 3 * rss.GiB, Rules: append(policy.Default(), ladder(t, "95%:stop")...)})
	if r.Fate != replay.Dies || r.Death == nil {
		t.Fatalf("%+v", r)
	}
}

// TestHostileRecords: with any content of a record's fields, a replay of it for people
// lets none of it steer a terminal.
func TestHostileRecords(t *testing.T) {
	const length = 2 * time.Minute
	run := recordtest.Ranks{
		Node: "n1", Nodes: 1, Tasks: 1, Count: 1, Start: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), To: length, Workers: 2,
		Limit: 4 * rss.GiB, Share: recordtest.Rising(length, 0.3, 0.95), Recycles: []time.Duration{length / 2}, Exit: recordtest.Ended(0, "", event.RunKept),
	}.Run()
	done := 0
	recordtest.Poison(recordtest.Hostile, func(kind string) {
		res, err := replay.Replay(run, replay.Options{Limit: 3 * rss.GiB})
		if err != nil {
			for _, line := range recordtest.Shows(err.Error()) {
				t.Logf("%q: the error is for the command to clean: %.100q", kind, line)
			}
			return
		}
		done++
		var b bytes.Buffer
		must(t, res.WriteText(&b))
		if bad := recordtest.Shows(b.String()); len(bad) > 0 {
			t.Errorf("%q: %.300q", kind, bad[0])
		}
	}, run)
	if done < 20 {
		t.Errorf("only %d replays", done)
	}
}

// TestCountsAreNoBytes: a decision on a count is printed as a count, also in a record.
func TestCountsAreNoBytes(t *testing.T) {
	for _, recorded := range []*replay.Recorded{nil, {ID: 3, Used: 15000}} {
		b, err := json.Marshal([]replay.Decision{{Rule: "fds 80%:warn", Limit: event.LimitFDs, Used: 16299, Size: 20000, Recorded: recorded}})
		must(t, err)
		if text := string(b); strings.Contains(text, "_bytes") || !strings.Contains(text, `"used":16299,"limit_count":20000,"recorded":`) {
			t.Errorf("%s", text)
		}
	}
	b, err := json.Marshal(replay.Decision{Limit: event.LimitCgroup, Used: 5, Size: 6, Recorded: &replay.Recorded{Used: 5}})
	if err != nil || strings.Count(string(b), `"used_bytes":5`) != 2 {
		t.Errorf("%s, %v", b, err)
	}
}

// booted is how long the node was up when the run began.
const booted = 100 * time.Hour

// leads is a leader whose record has the use of one limit, once a second, and all that its
// ladder was given.
type leads struct {
	t         *testing.T
	rng       *rand.Rand // nil: every action helps at once
	b         *record.Builder
	rules     []string
	ladder    *policy.State
	forecasts policy.Forecasts
	judged    uint64
	now       time.Duration
	open      []event.Decision
	fired     []string
}

func newLeads(t *testing.T, rules ...string) *leads {
	l := &leads{t: t, rules: rules, b: record.NewBuilder(record.Meta{V: record.Version, ID: "leads", Holder: 7})}
	l.b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS})
	return l
}

var handoverRules = []string{"80%:warn", "85%:signal=USR2", "85%:exec=x", "eta<10m:warn"}

func ladder(t testing.TB, texts ...string) (rules []event.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := event.ParseRecorded(text)
		must(t, err)
		rules = append(rules, r)
	}
	return rules
}

func (l *leads) event(name event.Name, v any) {
	l.b.Event(record.Entry{At: l.now, Name: name, Value: v})
}

// begins has a watcher begin to lead, with what the one before remembered.
func (l *leads) begins(from *policy.Memory, own string) {
	l.t.Helper()
	l.forecasts, l.judged, l.open = policy.Forecasts{}, 0, nil
	l.ladder = policy.New(ladder(l.t, l.rules...), 1)
	l.event(event.NameRank, &event.Rank{What: event.RankLeads, Holder: 7})
	l.event(event.NameStart, &event.Start{Rules: l.rules})
	if from != nil {
		data, err := from.Encode()
		must(l.t, err)
		l.ladder.Restore(from, l.now, booted+l.now, own)
		l.event(event.NameHandover, &event.Handover{Ran: l.now, Now: l.now, Clock: booted + l.now, Own: own, Memory: data})
	}
}

// can is what an action could do.
func (l *leads) can() event.Feasibility {
	if l.rng == nil || l.rng.IntN(4) > 0 {
		return event.Feasibility{OK: true}
	}
	return event.Feasibility{Reason: event.ReasonNoWorker, Later: l.rng.IntN(8) == 0}
}

// uses lets so many seconds pass at a use in percent.
func (l *leads) uses(seconds int, percent float64) {
	for range seconds {
		l.now += time.Second
		used := (3000 * rss.MiB).Scale(percent / 100)
		if l.rng != nil {
			used += rss.Bytes(l.rng.IntN(30 << 20))
		}
		in := policy.Input{Now: l.now, Lead: map[event.Ask]rss.Bytes{}, Limits: l.forecasts.Of(l.now, []event.Limit{{
			Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: used, Limit: 3000 * rss.MiB,
		}}, l.ladder.InFlight() != 0)}
		for i := range l.open {
			if l.rng == nil || l.rng.IntN(2) == 0 {
				o := event.Outcome{Decision: l.open[i].ID, OK: l.can().OK, Reason: event.ReasonDone, Before: l.open[i].Used, After: used}
				l.ladder.Pass(l.now)
				l.ladder.Done(o)
				l.event(event.NameOutcome, &o)
				l.open = slices.Delete(l.open, i, i+1)
				break
			}
		}
		l.ladder.Observe(l.now, in.Limits)
		for r, on := range l.ladder.Uncrossed(in.Limits) {
			if l.rng != nil && r.Action == event.ActionTrim && l.rng.IntN(8) == 0 {
				in.Lead[event.Ask{Rule: r, On: on.ID()}] = 150 * rss.MiB
			}
		}
		for due := range l.ladder.Asks(&in) {
			in.Feasible[due.Ask] = l.can()
		}
		res := l.ladder.Judge(in)
		if res.Moved {
			l.judged++
			e := policy.Record(&in, &res)
			e.N = l.judged
			l.event(event.NameJudged, &e)
		}
		l.b.Sample(&record.Sample{At: l.now, AtDecision: res.Changed || len(res.Decisions) > 0, Limits: []record.Reading{{Used: used, UsedMax: used, Size: 3000 * rss.MiB, ETA: -1}}})
		for _, d := range res.Decisions {
			l.fired = append(l.fired, d.Rule)
			l.event(event.NameDecision, &d)
			if d.Action.Acts() && !d.Action.Asks() {
				l.open = append(l.open, d)
			}
		}
	}
}

// predecessor is a leader at 86 % of the limit, successor the one that takes over from it.
func predecessor(t *testing.T) *leads {
	l := newLeads(t, handoverRules...)
	l.begins(nil, "")
	l.uses(20, 86)
	return l
}

func successor(t *testing.T, from *policy.Memory, own string) *leads {
	l := newLeads(t, handoverRules...)
	l.now = 20 * time.Second
	l.begins(from, own)
	return l
}

func (l *leads) memory() *policy.Memory {
	m := l.ladder.Snapshot(l.now, booted+l.now, 0)
	return &m
}

// changed is a run with other events: what change returns nil for is left out.
func changed(run *record.Run, change func(any) any) *record.Run {
	out := run.Part(math.MinInt64, math.MaxInt64)
	out.Events = nil
	for _, e := range run.Events {
		if e.Value = change(e.Value); e.Value != nil {
			out.Events = append(out.Events, e)
		}
	}
	return out
}

func same(r *replay.Result) bool { return r.Same != nil && *r.Same && len(r.Missed) == 0 }

// TestSame: the ladder decides from a record as it has decided, whatever its actions came to
// and however often a watcher was started again.
func TestSame(t *testing.T) {
	decisions := 0
	for seed := range uint64(20) {
		l := newLeads(t, "80%:warn", "85%:trim", "90%:recycle", "93%:gc", "95%:signal=USR2", "eta<10m:warn", "eta<5m:recycle")
		l.rng = rand.New(rand.NewPCG(seed, 11))
		l.begins(nil, "")
		for range 60 {
			l.uses(1+l.rng.IntN(60), 70+30*l.rng.Float64())
			if l.rng.IntN(20) == 0 {
				m := l.memory()
				l.now += 3 * time.Second
				l.begins(m, "")
			}
		}
		run := l.b.Run()
		r, err := replay.Replay(run, replay.Options{})
		must(t, err)
		if !same(r) || len(r.Decisions) != len(l.fired) {
			t.Fatalf("seed %d: same %v, %d decisions of %d, %d missed", seed, r.Same, len(r.Decisions), len(l.fired), len(r.Missed))
		}
		for _, d := range r.Decisions {
			if d.At != d.Recorded.At {
				t.Errorf("seed %d: %+v, recorded %+v", seed, d, d.Recorded)
			}
		}
		decisions += len(r.Decisions)
		lost := 0
		r, err = replay.Replay(changed(run, func(v any) any {
			if _, ok := v.(*event.Judged); ok {
				if lost++; lost == 5 {
					return nil
				}
			}
			return v
		}), replay.Options{})
		if err != nil || r.Same != nil || len(r.Decisions) != len(l.fired) {
			t.Errorf("seed %d, without one judgement: same %v, %d decisions of %d, %v", seed, r.Same, len(r.Decisions), len(l.fired), err)
		}
	}
	if decisions < 200 {
		t.Errorf("only %d decisions", decisions)
	}
}

// TestSuccessorAgain: the record of who took over at a use that stays above the rungs is
// replayed with what it took over, and not without.
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
	if r := replayed(t, run, replay.Options{}); !same(r) || len(r.Decisions) != len(successor.fired) {
		t.Fatalf("same %v: %+v, missed %+v", r.Same, r.Decisions, r.Missed)
	}
	for name, change := range map[string]func(*event.Handover){
		"nothing":          func(h *event.Handover) { h.Memory = nil },
		"null":             func(h *event.Handover) { h.Memory = json.RawMessage("null") },
		"of tomorrow":      func(h *event.Handover) { h.Memory = json.RawMessage(`{"v":77}`) },
		"before the run":   func(h *event.Handover) { h.Ran = -1 },
		"before it was":    func(h *event.Handover) { h.Clock = 0 },
		"beyond all times": func(h *event.Handover) { h.Clock = math.MaxInt64 },
	} {
		r := replayed(t, changed(run, func(v any) any {
			if h, ok := v.(*event.Handover); ok {
				c := *h
				change(&c)
				return &c
			}
			return v
		}), replay.Options{Rules: ladder(t, "80%:warn")})
		if told := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "cannot be made out") }); !told {
			t.Errorf("%s: notes %v", name, r.Notes)
		}
	}
	// What is damaged may be the start.
	run = changed(run, func(v any) any {
		if _, ok := v.(*event.Start); ok {
			return nil
		}
		return v
	})
	if r := replayed(t, run, replay.Options{}); same(r) || len(r.Decisions) != len(successor.fired) {
		t.Errorf("without the start: same %v, %+v", r.Same, r.Decisions)
	}
}

// TestSuccessorOfOneStep: the limits of a step that have its name in the memory have none
// in the record of a single rank.
func TestSuccessorOfOneStep(t *testing.T) {
	m := predecessor(t).memory()
	for i := range m.Rungs {
		m.Rungs[i].Level = "46.0"
	}
	for own, again := range map[string]int{"46.0": 0, "46.1": 2} { // a warning waits for its next turn
		successor := successor(t, m, own)
		successor.uses(30, 86)
		run := successor.b.Run()
		if r := replayed(t, run, replay.Options{}); !same(r) || len(r.Decisions) < again || again == 0 && len(r.Decisions) > 0 {
			t.Errorf("%s: same %v, %+v", own, r.Same, r.Decisions)
		}
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
	if r := replayed(t, run, replay.Options{}); !same(r) {
		t.Errorf("%+v, missed %+v", r.Decisions, r.Missed)
	}
	at := append(run.Leads(), math.MaxInt64)
	if len(at) != 4 {
		t.Fatalf("leads %v", at)
	}
	for i := range at[:3] {
		if r := replayed(t, run.Part(at[i], at[i+1]), replay.Options{}); !same(r) {
			t.Errorf("part %d: %+v, missed %+v", i, r.Decisions, r.Missed)
		}
	}
}

// TestSuccessorWithAnotherLimit: what was done at the size that the limit had is not known
// of another size.
func TestSuccessorWithAnotherLimit(t *testing.T) {
	successor := successor(t, predecessor(t).memory(), "")
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
	more := replay.Options{Rules: ladder(t, append(slices.Clone(handoverRules), "70%:warn")...)}
	if a, b := count(more, "85%:exec=x"), count(more, "70%:warn"); a != 0 || b == 0 {
		t.Errorf("with a rung more: it ran %d times again, warned %d times by the rung", a, b)
	}
	if n := count(replay.Options{Limit: 2900 * rss.MiB}, "85%:exec=x"); n != 1 {
		t.Errorf("with less: it ran %d times", n)
	}
}
