package diagnosis

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// share is what the mapped files of one process say about all of its role.
type share struct {
	pid  int
	data float64 // which part of the growth of RssFile is files of data
	// all is what files of data have, most is the largest of them, private and arrow are the
	// parts of them that are mapped privately, and named as Arrow's.
	all            rss.Bytes
	most           rss.MappedFile
	private, arrow float64
	// named and batches are what of the shared memory is no file, and batches
	// that workers sent.
	unnamed, batches rss.Bytes
}

// mappedFiles is what was read of mapped files.
type mappedFiles struct{ shares map[rss.Role]*share }

func (f *mappedFiles) take(s *State, read *Files) {
	t := s.known[read.ID]
	if t == nil || t.series.n == 0 {
		return
	}
	h := share{pid: read.ID.PID}
	var data, private, arrows, shm rss.Bytes
	for _, m := range read.Sums {
		switch m.Kind {
		case rss.FileLibrary, rss.FileDevice:
		case rss.FileShm:
			shm += m.RSS
		default:
			data += m.RSS
			if !m.Shared {
				private += m.RSS
				if m.Kind == rss.FileArrow {
					arrows += m.RSS
				}
			}
		}
	}
	for _, m := range read.Largest {
		switch {
		case m.Kind == rss.FileLibrary, m.Kind == rss.FileDevice:
		case m.Kind != rss.FileShm:
			if m.RSS > h.most.RSS {
				h.most = m
			}
		case unnamed(m.Path):
			h.unnamed += m.RSS
		case batch(m.Path):
			h.batches += m.RSS
		}
	}
	// What is not listed is taken to be as what is.
	if named := h.unnamed + h.batches; named > 0 && named < shm {
		h.unnamed = shm.Scale(h.unnamed.Of(named))
		h.batches = shm - h.unnamed
	}
	h.all = data
	if gain := s.filesGain(t); gain > 0 {
		h.data = min(1, data.Of(gain))
	}
	h.private, h.arrow = private.Of(data), arrows.Of(data)
	t.filesAt, t.filesHad, t.filesRead = read.At, t.series.last.v[file]+t.series.last.v[shmem], true
	// A young process tells less than an old one did.
	if old := f.shares[t.role]; old == nil || data >= old.all || old.pid == h.pid {
		f.shares[t.role] = &h
	}
}

// filesGain is what a process has of files beyond what it began its work with. A
// worker has them all: a fork does not pass on what its trainer had mapped.
func (s *State) filesGain(t *track) rss.Bytes {
	switch {
	case t.role.IsWorker():
		return t.series.last.v[file].Sub(t.series.points[0].v[file])
	case t.based:
		return t.series.last.v[file].Sub(t.base[file])
	}
	return 0
}

const (
	// mostly is which part of a growth files of data must be to explain it.
	mostly = 0.5
	// warm is how long a worker must be there before its mapped pages are laid
	// to data where their files were not read.
	warm = 20 * time.Second
)

// judge finds files that are read through a mapping.
func (f *mappedFiles) judge(s *State, role rss.Role) {
	h := f.shares[role]
	g, dropped := group{}, f.dropped(s, role)
	unknown := h != nil && h.data < mostly || h == nil && role == rss.RoleTrainer // libraries, or not known
	pss, whole := rss.Bytes(0), rss.Bytes(0)
	for _, t := range s.tracks {
		if t.role != role || unknown {
			continue
		}
		gain, over := s.filesGain(t), t.series.last.at-t.since
		if h != nil {
			gain = gain.Scale(h.data)
		} else if over < settle+warm {
			continue
		} else {
			gain, over = s.lasting(t, file), over-settle
		}
		if gain < slight {
			continue
		}
		g.add(t, gain, over)
		pss, whole = pss+t.pss.PSS, whole+t.pss.RSS
	}
	if max(g.sum, dropped.sum) < s.matters() {
		return
	}
	d := event.Diagnosis{Finding: event.FindingMapped, Confidence: event.Possible, Role: role}
	if g.sum >= dropped.sum {
		d.PID, d.Bytes, d.Procs, d.Rate = g.most.id.PID, g.sum, g.n, g.bytesPerSecond()
		d.Evidence = []string{fmt.Sprintf("RssFile of %s grew by %v in %s, %v of it in process %d (status of %s)",
			text.Count(g.n, string(role)), g.sum, text.About(g.over.Seconds()), g.top, g.most.id.PID, whose(&g))}
	} else {
		d.PID, d.Bytes, d.Procs = dropped.most.id.PID, dropped.sum, dropped.n
		d.Evidence = []string{fmt.Sprintf("%s gave back up to %v each of mapped files when they were trimmed, %v together (reported by the trimmer)",
			text.Count(dropped.n, string(role)), dropped.top, dropped.sum)}
	}
	if dropped.sum >= s.matters() {
		d.Confidence = event.Certain // a trim drops pages of such files and no others
	}
	if pss > 0 && g.n > 1 && pss < whole.Scale(0.7) {
		if d.Confidence == event.Possible {
			d.Confidence = event.Likely
		}
		d.Evidence = append(d.Evidence, fmt.Sprintf("their PSS is %v of %v RSS: the pages are the same ones (smaps_rollup)", pss, whole))
	}
	private := false
	if h != nil && !unknown {
		d.Confidence = event.Certain
		private = h.private >= mostly
		how := "shared"
		if private {
			how = "privately"
			if h.arrow >= mostly {
				d.Finding = event.FindingArrow
			}
		}
		largest := ""
		if h.most.RSS.Of(h.all) >= mostly {
			d.File = h.most.Path
		}
		if h.most.RSS < h.all {
			largest = fmt.Sprintf("%v of data files, the largest part ", h.all)
		}
		d.Evidence = append(d.Evidence, fmt.Sprintf("process %d had %s%v of %s, mapped %s, when it was looked at (smaps)", h.pid, largest, h.most.RSS, h.most.Path, how))
	} else {
		d.Evidence = append(d.Evidence, "which files they are of was not read")
	}
	d.Advice = f.advice(s, role, private)
	s.tell(d)
}

// dropped is what trims gave back: within a budget there is more mapped between two looks
// than any of them sees.
func (f *mappedFiles) dropped(s *State, role rss.Role) (g group) {
	for t := range s.of(role) {
		if t.dropped >= slight {
			g.add(t, t.dropped, t.series.last.at-t.since)
		}
	}
	return g
}

func (f *mappedFiles) advice(s *State, role rss.Role, private bool) []string {
	var out []string
	if !s.countsMapped() {
		out = append(out, fmt.Sprintf("the limit here counts %s memory: these pages alone do not end the job", s.accounting))
	}
	switch {
	case private:
		out = append(out, "trim does not reach what is mapped privately, as pyarrow does; recycle (90%:recycle) does")
	default:
		out = append(out, "trim (85%:trim) gives these pages back and loses nothing: they stay in the page cache")
	}
	if role == rss.RoleWorker && private && s.loaders.persistent() { // trims do it without
		out = append(out, "persistent_workers=False: workers that end with the epoch give their pages back")
	}
	if role.IsWorker() {
		out = append(out, s.fewer(role, "each counts the same pages again"))
	}
	if private {
		out = append(out, "open the file with pyarrow.OSFile or datasets with keep_in_memory=True where one copy of it fits")
	}
	if s.countsMapped() && s.bySlurm {
		out = append(out, "ask the site for JobAcctGatherParams=UsePss, or for limits by cgroup alone (ConstrainRAMSpace=yes without OverMemoryKill): both count a page once")
	}
	return out
}
