package action

import (
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/policy"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

func parsed(t *testing.T, text string) event.Rule {
	t.Helper()
	r, err := event.ParseRule(text)
	wardentest.NoError(t, err)
	return r
}

// TestNewSize: what each form of the rule comes to.
func TestNewSize(t *testing.T) {
	a := &requeuing{Env: &Env{Settings: &settings.Policy{Requeue: settings.Requeue{MaxRequeues: 3}}, View: &view.View{}}}
	l := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 980 * rss.MiB, Limit: 1000 * rss.MiB}
	facts := jobFacts{job: slurm.RunningJob{ID: "46", State: "RUNNING", Requeue: true, Batch: true, MiB: 1000, CPUs: 2, Nodes: 1}, room: slurm.MaxMemory{MiB: 8000}}
	for text, want := range map[string]uint64{
		"97%:requeue": 1250, "97%:requeue=+25%": 1250, "97%:requeue=+50%": 1500, "97%:requeue=3G": 3072, "97%:requeue=20G": 8000,
		"97%:requeue=advice": 1536, // half as much again, as a size that people write
	} {
		if got, h := a.newSize(parsed(t, text), &l, &facts); got != want || !h.OK {
			t.Errorf("%s: %d MiB, %+v; want %d", text, got, h, want)
		}
	}
	l.Name, l.Scope, l.Limit = event.LimitSlurm, event.ScopeStep, 500*rss.MiB
	if _, h := a.newSize(parsed(t, "97%:requeue"), &l, &facts); h.OK || h.Reason != event.ReasonNoHelp {
		t.Errorf("a step by srun --mem: %+v", h)
	}
}

// TestKeepRequeue: when a command has ended by itself its own rsswarden sees a requeue
// through that waited for its checkpoint, and the next leader begins none.
func TestKeepRequeue(t *testing.T) {
	for asked, kept := range map[string]bool{"": true, "SIGTERM": false} {
		ladder := policy.New([]event.Rule{parsed(t, "85%:requeue")}, 1)
		l := event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 90, Limit: 100}
		in := policy.Input{Now: time.Second, Limits: []event.Limit{l}}
		ladder.Observe(in.Now, in.Limits)
		for due := range ladder.Asks(&in) {
			in.Feasible[due.Ask] = event.Feasibility{OK: true}
		}
		d := ladder.Judge(in).Decisions
		if len(d) != 1 {
			t.Fatalf("decided %+v", d)
		}
		s := &Set{Env: &Env{Ladder: ladder}, requeue: &requeuing{asked: asked}, flight: &Flight{Decision: d[0], Before: l}}
		s.KeepRequeue()
		m := ladder.Snapshot(time.Second, time.Second, 0)
		if fired := len(m.Rungs) == 1 && m.Rungs[0].Fired; fired != kept {
			t.Errorf("asked by %q to end: handed over as done: %v", asked, fired)
		}
	}
}

// TestTraceTimes: twice the last time counts, and no more than a second.
func TestTraceTimes(t *testing.T) {
	var times traceTimes
	if got := times.expected(); got != firstTraceTime {
		t.Errorf("%v before the first", got)
	}
	times.add(50 * time.Millisecond)
	if got := times.expected(); got != 100*time.Millisecond {
		t.Errorf("%v after one of 50 ms", got)
	}
	times.add(10 * time.Second)
	if got := times.expected(); got != 2*firstTraceTime {
		t.Errorf("%v after one of 10 s", got)
	}
}
