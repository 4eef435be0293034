package report

import (
	"slices"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// TestFormerVersions: a record whose run had options, rules and faults that no run
// has today is reported as any other.
func TestFormerVersions(t *testing.T) {
	r := scene{
		job: inJob(), limits: []event.Limit{limitJob}, length: minutes, sizes: []rss.Bytes{mem}, used: rising(minutes, mem, 0.2, 0.7),
		events: []record.Entry{
			{Name: event.NameFault, Value: &event.Fault{Part: "guard-cgroup", Error: "cannot guard: the memory controller is cgroup v2"}},
			cure(0, event.RemedyArenas, true, 0, 2, ""),
			{At: time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 1, Rule: "60%:trim+drop", Limit: event.LimitCgroup, Action: event.ActionTrimDrop, Used: mem.Scale(0.6), LimitSize: mem}},
			{At: 2 * time.Minute, Name: event.NameOutcome, Value: &event.Outcome{Decision: 1, OK: true, Reason: event.ReasonDone, Freed: rss.GiB}},
			{At: 3 * time.Minute, Name: event.NameDecision, Value: &event.Decision{ID: 2, Rule: "65%:trim", Limit: event.LimitCgroup, Action: event.ActionTrim, Used: mem.Scale(0.65), LimitSize: mem}},
			{At: 4 * time.Minute, Name: event.NameOutcome, Value: &event.Outcome{Decision: 2, OK: true, Reason: event.ReasonDone, Freed: rss.MiB}},
			exits(minutes, "", 0),
		},
	}.run()
	for kind, run := range map[string]*record.Run{"record": r, "journal": asJournal(t, r)} {
		rep := build([]*record.Run{run}, nil, noon)
		var did []event.Action
		for _, a := range rep.Actions {
			did = append(did, a.Action)
			if a.Fired != 1 || a.Worked != 1 || a.Freed == 0 {
				t.Errorf("%s: %+v", kind, a)
			}
		}
		if want := []event.Action{event.ActionTrim, event.ActionTrimDrop}; !slices.Equal(did, want) {
			t.Errorf("%s: actions %q, want %q", kind, did, want)
		}
		if len(rep.Cures) != 1 || rep.Cures[0].Remedy != event.RemedyArenas {
			t.Errorf("%s: cures %+v", kind, rep.Cures)
		}
	}
}
