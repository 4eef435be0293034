package tell

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
)

// TestHelps: an answer is written down when it changes what the ladder can
// do, and a gain that creeps no more than each 10 s.
func TestHelps(t *testing.T) {
	trim := policy.Default()[2]
	l := event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS, Used: 900 * rss.MiB, Limit: rss.GiB}
	yes := event.Feasibility{OK: true, Gain: 100 * rss.MiB}
	for _, c := range []struct {
		what string
		then event.Feasibility
		wait time.Duration
		want int // events in all, the first answer among them
	}{
		{"the same", yes, time.Hour, 1},
		{"no more", event.Feasibility{Reason: event.ReasonNoWorker}, 0, 2},
		{"known in a moment", event.Feasibility{OK: true, Gain: yes.Gain, Later: true}, 0, 2},
		{"a lower bound", event.Feasibility{OK: true, Gain: yes.Gain, AtLeast: true}, 0, 2},
		{"another detail", event.Feasibility{OK: true, Gain: yes.Gain, Detail: "process 7"}, time.Hour, 1},
		{"a little more", event.Feasibility{OK: true, Gain: 109 * rss.MiB}, time.Hour, 1},
		{"more, soon", event.Feasibility{OK: true, Gain: 150 * rss.MiB}, 9 * time.Second, 1},
		{"more, later", event.Feasibility{OK: true, Gain: 150 * rss.MiB}, 10 * time.Second, 2},
		{"less, later", event.Feasibility{OK: true, Gain: 50 * rss.MiB}, 10 * time.Second, 2},
		{"not worth it", event.Feasibility{OK: true, Gain: rss.MiB}, 0, 2},
		{"nobody knows how much", event.Feasibility{OK: true}, 0, 2},
	} {
		k := &kept{}
		n := Helps{out: &events{Recorder: k}}
		step := func(now time.Duration, h event.Feasibility) {
			ask := event.Ask{Rule: trim, On: l.ID()}
			in := policy.Input{Now: now, Feasible: map[event.Ask]event.Feasibility{ask: h}, Lead: map[event.Ask]rss.Bytes{ask: rss.MiB}}
			n.Heard(&in, []policy.Due{{Ask: ask, Reading: &l}})
		}
		step(time.Second, yes)
		step(time.Second+c.wait, c.then)
		if len(k.events) != c.want {
			t.Fatalf("%s: %d events, want %d: %+v", c.what, len(k.events), c.want, k.events)
		}
		last := k.events[len(k.events)-1].(event.Help)
		last.Head = event.Head{}
		want := event.Help{
			Rule: "85%:trim", Limit: l.Name, Scope: l.Scope, Acct: l.Accounting, Lead: rss.MiB,
			OK: last.OK, Gain: last.Gain, More: last.More, Later: last.Later, Reason: last.Reason, Detail: last.Detail,
		}
		if last != want {
			t.Errorf("%s: %+v, want %+v", c.what, last, want)
		}
	}
}

// TestHelpsForget: limits that are gone are not kept for ever.
func TestHelpsForget(t *testing.T) {
	n := Helps{out: &events{Recorder: &kept{}}}
	for i := range 5000 {
		l := event.Limit{Name: event.LimitSlurm, Level: string(rune('a'+i%26)) + time.Duration(i).String(), Limit: rss.GiB}
		ask := event.Ask{Rule: policy.Default()[2], On: l.ID()}
		n.Heard(&policy.Input{Now: time.Duration(i) * time.Second}, []policy.Due{{Ask: ask, Reading: &l}})
	}
	if len(n.last) > helpsKept+int(helpsOld/time.Second) {
		t.Errorf("%d answers are kept", len(n.last))
	}
}
