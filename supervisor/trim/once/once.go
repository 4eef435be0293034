// Package once trims processes by ptrace, once: one after the other, in pieces between
// which they run and signals are obeyed.
package once

import (
	"cmp"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Target is a process and what came of trimming it.
type Target struct {
	ID       rss.ProcID
	Comm     string
	Planned  bool      // it was not refused at first
	Mapped   rss.Bytes // resident in what may be trimmed, when that was planned
	mappings []trim.Mapping

	Before, After *rss.Proc     // nil if nothing was tried
	Pieces        int           // trimmed
	Changed       int           // pieces that were mapped otherwise when their turn came
	Stop          time.Duration // the longest

	Refused trim.Refusal // why nothing, or nothing more
	Detail  string
	waited  time.Duration // for a better moment
}

// Freed is what left the process's page tables, less what it has touched again since.
func (s *Target) Freed() rss.Bytes {
	if s.Before == nil || s.After == nil {
		return 0
	}
	return (s.Before.File + s.Before.Shmem).Sub(s.After.File + s.After.Shmem)
}

// Options say how to trim.
type Options struct {
	Drop   bool // drop the files from the page cache too
	DryRun bool
	Ours   func(pid int) bool // the process is an rsswarden, which is not trimmed
	Ends   <-chan os.Signal
	DieBy  func(syscall.Signal)
}

// Result is its result.
type Result struct {
	Targets []*Target // what has most mapped first
	Dropped []DroppedFile
	// Signal is what ended it, 0 for none. One may still come when all is done.
	Signal func() syscall.Signal
}

// Trim trims each process that may be.
func Trim(ids []rss.ProcID, o Options) Result {
	t := &trimmer{Options: o, gate: newSignalGate(o.Ends, o.DieBy)}
	t.Signal = t.gate.signal
	for _, id := range ids {
		s := &Target{ID: id}
		// What has ended since a job was listed is left out.
		if t.plan(s); len(ids) == 1 || s.Refused != trim.Vanished {
			t.Targets = append(t.Targets, s)
		}
	}
	slices.SortStableFunc(t.Targets, func(a, b *Target) int { return cmp.Compare(b.Mapped, a.Mapped) })
	if !o.DryRun {
		t.trim()
	}
	return t.Result
}

type trimmer struct {
	Options
	Result
	gate    *signalGate
	planner trim.Planner
	tracer  *trim.Tracer
	pace    trim.Pace
	files   []mappedFile // trimmed
}

type mappedFile struct {
	pid int // one that maps it
	trim.Mapping
}

// DroppedFile is a file that was dropped from the page cache.
type DroppedFile struct {
	Path string
	trim.Dropped
	Err error
}

// How long a process is waited for that was met at a bad moment, in all, and the pause
// before each new try.
const (
	retryPatience = time.Second
	retryPause    = 10 * time.Millisecond
)

// again says whether what was refused is worth another try, and waits for it.
func (t *trimmer) again(s *Target) bool {
	if !s.Refused.Passing() || s.Refused == trim.Stopped || s.Refused == trim.Changed || s.waited >= retryPatience {
		return false
	}
	s.waited += retryPause
	return t.gate.wait(retryPause)
}

// plan reads what of a process may be trimmed, or why nothing may.
func (t *trimmer) plan(s *Target) {
	if i, err := proctree.Identify("/proc", s.ID.PID); err == nil {
		s.Comm = i.Comm
	}
	for {
		target := t.planner.Plan(trim.CheckOptions{Proc: "/proc", ID: s.ID, Ours: t.Ours})
		s.Refused, s.Detail, s.mappings = target.Refusal, target.Detail, target.Mappings
		if !t.again(s) {
			break
		}
	}
	s.Planned = s.Refused == trim.None
	for _, m := range s.mappings {
		s.Mapped += m.Resident
	}
}

// trim trims those that were planned, then drops: a page that any of them maps
// would stay.
func (t *trimmer) trim() {
	t.tracer = trim.NewTracer()
	defer t.tracer.Close()
	for _, s := range t.Targets {
		if s.Refused == trim.None && len(s.mappings) > 0 && t.gate.signal() == 0 {
			t.process(s)
		}
	}
	for _, f := range t.files {
		if !t.Drop || t.gate.signal() != 0 {
			break
		}
		d, err := trim.Drop("/proc", f.pid, f.Path, f.Dev, f.Inode)
		t.Dropped = append(t.Dropped, DroppedFile{f.Path, d, err})
	}
}

func (t *trimmer) process(s *Target) {
	before, err := proctree.ProcOf("/proc", s.ID.PID)
	if err != nil {
		if s.Refused, s.Detail = trim.Failed, err.Error(); proctree.Vanished(err) {
			s.Refused, s.Detail = trim.Vanished, ""
		}
		return
	}
	s.Before = &before
	for _, m := range s.mappings {
		pieces := s.Pieces
		more := t.mapping(s, m)
		if s.Pieces > pieces && !slices.ContainsFunc(t.files, func(f mappedFile) bool { return f.Dev == m.Dev && f.Inode == m.Inode }) {
			t.files = append(t.files, mappedFile{s.ID.PID, m})
		}
		if !more {
			break
		}
	}
	if after, err := proctree.ProcOf("/proc", s.ID.PID); err == nil {
		s.After = &after
	}
}

// mapping trims one mapping, and says whether the next may be tried.
func (t *trimmer) mapping(s *Target, m trim.Mapping) bool {
	for pieces := m.Pieces; len(pieces) > 0; {
		p, n := t.pace.Take(pieces)
		pieces = pieces[n:]
		stop, done := t.piece(s, p)
		if !done {
			return false
		}
		// A process with much to give back runs at least half of the time.
		if !t.gate.wait(stop) {
			return false
		}
	}
	return true
}

// piece trims a piece, again where the moment was bad, and says whether the next
// may be tried.
func (t *trimmer) piece(s *Target, p trim.Piece) (stop time.Duration, more bool) {
	for {
		var a trim.Answer
		if !t.gate.during(func() { a = t.tracer.Do(p) }) {
			return 0, false
		}
		s.Stop = max(s.Stop, a.Stop)
		switch a.Refusal {
		case trim.None:
			t.pace.Add(p, a.Dropping)
			s.Refused = trim.None
			s.Pieces++
			return a.Stop, true
		case trim.Changed:
			s.Refused = trim.None
			s.Changed++
			return a.Stop, true
		}
		if s.Refused, s.Detail = a.Refusal, ""; !t.again(s) {
			return a.Stop, false
		}
	}
}
