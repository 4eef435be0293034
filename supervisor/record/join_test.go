package record

import (
	"slices"
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
