package replay_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/replay"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// carried is a record of four workers that map 4 MiB a second each, of a file of
// 900 MiB, under a limit of 3 GiB on summed RSS where a trim at 85 % carries the
// job. on says whether the trims were made then; drift is how far the clock of
// events runs ahead of that of samples, in a minute.
func carried(on bool, limit rss.Bytes, drift time.Duration) *record.Run {
	const trainer, anon, file = 500 * rss.MiB, 100 * rss.MiB, 900 * rss.MiB
	b := record.NewBuilder(record.Meta{V: record.Version, ID: "carried"})
	b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Enforcer: "slurmstepd"})
	b.Limit(event.Limit{Name: event.LimitSlurm, Scope: event.ScopeJob, Accounting: event.AccountingRSS, Enforcer: "slurmstepd"})
	b.Proc(record.Proc{ID: rss.ProcID{PID: 100}, Comm: "python", Role: rss.RoleTrainer})
	for i := range 4 {
		b.Proc(record.Proc{ID: rss.ProcID{PID: 101 + i}, Parent: 100, Comm: "python", Role: rss.RoleWorker})
	}
	var rules []string
	if on {
		rules = []string{"85%:trim"}
	}
	late := func(now time.Duration) time.Duration { return now + time.Duration(now.Minutes()*float64(drift)) }
	event1 := func(now time.Duration, name event.Name, v any) {
		b.Event(record.Entry{At: late(now), Name: name, Value: v})
	}
	event1(0, event.NameStart, &event.Start{Rules: rules})
	mapped, id := rss.Bytes(0), uint64(0)
	for now := time.Duration(0); now < 20*time.Minute; now += time.Second {
		used := trainer + 4*(anon+mapped)
		s := record.Sample{At: now, Procs: []record.Usage{{Proc: 0, Anon: trainer}}}
		for i := range 4 {
			s.Procs = append(s.Procs, record.Usage{Proc: 1 + i, Anon: anon, File: mapped})
		}
		fires := on && used >= limit.Scale(0.85)
		s.AtDecision = fires
		for i := range 2 {
			s.Limits = append(s.Limits, record.Reading{Limit: i, Used: used, UsedMax: used, Size: limit, ETA: -1, Binding: i == 0})
		}
		b.Sample(&s)
		if fires {
			id++
			freed := 4 * mapped
			mapped = 0
			event1(now, event.NameHelp, &event.Help{Rule: "85%:trim", Limit: event.LimitSlurm, Scope: event.ScopeStep, Acct: event.AccountingRSS, OK: true, Gain: freed})
			event1(now, event.NameDecision, &event.Decision{ID: id, Rule: "85%:trim", Limit: event.LimitSlurm, Action: event.ActionTrim, Used: used, LimitSize: limit})
			event1(now+300*time.Millisecond, event.NameOutcome, &event.Outcome{Decision: id, OK: true, Reason: event.ReasonDone, Before: used, After: used - freed, Freed: freed})
		}
		mapped = min(mapped+4*rss.MiB, file)
	}
	code := 0
	event1(20*time.Minute, event.NameExit, &event.Exit{By: "command", Code: &code, Brief: event.Brief{Outcome: event.RunKept, Watched: event.WatchedAll}})
	return b.Run()
}

// replayed replays a run, and calls an estimate one.
func replayed(t *testing.T, run *record.Run, opt replay.Options) *replay.Result {
	t.Helper()
	r, err := replay.Replay(run, opt)
	must(t, err)
	var text strings.Builder
	must(t, r.WriteText(&text))
	t.Logf("\n%s", text.String())
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if r.Estimate != strings.Contains(text.String(), "note: the limit or the rules are not those of the record") {
		t.Error("an estimate is not called one")
	}
	return r
}

const three = 3 * rss.GiB

// TestCarriedAsRecorded: nothing is changed, so nothing differs: of a record that does not have
// all that the ladder was given the decisions are listed, though the clock of events was slewed.
func TestCarriedAsRecorded(t *testing.T) {
	for _, drift := range drifts {
		r := replayed(t, carried(true, three, drift), replay.Options{})
		told := slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "listed as they were") })
		if r.Estimate || r.Same != nil || !told || r.Fate != replay.Lives || len(r.Decisions) < 5 || r.Rungs[0].Count != len(r.Decisions) {
			t.Errorf("drift %v: same %v, %d decisions, %+v, %v", drift, r.Same, len(r.Decisions), r.Rungs, r.Notes)
		}
		for _, d := range r.Decisions {
			if d.Recorded == nil || d.Recorded.At != d.At || d.Recorded.Freed == 0 {
				t.Errorf("drift %v: %+v", drift, d)
			}
		}
	}
}

var drifts = []time.Duration{0, 500 * time.Millisecond, -500 * time.Millisecond}

// TestCarriedWithout: without the ladder all that the workers can map is used,
// which is between what one trim gave back and what all of them did.
func TestCarriedWithout(t *testing.T) {
	const truth = 500*rss.MiB + 4*1000*rss.MiB
	for _, c := range []struct {
		limit rss.Bytes
		want  replay.Fate
	}{{2 * rss.GiB, replay.Dies}, {three, replay.Unknown}, {64 * rss.GiB, replay.Lives}} {
		r := replayed(t, carried(true, three, 0), replay.Options{Limit: c.limit, Rules: []event.Rule{}})
		if r.Fate != c.want || !r.Estimate || len(r.Decisions) > 0 {
			t.Errorf("%v: %s (%s), want %s", c.limit, r.Fate, r.Why, c.want)
		}
		if l := r.Least[1]; l.Way != replay.WithoutActions || !l.Estimate || l.Mem > truth || l.Most < truth {
			t.Errorf("%v: without actions %v to %v, the truth is %v", c.limit, l.Mem, l.Most, truth)
		}
	}
}

// TestOwnTrims: what workers gave back by themselves is in no sample, so what would have been used
// without actions is bounded by what the run found, or by nothing; and with the recorded ladder
// the recorded limit is enough, at the peak that the run saw between two samples.
func TestOwnTrims(t *testing.T) {
	for _, c := range []struct {
		without, most rss.Bytes
		bare          replay.Fate // at 6 GiB
	}{{0, 0, replay.Unknown}, {5 * rss.GiB, 5*rss.GiB + rss.MiB, replay.Lives}, {7 * rss.GiB, 7*rss.GiB + rss.MiB, replay.Unknown}} {
		run := carried(true, three, 0)
		run.Events = append(run.Events, record.Entry{At: time.Minute, Name: event.NameLoader, Value: &event.LoaderSaid{What: event.LoaderTrimmed, Count: 2442, Freed: rss.GiB}})
		e, peak := run.Exit(), three-rss.MiB
		e.Binding = &event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: peak, Limit: three}
		e.Next = event.Next{Kind: event.NextKeep, Option: "--mem", Size: three, Without: c.without}
		r := replayed(t, run, replay.Options{})
		if r.Limit.Peak != peak || r.Least[0].Mem != three {
			t.Errorf("peak %v, as recorded %v", r.Limit.Peak, r.Least[0].Mem)
		}
		if got := r.Least[1].Most; got != c.most {
			t.Errorf("%v: without actions at most %v", c.without, got)
		}
		if l := r.Least[2]; l.Mem > three || l.Most > three {
			t.Errorf("with the ladder %v to %v of %v", l.Mem, l.Most, three)
		}
		if r := replayed(t, run, replay.Options{Limit: 6 * rss.GiB, Rules: []event.Rule{}}); r.Fate != c.bare {
			t.Errorf("%v: bare with 6 GiB %s: %s", c.without, r.Fate, r.Why)
		}
	}
}

// TestCarriedWith: the model's ladder does for a bare run what the ladder did for
// the other, and both limits of one --mem move together.
func TestCarriedWith(t *testing.T) {
	trim := ladder(t, "85%:trim")
	bare := carried(false, 8*rss.GiB, 0)
	if r := replayed(t, bare, replay.Options{Limit: three}); r.Fate != replay.Dies || r.Death.Limit != event.LimitSlurm || r.Death.By != "slurmstepd" {
		t.Errorf("without a ladder: %s %+v", r.Fate, r.Death)
	}
	r := replayed(t, bare, replay.Options{Limit: three, Rules: trim})
	was := replayed(t, carried(true, three, 0), replay.Options{})
	if r.Fate != replay.Lives || !r.Estimate {
		t.Errorf("with a ladder: %s (%s)", r.Fate, r.Why)
	}
	if got, want := r.Rungs[0], was.Rungs[0]; got.Count != want.Count || *got.First != *want.First {
		t.Errorf("trimmed %d times from %v s, in truth %d times from %v s", got.Count, *got.First, want.Count, *want.First)
	}
	// A smaller limit trims more often, and below what cannot be trimmed dies.
	if less := replayed(t, bare, replay.Options{Limit: 2 * rss.GiB, Rules: trim}); less.Fate != replay.Lives || less.Rungs[0].Count <= r.Rungs[0].Count {
		t.Errorf("2 GiB: %s, %+v", less.Fate, less.Rungs)
	}
	if r := replayed(t, bare, replay.Options{Limit: 900 * rss.MiB, Rules: trim}); r.Fate != replay.Dies {
		t.Errorf("900 MiB: %s", r.Fate)
	}
	if l := r.Least[2]; l.Mem < 900*rss.MiB || l.Mem > 1200*rss.MiB {
		t.Errorf("least with a ladder %v", l.Mem)
	}
}

// TestCarriedMore: more rules than then, and the same limit: what was done then
// is done again, and counts as measured.
func TestCarriedMore(t *testing.T) {
	for _, drift := range drifts {
		r := replayed(t, carried(true, three, drift), replay.Options{Rules: ladder(t, "85%:trim", "80%:warn", "50%:signal=USR1")})
		trims := 0
		for _, d := range r.Decisions {
			if d.Action == event.ActionTrim {
				trims++
				if d.Recorded == nil || d.Freed > 0 {
					t.Errorf("drift %v: %+v", drift, d)
				}
			}
		}
		if trims < 5 || r.Fate != replay.Lives || r.Rungs[2].Rule != "50%:signal=USR1" || r.Rungs[2].Count == 0 {
			t.Errorf("drift %v: %d trims, %s, %+v", drift, trims, r.Fate, r.Rungs)
		}
	}
}

// TestStop: a stop rule ends the job.
func TestStop(t *testing.T) {
	r := replayed(t, carried(false, 8*rss.GiB, 0), replay.Options{Limit: three, Rules: ladder(t, "95%:stop")})
	if r.Fate != replay.Dies || r.Death.Limit != "" || !strings.Contains(r.Why, "95%:stop") {
		t.Errorf("%s %+v", r.Fate, r.Death)
	}
}

// TestNotToBeReplayed: an error says what is missing.
func TestNotToBeReplayed(t *testing.T) {
	b := record.NewBuilder(record.Meta{ID: "empty"})
	if _, err := replay.Replay(b.Run(), replay.Options{}); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Error(err)
	}
	b = record.NewBuilder(record.Meta{ID: "odd"})
	b.Event(record.Entry{Name: event.NameStart, Value: &event.Start{Rules: []string{"85%:dance"}}})
	b.Sample(&record.Sample{})
	if _, err := replay.Replay(b.Run(), replay.Options{}); err == nil || !strings.Contains(err.Error(), "cannot replay odd: cannot read rule") {
		t.Error(err)
	}
	b = record.NewBuilder(record.Meta{ID: "bare"})
	b.Sample(&record.Sample{Roles: []record.RoleSum{{Role: rss.RoleWorker, RSS: rss.GiB}}})
	run := b.Run()
	if r, err := replay.Replay(run, replay.Options{}); err != nil || r.Limit != nil || r.Fate != replay.Unknown {
		t.Error(r, err)
	}
	if _, err := replay.Replay(run, replay.Options{Limit: rss.GiB}); err == nil || !strings.Contains(err.Error(), "no processes") {
		t.Error(err)
	}
}

// ramp is a bare run whose one process grows by 25 MiB a second to 300 MiB and stays
// there; pss says that its PSS was read.
func ramp(pss bool) *record.Run {
	b := record.NewBuilder(record.Meta{ID: "ramp"})
	b.Proc(record.Proc{ID: rss.ProcID{PID: 100}, Comm: "python", Role: rss.RoleOther})
	b.Event(record.Entry{Name: event.NameStart, Value: &event.Start{Rules: []string{"80%:warn", "85%:trim", "90%:recycle"}}})
	for at := range 20 {
		u := record.Usage{Anon: min(300, 25*rss.Bytes(at+1)) * rss.MiB}
		if pss {
			u.PSS = u.Anon
		}
		b.Sample(&record.Sample{At: time.Duration(at) * time.Second, Procs: []record.Usage{u}})
	}
	code := 0
	b.Event(record.Entry{At: 20 * time.Second, Name: event.NameExit, Value: &event.Exit{By: "command", Code: &code}})
	return b.Run()
}

// TestPassedLimit: a --limit that is passed ends nothing, so the ladder goes on: each
// rung is met, in the look that passes the limit too, and has a result. A stop
// rule ends the job still.
func TestPassedLimit(t *testing.T) {
	for _, c := range []struct {
		limit rss.Bytes
		met   float64 // of trim and recycle
	}{{100 * rss.MiB, 3}, {20 * rss.MiB, 0}} {
		r := replayed(t, ramp(false), replay.Options{Limit: c.limit})
		if r.Fate != replay.Dies || r.Death.Limit != event.LimitUser || r.Death.At != c.met || !strings.Contains(r.Why, "which only rsswarden's own rules enforce") {
			t.Errorf("%v: %s: %s", c.limit, r.Fate, r.Why)
		}
		if g := r.Rungs[0]; g.Rule != "80%:warn" || g.Count != 1 {
			t.Errorf("%v: %+v", c.limit, g)
		}
		for _, g := range r.Rungs[1:] {
			if g.Count != 0 || g.Met == nil || *g.Met != c.met || g.Reason != event.ReasonNoWorker {
				t.Errorf("%v: %+v", c.limit, g)
			}
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "never; met after") {
			t.Errorf("%s, %v", b.String(), err)
		}
	}
	r := replayed(t, ramp(false), replay.Options{Limit: 100 * rss.MiB, Rules: ladder(t, "80%:warn", "95%:stop")})
	if r.Fate != replay.Dies || r.Death.Limit != "" || r.Death.At != 3 {
		t.Errorf("%s: %+v", r.Why, r.Death)
	}
	if r := replayed(t, ramp(false), replay.Options{Limit: rss.GiB}); r.Fate != replay.Lives || r.Rungs[1].Met != nil {
		t.Errorf("%s: %+v", r.Why, r.Rungs)
	}
}

// TestReplayPSS: a record without PSS gives no result by PSS.
func TestReplayPSS(t *testing.T) {
	opt := replay.Options{Accounting: event.AccountingPSS}
	if _, err := replay.Replay(ramp(false), opt); err == nil || !strings.Contains(err.Error(), "cannot replay ramp: it has no PSS of its processes") {
		t.Error(err)
	}
	if r := replayed(t, ramp(true), opt); r.Limit.Peak != 300*rss.MiB {
		t.Errorf("%+v", r.Limit)
	}
}

var must = wardentest.NoError
