package workers

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/probe"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// settled is the age at which a process's command line and environment are believed for
// good: a child that was forked and has not called exec yet still shows its parent's.
const settled = 3 * time.Second

// mostAsked is how many processes may be in the queue to be read.
const mostAsked = 64

// poolMatcher tells which processes of the tree are workers of pools, by --worker-match.
// Reading /proc/PID/cmdline takes the process's mmap_lock and can hang for as long as
// another thread holds that, so a probe reads it. A nil poolMatcher matches nothing.
type poolMatcher struct {
	*probe.Reader[rss.ProcID, match]
	seen map[rss.ProcID]*match
}

type match struct {
	id      rss.ProcID
	comm    string // execve(2) nearly always changes it, and the command line with it
	matches bool
	starter bool          // it is one of starters by its command line: a script bears its own name
	since   time.Duration // when the process was first seen
	asked   bool          // an answer is on its way
	known   bool          // it was read once
	final   bool
	program bool // it is the command, a task, or what a starter of those started
	owner   bool // it has had a child that matches: fork keeps the command line
	doubt   bool // it or its parent may be the owner: a moment will tell
}

// settled says that what was read of the process will not be read again.
func (e *match) settled() bool { return e.known && e.final && !e.asked }

// starters run what the user wrote behind them, and what they run is no worker of
// theirs: shells, launchers, and the runtime and the init of Apptainer's containers.
var starters = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields("sh bash rbash dash ash busybox zsh ksh mksh csh tcsh fish slurm_script " +
		"timeout time sudo su tini dumb-init srun mpirun mpiexec orterun prterun rsswarden " +
		"starter starter-suid appinit sinit") {
		names[name] = true
	}
	return names
}()

// isStarter tells a starter by the name that the kernel has for it.
func isStarter(comm string) bool { return starters[comm] || strings.HasSuffix(comm, ".sh") }

func newPoolMatcher(re *regexp.Regexp, proc string) *poolMatcher {
	return &poolMatcher{seen: map[rss.ProcID]*match{}, Reader: probe.NewQueue(nil, mostAsked, func(id rss.ProcID) match {
		fault.Point("match")
		b, err := procfile.Read(fmt.Sprintf("%s/%d/cmdline", proc, id.PID), procfile.Cmdline)
		first, _, _ := bytes.Cut(b, []byte{0})
		line := bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0}, []byte{' '})
		return match{id: id, matches: err == nil && re.Match(line), starter: starters[strings.TrimPrefix(path.Base(string(first)), "-")]}
	})}
}

// update takes in what was read, asks about processes that are new, and judges
// who is a worker. tops are the command and, of a job, its tasks.
func (m *poolMatcher) update(s *rss.Sample, tops []rss.ProcID) {
	if m == nil {
		return
	}
	for a, ok := m.Take(); ok; a, ok = m.Take() {
		if e := m.seen[a.id]; e != nil {
			e.matches, e.starter, e.known, e.asked = a.matches, a.starter, true, false
		}
	}
	alive := make(map[rss.ProcID]*match, len(s.Procs))
	for i := range s.Procs {
		id, comm := s.Procs[i].ID, s.Procs[i].Comm
		e := m.seen[id]
		if e == nil {
			e = &match{id: id, comm: comm, since: s.Mono}
		}
		if e.comm != comm {
			e.comm, e.since, e.final = comm, s.Mono, false
		}
		alive[id] = e
		if e.asked || e.final {
			continue
		}
		old := s.Mono-e.since >= settled
		if m.Ask(id, false) { // else the reader hangs; ask again at the next look
			e.asked, e.final = true, old
		}
	}
	m.seen = alive
	m.judge(s, tops)
}

// judge says of those that match who must not be signalled: the programs that the
// user started, and the owners of pools, which match as their workers do.
func (m *poolMatcher) judge(s *rss.Sample, tops []rss.ProcID) {
	children := map[int][]*match{}
	for i := range s.Procs {
		p := &s.Procs[i]
		e := m.seen[p.ID]
		e.program, e.doubt = false, false
		if living(p) {
			children[p.Parent] = append(children[p.Parent], e)
		}
	}
	// What a script runs is the job itself, whether it waits for it or runs
	// something beside it: not only the command is the user's.
	var markProgram func(*match)
	markProgram = func(e *match) {
		if e == nil || e.program {
			return
		}
		e.program = true
		if e.starter || isStarter(e.comm) {
			for _, c := range children[e.id.PID] {
				markProgram(c)
			}
		}
	}
	for _, id := range tops {
		if p := s.Find(id.PID); p != nil {
			markProgram(m.seen[p.ID])
		}
	}
	// A child may match briefly, between fork and exec: it does not make its parent an
	// owner, and which of the two is one stays open.
	for i := range s.Procs {
		e := m.seen[s.Procs[i].ID]
		if !e.matches || e.program {
			continue
		}
		for _, c := range children[e.id.PID] {
			e.owner = e.owner || c.matches && c.settled()
			e.doubt = e.doubt || c.matches || !c.known
		}
		for _, c := range children[e.id.PID] {
			c.doubt = c.doubt || c.matches && !e.owner
		}
	}
}

// candidate says whether a process is, or may turn out to be, a worker: it matches, lives,
// and has a parent that could replace it.
func (m *poolMatcher) candidate(s *rss.Sample, p *rss.Proc) bool {
	e := m.seen[p.ID]
	return e != nil && e.matches && !e.program && !e.owner && living(p) && s.Find(p.Parent) != nil
}

// workers returns the workers of the sample. Those of which that is not certain
// yet are in doubt.
func (m *poolMatcher) workers(s *rss.Sample) (sure, doubt []rss.ProcID) {
	if m == nil {
		return nil, nil
	}
	for i := range s.Procs {
		p := &s.Procs[i]
		switch {
		case !m.candidate(s, p):
		case m.seen[p.ID].doubt:
			doubt = append(doubt, p.ID)
		default:
			sure = append(sure, p.ID)
		}
	}
	return sure, doubt
}

// ownerOf returns the process that replaces the worker: its parent, or that one's where
// the parent is a shell around each worker.
func (m *poolMatcher) ownerOf(s *rss.Sample, p *rss.Proc) rss.ProcID {
	for _, up := range view.Lineage(s.Procs).Up(p.Parent) {
		if up == nil {
			break
		}
		p = up
		if e := m.seen[p.ID]; e == nil || e.program || !e.starter && !isStarter(p.Comm) {
			break
		}
	}
	return p.ID
}

// members returns the workers of one pool, also those in doubt: one that is missing counts.
func (m *poolMatcher) members(s *rss.Sample, owner rss.ProcID) []rss.ProcID {
	var ids []rss.ProcID
	for i := range s.Procs {
		if p := &s.Procs[i]; m.candidate(s, p) && m.ownerOf(s, p) == owner {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
