package main

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// trimmed is a process, and what came of it.
type trimmed struct {
	id       rss.ProcID
	comm     string
	planned  bool      // it was not refused then
	mapped   rss.Bytes // resident in what may be trimmed, when that was planned
	mappings []trim.Mapping

	before, after *proctree.Resident // nil where nothing was tried
	pieces        int                // that were trimmed
	changed       int                // that were mapped otherwise when their turn came
	stop          time.Duration      // the longest

	refused trim.Refusal // why nothing, or nothing more
	detail  string
	waited  time.Duration // for a better moment
}

// freed is what left the process's page tables, measured. What it touched again
// meanwhile is back in them.
func (s *trimmed) freed() rss.Bytes {
	if s.before == nil || s.after == nil {
		return 0
	}
	return (s.before.File + s.before.Shmem).Sub(s.after.File + s.after.Shmem)
}

// trimmer trims one process after the other.
type trimmer struct {
	pause   *interlude
	tracer  *trim.Tracer // nil until there is something to trim
	pace    trim.Pace
	drops   bool
	files   []mappedFile // that were trimmed
	dropped []droppedFile
}

type mappedFile struct {
	pid int // one that maps it
	trim.Mapping
}

type droppedFile struct {
	mappedFile
	trim.Dropped
	err error
}

// How long a process is waited for that was asked at a bad moment, in all, and
// how often it is asked again.
const (
	trimPatience = time.Second
	trimRetry    = 10 * time.Millisecond
)

// again says whether what was refused is worth another try, and waits for it.
func (t *trimmer) again(s *trimmed) bool {
	if !s.refused.Passing() || s.refused == trim.Stopped || s.refused == trim.Changed || s.waited >= trimPatience {
		return false
	}
	s.waited += trimRetry
	return t.pause.wait(trimRetry)
}

// plan reads what of a process may be trimmed, or why nothing may.
func (t *trimmer) plan(s *trimmed) {
	if i, err := proctree.Identify("/proc", s.id.PID); err == nil {
		s.comm = i.Comm
	}
	for {
		// The error is what the detail says.
		target, _ := trim.Plan(trim.CheckOptions{Proc: "/proc", ID: s.id, Ours: isRsswarden})
		s.refused, s.detail, s.mappings = target.Refusal, target.Detail, target.Mappings
		if !t.again(s) {
			break
		}
	}
	s.planned = s.refused == trim.None
	for _, m := range s.mappings {
		s.mapped += m.Resident
	}
}

// trim trims those that were planned, then drops: a page that any of them maps
// would stay.
func (t *trimmer) trim(all []*trimmed) {
	t.tracer = trim.NewTracer()
	defer t.tracer.Close()
	for _, s := range all {
		if s.refused == trim.None && len(s.mappings) > 0 && t.pause.told() == 0 {
			t.process(s)
		}
	}
	for _, f := range t.files {
		if !t.drops || t.pause.told() != 0 {
			break
		}
		d, err := trim.Drop("/proc", f.pid, f.Path, f.Dev, f.Inode)
		t.dropped = append(t.dropped, droppedFile{f, d, err})
	}
}

func (t *trimmer) process(s *trimmed) {
	before, err := proctree.ResidentOf("/proc", s.id.PID)
	if err != nil {
		s.failed(err)
		return
	}
	s.before = &before
	for _, m := range s.mappings {
		pieces := s.pieces
		more := t.mapping(s, m)
		if s.pieces > pieces && !slices.ContainsFunc(t.files, func(f mappedFile) bool { return f.Dev == m.Dev && f.Inode == m.Inode }) {
			t.files = append(t.files, mappedFile{s.id.PID, m})
		}
		if !more {
			break
		}
	}
	if after, err := proctree.ResidentOf("/proc", s.id.PID); err == nil {
		s.after = &after
	}
}

// mapping trims one mapping, and says whether the next may be tried.
func (t *trimmer) mapping(s *trimmed, m trim.Mapping) bool {
	pieces, err := trim.Pieces("/proc", s.id, m)
	if err != nil {
		s.failed(err)
		return false
	}
	for len(pieces) > 0 {
		p, n := t.pace.Take(pieces)
		pieces = pieces[n:]
		stop, done := t.piece(s, p)
		if !done {
			return false
		}
		// Who has much to give back runs half of the time, at the least.
		if !t.pause.wait(stop) {
			return false
		}
	}
	return true
}

// piece trims a piece, again where the moment was bad, and says whether the next
// may be tried.
func (t *trimmer) piece(s *trimmed, p trim.Sized) (stop time.Duration, more bool) {
	for {
		var a trim.Answer
		if !t.pause.during(func() { a = t.tracer.Do(p.Piece) }) {
			return 0, false
		}
		s.stop = max(s.stop, a.Stop)
		switch a.Refusal {
		case trim.None:
			t.pace.Add(p, a.Dropping)
			s.refused = trim.None
			s.pieces++
			return a.Stop, true
		case trim.Changed:
			s.refused = trim.None
			s.changed++
			return a.Stop, true
		}
		if s.refused, s.detail = a.Refusal, ""; !t.again(s) {
			return a.Stop, false
		}
	}
}

// failed is an error on the way.
func (s *trimmed) failed(err error) {
	s.refused, s.detail = trim.Failed, err.Error()
	if proctree.Vanished(err) {
		s.refused, s.detail = trim.Vanished, ""
	}
}
