package analysis

import (
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
)

// TestLastRole: a process whose role is known later counts under that alone, in what limits count.
func TestLastRole(t *testing.T) {
	b := record.NewBuilder(record.Meta{ID: "run"})
	b.Limit(event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingNoShared})
	for _, role := range []rss.Role{rss.RoleOther, rss.RoleTrainer} {
		b.Proc(record.Proc{ID: rss.ProcID{PID: 7, Start: 1}, Comm: "python", Role: role})
	}
	for i := range 2 {
		b.Sample(&record.Sample{At: time.Duration(i) * time.Second, Procs: []record.Usage{{Proc: i, Anon: rss.GiB, File: rss.MiB}},
			Limits: []record.Reading{{Used: rss.GiB, Size: 2 * rss.GiB, ETA: -1}}})
	}
	rep := Analyze(Input{Runs: []*record.Run{b.Run()}, Timeline: true})
	if len(rep.Roles) != 1 || rep.Roles[0].Role != rss.RoleTrainer {
		t.Errorf("roles %+v", rep.Roles)
	}
	if held := rep.Limits[0].Held; len(held) != 1 || held[0] != (Held{rss.RoleTrainer, 1, rss.GiB}) {
		t.Errorf("held %+v", held)
	}
	if procs := rep.Timeline.Runs[0].Procs; len(procs) != 1 || procs[0].Proc.Role != rss.RoleTrainer {
		t.Errorf("processes %+v", procs)
	}
}

// TestLeft: when the job ends, by how much it had left at moments of the run.
func TestLeft(t *testing.T) {
	type reading struct {
		at   time.Duration
		left float64
	}
	for name, test := range map[string]struct {
		readings []reading
		want     time.Duration // after the start; negative for not known
	}{
		"not known":                {[]reading{{0, -1}, {time.Second, -1}}, -1},
		"known":                    {[]reading{{0, -1}, {10 * time.Second, 50}}, time.Minute},
		"moved":                    {[]reading{{10 * time.Second, 50}, {20 * time.Second, 100}}, 2 * time.Minute},
		"the run outlives it":      {[]reading{{10 * time.Second, 50}, {70 * time.Second, 0}, {90 * time.Second, 0}}, time.Minute},
		"moved to before the look": {[]reading{{10 * time.Second, 500}, {70 * time.Second, 0}, {90 * time.Second, 0}}, 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			k := &RunScan{Run: scenetest.Scene{}.Run()}
			for _, r := range test.readings {
				k.left(r.at, r.left)
			}
			want := scenetest.Noon.Add(test.want)
			if test.want < 0 {
				want = time.Time{}
			}
			if !k.JobEnd.Equal(want) {
				t.Errorf("the job ends at %v, want %v", k.JobEnd, want)
			}
		})
	}
}

// TestOneDecode: each run is decoded once, for a text and for a page.
func TestOneDecode(t *testing.T) {
	of := samplesOf
	defer func() { samplesOf = of }()
	var times atomic.Int64
	samplesOf = func(r *record.Run) iter.Seq[*record.Sample] {
		times.Add(1)
		return of(r)
	}
	runs := scenetest.Ranks()
	for _, draw := range []bool{false, true} {
		times.Store(0)
		if rep := Analyze(Input{Runs: runs, Now: scenetest.Noon, Timeline: draw}); len(rep.Scanned) == 0 || (rep.Timeline != nil) != draw {
			t.Errorf("%d scans, timeline %v", len(rep.Scanned), rep.Timeline != nil)
		}
		if n := times.Load(); n != int64(len(runs)) {
			t.Errorf("timeline %v: %d runs were decoded %d times", draw, len(runs), n)
		}
	}
}
