package workers

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
)

// settled is the age at which a process's command line and environment are believed for
// good: a child that was forked and has not called exec yet still shows its parent's.
const settled = 3 * time.Second

const mostAsked = 64

// program names one program of one process: execve(2) gives it another command line and
// environment and, nearly always, another name.
type program struct {
	id   rss.ProcID
	comm string
}

func programOf(p *rss.Proc) program { return program{p.ID, p.Comm} }

// programReader reads a fact of each program by a probe: for command line and environment the
// kernel takes a process's mmap_lock, and that can hang.
type programReader[A any] struct {
	*probe.Reader[program, programFact[A]]
	none A // of what was not read yet
	seen map[program]*programFact[A]
}

type programFact[A any] struct {
	of    program
	fact  A
	since time.Duration // when the program was first seen
	next  time.Duration // when it is to be read (again)
	asked bool          // an answer is on its way
	known bool          // it was read once
	final bool          // it is not to be read again
}

func newProgramReader[A any](point string, none A, read func(program) A) *programReader[A] {
	return &programReader[A]{none: none, seen: map[program]*programFact[A]{}, Reader: probe.NewQueue(nil, mostAsked, func(of program) programFact[A] {
		fault.Point(point)
		return programFact[A]{of: of, fact: read(of)}
	})}
}

// update takes in what was read and asks about those programs that are new, and again while
// they are young.
func (r *programReader[A]) update(s *rss.Sample) {
	now := s.Mono
	for a, ok := r.Take(); ok; a, ok = r.Take() {
		if e := r.seen[a.of]; e != nil {
			e.fact, e.known, e.asked = a.fact, true, false
		}
	}
	alive := make(map[program]*programFact[A], len(s.Procs))
	for i := range s.Procs {
		of := programOf(&s.Procs[i])
		e := r.seen[of]
		if e == nil {
			e = &programFact[A]{fact: r.none, since: now, next: now}
		}
		alive[of] = e
		if e.asked || e.final || now < e.next || !r.Ask(of, false) {
			continue // where the reader hangs it is asked again at the next look
		}
		e.asked = true
		// 0.1 s, 0.4 s, 1.3 s and 4 s after the first time.
		e.next, e.final = now+2*(now-e.since)+100*time.Millisecond, now-e.since >= settled
	}
	r.seen = alive
}

// at is what is known of a process.
func (r *programReader[A]) at(p *rss.Proc) programFact[A] {
	if e := r.seen[programOf(p)]; e != nil {
		return *e
	}
	return programFact[A]{fact: r.none}
}
