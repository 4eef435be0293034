package record

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Found is what one run has left behind, by the names of files alone.
type Found struct {
	ID      string
	Job     string // the Slurm job, empty outside Slurm
	Record  string // directory of the full record, empty where it is not there
	Journal string // file of the journal, empty where it is not there
}

// Size is how many bytes the full record takes on its disk, 0 where it is not there.
func (f Found) Size() int64 {
	if f.Record == "" {
		return 0
	}
	info, err := os.Stat(filepath.Join(f.Record, dataFile))
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// Find lists the runs that have left something in directories: those of records
// and of journals, or any directory that holds either. The newest is first.
func Find(dirs ...string) []Found {
	runs := map[string]*Found{}
	at := func(id string) *Found {
		f := runs[id]
		if f == nil {
			f = &Found{ID: id, Job: jobOfID(id)}
			runs[id] = f
		}
		return f
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if id, ok := strings.CutSuffix(e.Name(), journalSuffix); ok && isID(id) {
				if f := at(id); f.Journal == "" {
					f.Journal = path
				}
				continue
			}
			if !isID(e.Name()) {
				continue
			}
			if _, err := os.Stat(filepath.Join(path, dataFile)); err == nil {
				if f := at(e.Name()); f.Record == "" {
					f.Record = path
				}
			}
		}
	}
	list := make([]Found, 0, len(runs))
	for _, f := range runs {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b Found) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// At says what lies at a path: a record, a journal, or nothing of ours.
func At(path string) (Found, bool) {
	path = filepath.Clean(path)
	id := filepath.Base(path)
	if info, err := os.Stat(filepath.Join(path, dataFile)); err == nil && info.Mode().IsRegular() {
		return Found{ID: id, Job: jobOfID(id), Record: path}, true
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		if filepath.Base(path) == dataFile {
			return At(filepath.Dir(path))
		}
		id := strings.TrimSuffix(id, journalSuffix)
		return Found{ID: id, Job: jobOfID(id), Journal: path}, true
	}
	return Found{}, false
}

// Owner is whom the directory of a record belongs to, or where that is root whom the
// record does; root too where neither is there.
func Owner(dir string) (uid, gid uint32) {
	for _, path := range []string{dir, filepath.Join(dir, dataFile)} {
		if info, err := os.Stat(path); err == nil && uid == 0 {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				uid, gid = st.Uid, st.Gid
			}
		}
	}
	return uid, gid
}

// Merge adds to a run what only its journal tells: what came after the end of the
// record, where its storage failed first, or a commit waited for memory while the
// kernel killed. journal may be nil.
func (r *Run) Merge(journal *Run) {
	if journal == nil || journal.Meta.ID != r.Meta.ID {
		return
	}
	r.Sources = append(r.Sources, journal.Sources...)
	r.Meta.Journal = cmp.Or(r.Meta.Journal, journal.Meta.Journal)
	type key struct {
		name any
		at   int64
	}
	seen := map[key]bool{}
	for _, e := range r.Events {
		seen[key{e.Name, int64(e.At)}] = true
	}
	for _, e := range journal.Events {
		if !seen[key{e.Name, int64(e.At)}] {
			r.Events = append(r.Events, e)
		}
	}
	slices.SortStableFunc(r.Events, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	r.append(journal)
}

// append takes over the samples of a journal. [Run.Samples] yields those after
// the last of the record.
func (r *Run) append(journal *Run) {
	limits := map[limitKey]int{}
	key := func(l *event.Limit) limitKey {
		return limitKey{l.Name, l.Scope, l.Accounting, l.Level, ""}
	}
	for i := range r.Limits {
		limits[key(&r.Limits[i])] = i
	}
	for s := range journal.Samples() {
		c := s.clone()
		for i := range c.Limits {
			l := &journal.Limits[c.Limits[i].Limit]
			at, ok := limits[key(l)]
			if !ok {
				at = len(r.Limits)
				limits[key(l)] = at
				r.Limits = append(r.Limits, *l)
			}
			c.Limits[i].Limit = at
		}
		r.plain = append(r.plain, c)
	}
}
