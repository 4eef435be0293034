package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestSave: what is saved is read back whole, counts, blocks and rank events
// included.
func TestSave(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	b := NewBuilder(Meta{V: Version, ID: NewID(start, nil, "n1", 7), Node: "n1", Start: start, Mono: 5 * time.Second})
	b.Limit(event.Limit{Name: event.LimitCgroup, Scope: event.ScopeJob})
	b.Limit(event.Limit{Name: event.LimitMaps, Scope: event.ScopeProcess})
	b.Proc(Proc{ID: rss.ProcID{PID: 8, Start: 9}, Comm: "python", Role: rss.RoleTrainer})
	for n := range 3000 {
		b.Sample(&Sample{
			At: time.Duration(n) * time.Second, AtDecision: n == 7,
			Limits: []Reading{{Used: rss.Bytes(n) * rss.MiB, UsedMax: rss.Bytes(n) * rss.MiB, Size: rss.GiB, ETA: -1, Binding: true}, {Limit: 1, Used: rss.Bytes(n), UsedMax: rss.Bytes(n), Size: 65530, ETA: -1}},
			Procs:  []Usage{{Anon: rss.Bytes(n) * rss.KiB, File: rss.MiB, Maps: 3}},
		})
	}
	kill := "SIGKILL"
	b.Event(Entry{At: time.Second, Name: event.NameRank, Value: &event.Rank{Head: headed(start, time.Second, event.NameRank), What: event.RankJoined, Task: 3, Step: "0", Node: "n1", PID: 8, Holder: 7, Leader: 6}})
	b.Event(Entry{At: 2 * time.Second, Name: event.NameRank, Value: &event.Rank{Head: headed(start, 2*time.Second, event.NameRank), What: event.RankEnded, Task: 3, Step: "0", Signal: &kill}})
	want := b.Run()
	dir, err := Save(t.TempDir(), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(t.Context(), dir, child)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Damage) > 0 || got.Dropped > 0 {
		t.Errorf("damage %v, %d dropped", got.Damage, got.Dropped)
	}
	for _, part := range []struct{ want, got any }{
		{want.Meta, got.Meta}, {want.Procs, got.Procs}, {want.Limits, got.Limits}, {want.Events, got.Events}, {samplesOf(want), samplesOf(got)},
	} {
		if diff := cmp.Diff(part.want, part.got); diff != "" {
			t.Error(diff)
		}
	}
}

func samplesOf(r *Run) (all []Sample) {
	for s := range r.Samples() {
		all = append(all, s.clone())
	}
	return all
}
