package recordtest

import (
	"os"
	"path/filepath"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/store"
)

// Save writes the record below dir, as a watcher does, and returns its directory.
func (d Ranks) Save(dir string) (string, error) { return save(dir, d.Run()) }

// save has a recorder take a run in. The journal is not kept.
func save(dir string, run *record.Run) (string, error) {
	journals, err := os.MkdirTemp("", "journal-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(journals)
	var failed error
	r := store.New(store.Options{
		Meta: run.Meta, Places: record.Places{Records: []string{dir}, Journals: []string{journals}, Chosen: true},
		Fault: func(_ string, err error) { failed = err },
	})
	for s := range run.Samples() {
		r.Sample(look(run, s))
	}
	for i := range run.Events {
		r.Event(run.Events[i].Name, run.Events[i].Value)
	}
	r.Close(time.Minute)
	return filepath.Join(dir, run.Meta.ID), failed
}

// look is what a watcher sees that records the sample.
func look(run *record.Run, s *record.Sample) *record.Look {
	l := &record.Look{At: s.At, AtDecision: s.AtDecision, Sample: &rss.Sample{}, Holder: run.Meta.Holder}
	for _, r := range s.Limits {
		limit := run.Limits[r.Limit]
		limit.Used, limit.UsedMax, limit.Charged, limit.WorkingSet, limit.Limit, limit.Binding = r.Used, r.UsedMax, r.Charged, r.WorkingSet, r.Size, r.Binding
		l.Limits = append(l.Limits, limit)
	}
	for _, u := range s.Procs {
		p := &run.Procs[u.Proc]
		proc := rss.Proc{ID: p.ID, Parent: p.Parent, Comm: p.Comm, Role: p.Role, RSS: u.Anon + u.File + u.Shmem, Anon: u.Anon, File: u.File, Shmem: u.Shmem}
		if p.Extra {
			l.Sample.Extra = append(l.Sample.Extra, proc)
		} else {
			l.Sample.Procs = append(l.Sample.Procs, proc)
		}
	}
	return l
}
