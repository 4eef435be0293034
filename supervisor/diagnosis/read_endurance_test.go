//go:build endurance

package diagnosis_test

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
)

// eyes reads for a State what the watcher reads.
type eyes struct {
	reader  *proctree.Reader
	counter *proctree.Counter
	began   time.Time
	counted time.Duration
}

func newEyes() *eyes {
	return &eyes{reader: proctree.New("/proc"), counter: proctree.NewCounter("/proc"), began: time.Now()}
}

func (e *eyes) close() {
	e.reader.Close()
	e.counter.Close()
}

// look reads the tree of a process, and what is wanted.
func (e *eyes) look(root int, wants []diagnosis.Want) *diagnosis.Look {
	l := &diagnosis.Look{At: time.Since(e.began)}
	l.Procs, _, _ = e.reader.Tree(rss.ProcID{PID: root})
	diagnosis.Guess(l.Procs)
	if l.At-e.counted > time.Second {
		e.counted = l.At
		for i := range l.Procs {
			id := l.Procs[i].ID
			maps, _ := e.counter.Maps(id)
			fds, _ := e.counter.Descriptors(id)
			l.Counts = append(l.Counts, diagnosis.Count{ID: id, Maps: maps.N, FDs: fds.N, MaxMaps: 65530, MaxFDs: 65536})
		}
	}
	for _, w := range wants {
		switch w.Reading {
		case diagnosis.WantParts:
			if p, err := e.reader.Parts(w.ID); err == nil {
				p.At = l.At
				l.Parts = append(l.Parts, diagnosis.Parts{ID: w.ID, Parts: p})
			}
		case diagnosis.WantFiles:
			if f, err := e.files(w.ID, l.At); err == nil {
				l.Files = append(l.Files, f)
			}
		case diagnosis.WantSpace, diagnosis.WantShm:
			if m, err := space(w.ID, l); err == nil {
				l.Shm = append(l.Shm, m)
			}
		}
	}
	return l
}

// files turns what proctree tells into what a State takes.
func (e *eyes) files(id rss.ProcID, at time.Duration) (diagnosis.Files, error) {
	out := diagnosis.Files{ID: id, At: at}
	m, err := e.reader.MappedFiles(id)
	for _, f := range m.Largest {
		out.Files = append(out.Files, diagnosis.File{Path: f.Path, Kind: string(f.Kind), Shared: f.Shared, RSS: f.RSS})
	}
	for k, v := range m.By {
		out.Sums = append(out.Sums, diagnosis.File{Kind: string(k.Kind), Shared: k.Shared, RSS: v.RSS})
	}
	return out, err
}

// space reads how full /dev/shm is, and what of the tree's segments is in it.
func space(id rss.ProcID, l *diagnosis.Look) (diagnosis.Shm, error) {
	u, err := shm.Usage("/proc", id.PID)
	if err != nil {
		return diagnosis.Shm{}, err
	}
	out := diagnosis.Shm{ID: id, At: l.At, Used: u.Used, Size: u.Size, Read: true}
	var pids, trainers []int
	for i := range l.Procs {
		pids = append(pids, l.Procs[i].ID.PID)
		if l.Procs[i].Role == rss.RoleTrainer {
			trainers = append(trainers, l.Procs[i].ID.PID)
		}
	}
	held, err := shm.Segments("/proc", pids, 0)
	for _, s := range held.Segments {
		if s.Kind != shm.Torch || s.Dev != u.Dev {
			continue
		}
		out.Segments++
		out.Torch += s.Size
		if !s.Deleted {
			out.Visible++
		}
		if slices.ContainsFunc(s.Holders, func(pid int) bool { return slices.Contains(trainers, pid) }) {
			out.Trainer += s.Size
		}
	}
	return out, err
}
