package record

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TestRecordReadBack: what a recorder is given is read back whole, over several blocks,
// with counts and the events of ranks.
func TestRecordReadBack(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	b := NewBuilder(Meta{V: Version, ID: NewID(start, nil, "n1", 7), Node: "n1", Start: start, Mono: 5 * time.Second})
	limits := []event.Limit{{Name: event.LimitCgroup, Scope: event.ScopeJob}, {Name: event.LimitMaps, Scope: event.ScopeProcess}}
	b.Limit(limits[0])
	b.Limit(limits[1])
	trainer := Proc{ID: rss.ProcID{PID: 8, Start: 9}, Comm: "python", Role: rss.RoleTrainer}
	b.Proc(trainer)
	place := t.TempDir()
	r := New(Options{Meta: b.Run().Meta, AtOnce: true, Places: Places{Records: []string{place}, Journals: []string{t.TempDir()}}, Fault: func(part string, err error) { t.Errorf("%s: %v", part, err) }})
	for n := range 3000 {
		at := time.Duration(n) * time.Second
		limits[0].Used, limits[0].Limit, limits[0].Binding = rss.Bytes(n)*rss.MiB, rss.GiB, true
		limits[1].Used, limits[1].Limit = rss.Bytes(n), 65530
		r.Sample(&Look{
			At: at, AtDecision: n == 7, Limits: limits,
			Sample: &rss.Sample{Procs: []rss.Proc{{ID: trainer.ID, Comm: trainer.Comm, Role: trainer.Role, Anon: rss.Bytes(n) * rss.KiB, File: rss.MiB}}},
			Counts: func(rss.ProcID) (maps, fds int) { return 3, 0 },
		})
		b.Sample(&Sample{
			At: at, AtDecision: n == 7,
			Limits: []Reading{{Used: rss.Bytes(n) * rss.MiB, UsedMax: rss.Bytes(n) * rss.MiB, Size: rss.GiB, ETA: -1, Binding: true}, {Limit: 1, Used: rss.Bytes(n), UsedMax: rss.Bytes(n), Size: 65530, ETA: -1}},
			Procs:  []Usage{{Anon: rss.Bytes(n) * rss.KiB, File: rss.MiB, Maps: 3}},
		})
	}
	kill := "SIGKILL"
	for _, e := range []*event.Rank{
		{Head: headed(start, time.Second, event.NameRank), What: event.RankJoined, Task: 3, Step: "0", Node: "n1", PID: 8, Holder: 7, Leader: 6},
		{Head: headed(start, 2*time.Second, event.NameRank), What: event.RankEnded, Task: 3, Step: "0", Signal: &kill},
	} {
		b.Event(Entry{At: e.Time.Sub(start), Name: event.NameRank, Value: e})
		r.Event(event.NameRank, e)
	}
	r.Close(time.Minute)
	want := b.Run()
	dir := filepath.Join(place, want.Meta.ID)
	want.Meta.Record = dir
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
