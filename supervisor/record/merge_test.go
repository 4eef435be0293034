package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestMergeGoesOn: where the record ends before its journal, the last samples are
// the journal's, with the limits of the record and those it never had.
func TestMergeGoesOn(t *testing.T) {
	stepd := event.Limit{Name: event.LimitSlurm, Scope: event.ScopeStep, Accounting: event.AccountingRSS}
	group := event.Limit{Name: event.LimitCgroup, Scope: event.ScopeJob, Level: "/job"}
	late := event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode}
	b := NewBuilder(Meta{ID: "run"})
	b.Limit(stepd)
	b.Limit(group)
	for s := range 4 {
		b.Sample(&Sample{At: time.Duration(s) * time.Second, Limits: []Reading{{Limit: 1, Used: rss.Bytes(s) * rss.MiB, Size: rss.GiB, ETA: -1}}})
	}
	run := b.Run()
	journal := &Run{Meta: Meta{ID: "run"}, JournalOnly: true, Limits: []event.Limit{group, late}}
	for _, at := range []time.Duration{0, 3*time.Second + time.Millisecond/2, 3500 * time.Millisecond, 4 * time.Second} {
		journal.plain = append(journal.plain, Sample{At: at, Roles: []RoleSum{{Role: rss.RoleTrainer, Count: 1}}, Limits: []Reading{
			{Limit: 0, Used: 9 * rss.MiB, Size: rss.GiB, ETA: -1}, {Limit: 1, Used: 8 * rss.MiB, Size: rss.GiB, ETA: -1},
		}})
	}
	run.Merge(journal)
	type reading struct {
		At   time.Duration
		Name event.LimitName
		Used rss.Bytes
	}
	var got []reading
	for s := range run.Samples() {
		for _, l := range s.Limits {
			got = append(got, reading{s.At, run.Limits[l.Limit].Name, l.Used})
		}
	}
	want := []reading{
		{0, event.LimitCgroup, 0}, {time.Second, event.LimitCgroup, rss.MiB}, {2 * time.Second, event.LimitCgroup, 2 * rss.MiB},
		{3 * time.Second, event.LimitCgroup, 3 * rss.MiB},
		{3500 * time.Millisecond, event.LimitCgroup, 9 * rss.MiB}, {3500 * time.Millisecond, event.LimitSHM, 8 * rss.MiB},
		{4 * time.Second, event.LimitCgroup, 9 * rss.MiB}, {4 * time.Second, event.LimitSHM, 8 * rss.MiB},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if run.JournalOnly {
		t.Error("the record is taken for a journal")
	}
}
