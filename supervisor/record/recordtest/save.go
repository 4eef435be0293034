package recordtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
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

// SaveJournal writes a journal into dir, with a sample each minute, and returns its
// file: it is what other nodes see of a record on a node's own disk.
func (d Ranks) SaveJournal(dir string) (string, error) {
	r, next := d.Run(), time.Duration(0)
	path := filepath.Join(dir, r.Meta.ID+".jsonl")
	return path, WriteJournal(path, r, func(s *record.Sample) bool {
		due := s.At >= next
		if due {
			next = s.At + time.Minute
		}
		return due
	})
}

// WriteJournal writes what the journal of a run has: the samples that are kept, with roles in
// place of processes and the mappings of those that are near their limit, and all events.
func WriteJournal(path string, r *record.Run, keep func(*record.Sample) bool) error {
	var out []byte
	var failed error
	put := func(at time.Duration, name event.Name, v any) {
		var line map[string]any
		b, err := json.Marshal(v)
		err = errors.Join(err, json.Unmarshal(b, &line))
		line["v"], line["event"], line["time"] = event.Version, name, r.Wall(at)
		b, bad := json.Marshal(line)
		failed = errors.Join(failed, err, bad)
		out = append(append(out, b...), '\n')
	}
	put(0, record.NameRun, map[string]any{"run": r.Meta})
	for s := range r.Samples() {
		if !keep(s) {
			continue
		}
		limits, roles := []event.Limit{}, []record.RoleSum{}
		for _, x := range s.Limits {
			l := r.Limits[x.Limit]
			l.Used, l.UsedMax, l.Limit, l.Charged, l.WorkingSet, l.Binding = x.Used, x.UsedMax, x.Size, x.Charged, x.WorkingSet, x.Binding
			limits = append(limits, l)
		}
		for _, u := range s.Procs {
			p := &r.Procs[u.Proc]
			if u.Maps > 0 && uint64(u.Maps) > r.Meta.MaxMapCount/2 {
				limits = append(limits, event.Limit{
					Name: event.LimitMaps, Scope: event.ScopeProcess, Enforcer: "ENOMEM", LimitSource: "vm.max_map_count",
					Used: rss.Bytes(u.Maps), Limit: rss.Bytes(r.Meta.MaxMapCount),
				})
			}
			if p.Extra {
				continue
			}
			i := slices.IndexFunc(roles, func(sum record.RoleSum) bool { return sum.Role == p.Role })
			if i < 0 {
				i = len(roles)
				roles = append(roles, record.RoleSum{Role: p.Role})
			}
			sum := &roles[i]
			sum.Count++
			sum.Anon, sum.File, sum.Shmem, sum.RSS = sum.Anon+u.Anon, sum.File+u.File, sum.Shmem+u.Shmem, sum.RSS+u.RSS()
		}
		slices.SortFunc(roles, func(a, b record.RoleSum) int { return cmp.Compare(a.Role, b.Role) })
		put(s.At, event.NameSample, map[string]any{"limits": limits, "roles": roles})
	}
	for _, e := range r.Events {
		put(e.At, e.Name, e.Value)
	}
	return errors.Join(failed, os.WriteFile(path, out, 0o600))
}
