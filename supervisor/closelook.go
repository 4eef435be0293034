package supervisor

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/rss/shm"
	"github.com/rsswarden/rsswarden/supervisor/diagnosis"
)

// closeReader reads on the side what a diagnosis wants beside the samples:
// smaps_rollup, smaps, the segments in /dev/shm. The kernel holds mmap_lock of
// the process for the first, and all of them are dear: they may take closeShare
// of a core, and what would hold up a process for long is not read.
type closeReader struct {
	asks  chan closeAsk
	reads chan closeRead
	busy  bool
	free  time.Duration // when the cost of the readings so far is paid
}

// closeAsk is one reading that is wanted.
type closeAsk struct {
	want     diagnosis.Want
	now      time.Duration
	all      []int // the tree
	trainers []int
}

// closeRead is what it brought: one of them is set, or none where it could not be
// read.
type closeRead struct {
	parts *diagnosis.Parts
	files *diagnosis.Files
	shm   *diagnosis.Shm
	cost  time.Duration
}

// closeShare is the part of a core for such readings.
const closeShare = 0.002

func newCloseReader(proc string) *closeReader {
	r := &closeReader{asks: make(chan closeAsk, 1), reads: make(chan closeRead, 1)}
	go func() {
		tree := proctree.New(proc)
		for ask := range r.asks {
			r.reads <- ask.read(tree, proc)
		}
	}()
	return r
}

// take puts what was read into the look, if anything was since.
func (r *closeReader) take(now time.Duration, into *diagnosis.Look) {
	select {
	case got := <-r.reads:
		r.busy = false
		r.free = now + time.Duration(float64(got.cost)/closeShare)
		if got.parts != nil {
			into.Parts = append(into.Parts, *got.parts)
		}
		if got.files != nil {
			into.Files = append(into.Files, *got.files)
		}
		if got.shm != nil {
			into.Shm = append(into.Shm, *got.shm)
		}
	default:
	}
}

// ask asks for the first of these that may be read now.
func (r *closeReader) ask(now time.Duration, wants []diagnosis.Want, s *rss.Sample) {
	if r.busy || now < r.free {
		return
	}
	i := slices.IndexFunc(wants, func(w diagnosis.Want) bool {
		p := s.Find(w.ID.PID)
		if p == nil || p.ID != w.ID || p.State == 'D' || p.State == 'Z' {
			return false
		}
		return w.Reading != diagnosis.WantParts || !proctree.Lengthy(p.RSS)
	})
	if i < 0 {
		return
	}
	ask := closeAsk{want: wants[i], now: now}
	if ask.want.Reading == diagnosis.WantShm {
		for i := range s.Procs {
			p := &s.Procs[i]
			ask.all = append(ask.all, p.ID.PID)
			if p.Role == rss.RoleTrainer {
				ask.trainers = append(ask.trainers, p.ID.PID)
			}
		}
	}
	r.asks <- ask // there is room: none is under way
	r.busy = true
}

func (a *closeAsk) read(tree *proctree.Reader, proc string) (r closeRead) {
	switch a.want.Reading {
	case diagnosis.WantParts:
		p, err := tree.Parts(a.want.ID)
		r.cost, p.At = p.Cost, a.now
		if err == nil {
			r.parts = &diagnosis.Parts{ID: a.want.ID, Parts: p}
		}
	case diagnosis.WantFiles:
		m, err := tree.MappedFiles(a.want.ID)
		r.cost = m.Cost
		if err == nil {
			r.files = filesOf(a.want.ID, a.now, &m)
		}
	case diagnosis.WantShm:
		r.shm, r.cost = a.segments(proc)
	}
	return r
}

func filesOf(id rss.ProcID, at time.Duration, m *proctree.MappedFiles) *diagnosis.Files {
	out := &diagnosis.Files{ID: id, At: at}
	for _, f := range m.Largest {
		out.Files = append(out.Files, diagnosis.File{Path: f.Path, Kind: string(f.Kind), Shared: f.Shared, RSS: f.RSS})
	}
	for k, v := range m.By {
		out.Sums = append(out.Sums, diagnosis.File{Kind: string(k.Kind), Shared: k.Shared, RSS: v.RSS})
	}
	return out
}

// segments reads how full a /dev/shm is, and what of the tree's is in it.
func (a *closeAsk) segments(proc string) (*diagnosis.Shm, time.Duration) {
	space, err := shm.Usage(proc, a.want.ID.PID)
	if err != nil {
		return nil, 0
	}
	out := &diagnosis.Shm{ID: a.want.ID, At: a.now, Used: space.Used, Size: space.Size}
	held, err := shm.Segments(proc, a.all, 0)
	if err != nil {
		return out, held.Cost
	}
	out.Read = true
	for i := range held.Segments {
		s := &held.Segments[i]
		if s.Kind != shm.Torch || s.Dev != space.Dev {
			continue
		}
		out.Segments++
		out.Torch += s.Size
		if !s.Deleted {
			out.Visible++
		}
		if slices.ContainsFunc(s.Holders, func(pid int) bool { return slices.Contains(a.trainers, pid) }) {
			out.Trainer += s.Size
		}
	}
	return out, held.Cost
}
