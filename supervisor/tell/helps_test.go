package tell

import (
	"slices"
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
	yes := policy.Help{OK: true, Gain: 100 * rss.MiB}
	for _, c := range []struct {
		what string
		then policy.Help
		wait time.Duration
		want int // events in all, the first answer among them
	}{
		{"the same", yes, time.Hour, 1},
		{"no more", policy.Help{Reason: event.ReasonNoWorker}, 0, 2},
		{"known in a moment", policy.Help{OK: true, Gain: yes.Gain, Later: true}, 0, 2},
		{"a lower bound", policy.Help{OK: true, Gain: yes.Gain, More: true}, 0, 2},
		{"another detail", policy.Help{OK: true, Gain: yes.Gain, Detail: "process 7"}, time.Hour, 1},
		{"a little more", policy.Help{OK: true, Gain: 109 * rss.MiB}, time.Hour, 1},
		{"more, soon", policy.Help{OK: true, Gain: 150 * rss.MiB}, 9 * time.Second, 1},
		{"more, later", policy.Help{OK: true, Gain: 150 * rss.MiB}, 10 * time.Second, 2},
		{"less, later", policy.Help{OK: true, Gain: 50 * rss.MiB}, 10 * time.Second, 2},
		{"not worth it", policy.Help{OK: true, Gain: rss.MiB}, 0, 2},
		{"nobody knows how much", policy.Help{OK: true}, 0, 2},
	} {
		var got []event.Help
		n := Helps{note: func(_ event.Name, make func(event.Head) any) { got = append(got, make(event.Head{}).(event.Help)) }}
		step := func(now time.Duration, h policy.Help) {
			can, lead := n.Listen(now, func(event.Rule, *event.Limit) policy.Help { return h }, func(event.Rule, *event.Limit) rss.Bytes { return rss.MiB })
			if lead(trim, &l) != rss.MiB || can(trim, &l) != h {
				t.Errorf("%s: the ladder is told something else", c.what)
			}
		}
		step(time.Second, yes)
		step(time.Second+c.wait, c.then)
		if len(got) != c.want {
			t.Fatalf("%s: %d events, want %d: %+v", c.what, len(got), c.want, got)
		}
		last := got[len(got)-1]
		want := event.Help{
			Rule: "85%:trim", Limit: l.Name, Scope: l.Scope, Acct: l.Accounting, Lead: rss.MiB,
			OK: last.OK, Gain: last.Gain, More: last.More, Later: last.Later, Reason: last.Reason, Detail: last.Detail,
		}
		if last != want {
			t.Errorf("%s: %+v, want %+v", c.what, last, want)
		}
	}
}

// TestHelpsLead: the lead of a rule is not taken for that of another, nor
// for that of a rung that was crossed since.
func TestHelpsLead(t *testing.T) {
	var leads []rss.Bytes
	n := Helps{note: func(_ event.Name, make func(event.Head) any) {
		leads = append(leads, make(event.Head{}).(event.Help).Lead)
	}}
	yes := false
	ask := func(event.Rule, *event.Limit) policy.Help { yes = !yes; return policy.Help{OK: yes} }
	ahead := func(event.Rule, *event.Limit) rss.Bytes { return rss.MiB }
	trim, recycle := policy.Default()[2], policy.Default()[3]
	l := event.Limit{Name: event.LimitSlurm, Limit: rss.GiB}
	can, lead := n.Listen(0, ask, ahead)
	lead(trim, &l)
	can(recycle, &l)
	lead(trim, &l)
	can, _ = n.Listen(time.Second, ask, ahead)
	can(trim, &l)
	if !slices.Equal(leads, []rss.Bytes{0, 0}) {
		t.Errorf("leads %v", leads)
	}
	// Nobody records: the ladder asks as ever.
	can, _ = (&Helps{}).Listen(0, ask, ahead)
	can(trim, &l)
}

// TestHelpsForget: limits that are gone are not kept for ever.
func TestHelpsForget(t *testing.T) {
	n := Helps{note: func(_ event.Name, make func(event.Head) any) { make(event.Head{}) }}
	for i := range 5000 {
		l := event.Limit{Name: event.LimitSlurm, Level: string(rune('a'+i%26)) + time.Duration(i).String(), Limit: rss.GiB}
		can, _ := n.Listen(time.Duration(i)*time.Second, func(event.Rule, *event.Limit) policy.Help { return policy.Help{} }, nil)
		can(policy.Default()[2], &l)
	}
	if len(n.last) > helpsKept+int(helpsOld/time.Second) {
		t.Errorf("%d answers are kept", len(n.last))
	}
}
