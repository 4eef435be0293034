package record

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ledBy is what one of two ranks recorded of a node, from a moment of the job on;
// its own run began after.
func ledBy(holder int, after time.Duration, from, to int) *Run {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	b := NewBuilder(Meta{ID: "run of " + string(rune('0'+holder)), Node: "n1", Start: start.Add(after), Holder: holder})
	b.Limit(event.Limit{Name: event.LimitCgroup, Level: "/job"})
	b.Proc(Proc{ID: rss.ProcID{PID: 9}, Role: rss.RoleTrainer, Extra: holder == 2})
	b.Proc(Proc{ID: rss.ProcID{PID: 8}, Role: rss.RoleTrainer, Extra: holder == 1})
	for at := from; at <= to; at++ {
		b.Sample(&Sample{At: time.Duration(at)*time.Second - after, Limits: []Reading{{Used: rss.Bytes(at) * rss.MiB, UsedMax: rss.Bytes(at) * rss.MiB, Size: rss.GiB, ETA: -1}},
			Procs: []Usage{{Proc: 0, Anon: rss.Bytes(at) * rss.MiB}, {Proc: 1, Anon: rss.MiB}}})
	}
	b.Event(Entry{At: time.Duration(from)*time.Second - after, Name: event.NameRank, Value: &event.Rank{What: event.RankLeads, Holder: holder}})
	return b.Run()
}

// TestJoin: two records of a node are one, on the clock of the first.
func TestJoin(t *testing.T) {
	first, second := ledBy(1, 0, 0, 5), ledBy(2, 2*time.Second, 7, 9)
	r, ok := Join([]*Run{first, second})
	if !ok {
		t.Fatal("not joined")
	}
	var at []time.Duration
	for s := range r.Samples() {
		at = append(at, s.At)
		if s.Limits[0].Used != rss.Bytes(s.At/time.Second)*rss.MiB || r.Procs[s.Procs[0].Proc].ID.PID != 9 || r.Procs[s.Procs[1].Proc].ID.PID != 8 {
			t.Errorf("at %v: %+v", s.At, s)
		}
	}
	seconds := func(list ...int) (out []time.Duration) {
		for _, s := range list {
			out = append(out, time.Duration(s)*time.Second)
		}
		return out
	}
	if diff := cmp.Diff(seconds(0, 1, 2, 3, 4, 5, 7, 8, 9), at); diff != "" {
		t.Error(diff)
	}
	if len(r.Limits) != 1 || r.Meta.ID != first.Meta.ID || len(r.Events) != 2 || r.Events[1].At != 7*time.Second {
		t.Errorf("limits %v, %s, events %v", r.Limits, r.Meta.ID, r.Events)
	}
	for name, runs := range map[string][]*Run{
		"overlapping":        {ledBy(1, 0, 0, 5), ledBy(2, 0, 4, 9)},
		"in the wrong order": {second, first},
		"of two kinds":       {first, {JournalOnly: true, Meta: second.Meta}},
		"none":               nil,
	} {
		if _, ok := Join(runs); ok {
			t.Errorf("%s: joined", name)
		}
	}
}

// TestRecorded: the record has an event for each change of the leader.
func TestRecorded(t *testing.T) {
	r := ledBy(2, 0, 7, 9)
	r.Events = slices.Insert(r.Events, 0, Entry{At: time.Second, Value: &event.Rank{What: event.RankLeads, Holder: 1}})
	if from, led := r.Recorded(); from != 7*time.Second || !led {
		t.Errorf("%v, %v", from, led)
	}
	r.Events = nil
	if _, led := r.Recorded(); led {
		t.Error("a record without rank events is a leader's")
	}
}

// TestJoinHandover: the state that a leader took over is on the clock of the whole.
func TestJoinHandover(t *testing.T) {
	first, second := ledBy(1, 0, 0, 3), ledBy(2, 10*time.Second, 10, 19)
	was := &event.Handover{Ran: time.Second, Clock: time.Hour}
	second.Events = append(second.Events, Entry{At: time.Second, Name: event.NameHandover, Value: was})
	both, ok := Join([]*Run{first, second})
	if !ok {
		t.Fatal("not joined")
	}
	e := both.Events[len(both.Events)-1]
	if h := e.Value.(*event.Handover); e.At != 11*time.Second || h.Ran != e.At || h.Clock != time.Hour || was.Ran != time.Second {
		t.Errorf("at %v: %+v, before %+v", e.At, h, was)
	}
}

// TestPart: a rank that led twice has two parts in its record, each with its samples
// and events on the clock of the whole.
func TestPart(t *testing.T) {
	twice, ok := Join([]*Run{ledBy(1, 0, 0, 3), ledBy(1, 0, 7, 9)})
	if !ok {
		t.Fatal("not joined")
	}
	leads := twice.Leads()
	if diff := cmp.Diff([]time.Duration{0, 7 * time.Second}, leads); diff != "" {
		t.Fatal(diff)
	}
	for _, c := range []struct{ from, to, first, last time.Duration }{{0, leads[1], 0, 3}, {leads[1], time.Hour, 7, 9}} {
		part := twice.Part(c.from, c.to)
		var at []time.Duration
		for s := range part.Samples() {
			at = append(at, s.At)
			if want := rss.Bytes(s.At/time.Second) * rss.MiB; s.Limits[0].Used != want || s.Procs[0].Anon != want || part.Procs[s.Procs[0].Proc].ID.PID != 9 {
				t.Errorf("at %v: %+v", s.At, s)
			}
		}
		if len(at) == 0 || at[0] != c.first*time.Second || at[len(at)-1] != c.last*time.Second {
			t.Errorf("%v: %v", c.from, at)
		}
		if len(part.Events) != 1 || part.Events[0].At != c.first*time.Second || part.Meta.ID != twice.Meta.ID || len(part.Leads()) != 1 {
			t.Errorf("%v: %+v", c.from, part.Events)
		}
	}
	of := &Run{JournalOnly: true, plain: []Sample{{At: 1}, {At: 5}}}
	for s := range of.Part(2, 9).Samples() {
		if s.At != 5 {
			t.Errorf("a journal: %v", s.At)
		}
	}
}

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

// walk is a run of samples in which processes come, go and change places.
func walk(r *rand.Rand, n, procs int) []Sample {
	var all []Sample
	s := Sample{}
	next := 0
	for i := range n {
		s.At += time.Duration(r.IntN(3000)) * time.Millisecond
		s.AtDecision = r.IntN(20) == 0
		s.Limits = slices.Clone(s.Limits)
		if i == 0 || r.IntN(30) == 0 {
			s.Limits = nil
			for k := range 1 + r.IntN(3) {
				s.Limits = append(s.Limits, Reading{Limit: k * 2, Size: 4*rss.GiB + 1, ETA: -1})
			}
		}
		for k := range s.Limits {
			l := &s.Limits[k]
			l.Used = rss.Bytes(r.IntN(1<<22)) * rss.KiB
			l.UsedMax = l.Used + rss.Bytes(r.IntN(3))*rss.KiB
			l.Charged, l.Binding = l.Used+rss.MiB, k == 1
			if l.ETA = -1; r.IntN(2) == 0 {
				l.ETA = float64(r.IntN(1e6))
			}
		}
		s.Procs = slices.Clone(s.Procs)
		if r.IntN(5) == 0 {
			s.Procs = slices.DeleteFunc(s.Procs, func(Usage) bool { return r.IntN(4) == 0 })
		}
		if r.IntN(50) == 0 {
			r.Shuffle(len(s.Procs), func(i, j int) { s.Procs[i], s.Procs[j] = s.Procs[j], s.Procs[i] })
		}
		for len(s.Procs) < procs && r.IntN(3) > 0 {
			s.Procs = slices.Insert(s.Procs, r.IntN(len(s.Procs)+1), Usage{Proc: next})
			next++
		}
		for k := range s.Procs {
			u := &s.Procs[k]
			switch r.IntN(4) {
			case 0:
				u.Anon = rss.Bytes(r.IntN(1<<22)) * rss.KiB
			case 1:
				u.File += 4 * rss.KiB
				u.PSS = u.File / 2 / rss.KiB * rss.KiB
			case 2:
				u.Maps, u.FDs, u.Shmem = r.IntN(70000), r.IntN(100), rss.Bytes(r.IntN(100))*rss.KiB
			}
		}
		all = append(all, s.clone())
	}
	return all
}

func TestBlocksKeepSamples(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := walk(r, 300, []int{0, 1, 16, 400}[seed%4])
		b := NewBuilder(Meta{})
		for range 1 << 14 {
			b.run.Procs = append(b.run.Procs, Proc{})
		}
		b.run.Limits = make([]event.Limit, 8)
		for i := range want {
			b.Sample(&want[i])
		}
		var got []Sample
		for s := range b.Run().Samples() {
			got = append(got, s.clone())
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(s Sample) []any {
			return []any{s.At, s.AtDecision, append([]Reading{}, s.Limits...), append([]Usage{}, s.Procs...)}
		})); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// use does with a run what its readers do: nothing it refers to may be missing.
func use(t *testing.T, r *Run) {
	last := time.Duration(-1)
	for s := range r.Samples() {
		if s.At < last {
			t.Fatalf("a sample of %v after one of %v", s.At, last)
		}
		last = s.At
		for i := range s.Limits {
			_ = r.Limits[s.Limits[i].Limit].Name
		}
		for i := range s.Procs {
			_ = r.Procs[s.Procs[i].Proc].Comm
		}
	}
	for _, e := range r.Events {
		if e.Value == nil {
			t.Fatalf("event %s without a value", e.Name)
		}
	}
	_ = r.Exit()
}

func FuzzBlock(f *testing.F) {
	var enc Encoder
	for _, s := range walk(rand.New(rand.NewPCG(1, 1)), 20, 3) {
		enc.Add(&s)
	}
	f.Add(enc.Snapshot(0))
	f.Fuzz(func(t *testing.T, b []byte) {
		use(t, &Run{blocks: [][]byte{b}, Procs: make([]Proc, 4), Limits: make([]event.Limit, 2)})
	})
}

// TestThinnedInOrder: a sample at a decision has the time it was taken at, when
// the fullest of its stretch came after it.
func TestThinnedInOrder(t *testing.T) {
	var enc Encoder
	for n, used := range []rss.Bytes{5, 3, 9, 1} {
		enc.Add(&Sample{
			At: time.Duration(n) * time.Second, AtDecision: n == 1,
			Limits: []Reading{{Used: used * rss.GiB, UsedMax: used * rss.GiB, Size: 10 * rss.GiB, ETA: -1}},
		})
	}
	var got []string
	var d decoder
	for _, it := range Thin([][]byte{enc.Block(0)}, 1) {
		for s := range d.samples(it.Value) {
			got = append(got, fmt.Sprint(s.At, s.AtDecision, s.Limits[0].Used))
		}
	}
	if want := "1s true 3.00 GiB 2s false 9.00 GiB"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}
