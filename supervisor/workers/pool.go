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
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// pendingRespawn is a worker of a pool that was signalled, until another has its place.
type pendingRespawn struct {
	worker rss.ProcID
	size   int           // how many the pool had then
	within time.Duration // by when another is expected, once it has ended
	gone   time.Duration // since when the worker has ended, 0 while it lives
	lasts  bool          // no other took its place in time: the pool does not respawn
}

// Pools are the pools of workers that are no loader's: which processes of the tree are their
// workers follows from --worker-match and the command lines, as of the last sample.
type Pools struct {
	*programReader[commandLine] // nil where no pools are looked for

	last     *rss.Sample
	programs map[rss.ProcID]bool // the command, a task, or what a starter of those started
	owners   map[rss.ProcID]bool // had a child that matches: fork keeps the command line
	doubts   map[rss.ProcID]bool // they or their parents may be owners: a moment will tell
	pending  map[rss.ProcID]*pendingRespawn
}

// Match takes processes whose command lines match the pattern for workers of pools. It reads
// them under proc.
func (l *Pools) Match(pattern, proc string) error {
	if pattern == "" {
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err == nil {
		l.programReader = newCommandLines(re, proc)
	}
	return err
}

// Workers returns the workers of all pools of which that is certain.
func (l *Pools) Workers() []rss.ProcID {
	sure, _ := l.split()
	return sure
}

// Signalled notes that a worker of a pool was signalled and is to be replaced within a time.
func (l *Pools) Signalled(owner, worker rss.ProcID, size int, within time.Duration) {
	if l.pending == nil {
		l.pending = map[rss.ProcID]*pendingRespawn{}
	}
	l.pending[owner] = &pendingRespawn{worker: worker, size: size, within: within}
}

// filled says that the pool of a worker has as many as it had before one was signalled.
func (l *Pools) filled(p *rss.Proc) bool {
	v := l.pending[l.Owner(p)]
	return v == nil || !v.lasts && v.gone == 0
}

// respawns looks whether workers that were signalled have been replaced, and returns the
// owners that did not do it in time: the next signal would empty such a pool further.
func (l *Pools) respawns() (failed []rss.ProcID) {
	s := l.last
	for owner, v := range l.pending {
		if p := s.Find(owner.PID); p == nil || p.ID != owner {
			delete(l.pending, owner)
			continue
		}
		p := s.Find(v.worker.PID)
		switch {
		case v.lasts || p != nil && p.ID == v.worker && living(p):
		case len(l.Members(owner)) >= v.size:
			delete(l.pending, owner)
		case v.gone == 0:
			v.gone = max(s.Mono, 1)
		case s.Mono-v.gone >= v.within:
			v.lasts = true
			failed = append(failed, owner)
		}
	}
	return failed
}

type commandLine struct {
	matches bool
	starter bool // it is one of starters: a script bears its own name
}

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

func newCommandLines(re *regexp.Regexp, proc string) *programReader[commandLine] {
	return newProgramReader("match", commandLine{}, func(of program) commandLine {
		b, err := procfile.Read(fmt.Sprintf("%s/%d/cmdline", proc, of.id.PID), procfile.Cmdline)
		first, _, _ := bytes.Cut(b, []byte{0})
		line := bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0}, []byte{' '})
		return commandLine{matches: err == nil && re.Match(line), starter: starters[strings.TrimPrefix(path.Base(string(first)), "-")]}
	})
}

// update takes in what was read, asks about processes that are new, and judges
// who is a worker. tops are the command and, of a job, its tasks.
func (l *Pools) update(s *rss.Sample, tops []rss.ProcID) {
	if l.last = s; l.programReader != nil {
		l.programReader.update(s)
		l.judge(tops)
	}
}

// judge says of those that match who must not be signalled: the programs that the
// user started, and the owners of pools, which match as their workers do.
func (l *Pools) judge(tops []rss.ProcID) {
	s := l.last
	owned := l.owners
	l.programs, l.owners, l.doubts = map[rss.ProcID]bool{}, map[rss.ProcID]bool{}, map[rss.ProcID]bool{}
	children := map[int][]*rss.Proc{}
	for i := range s.Procs {
		if p := &s.Procs[i]; living(p) {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	// What a script runs is the job itself, whether it waits for it or runs
	// something beside it: not only the command is the user's.
	var markProgram func(*rss.Proc)
	markProgram = func(p *rss.Proc) {
		if p == nil || l.programs[p.ID] {
			return
		}
		l.programs[p.ID] = true
		if l.starts(p) {
			for _, c := range children[p.ID.PID] {
				markProgram(c)
			}
		}
	}
	for _, id := range tops {
		markProgram(s.Find(id.PID))
	}
	// A child may match briefly, between fork and exec: it does not make its parent an
	// owner, and which of the two is one stays open.
	for i := range s.Procs {
		p := &s.Procs[i]
		owner := owned[p.ID]
		if l.at(p).fact.matches && !l.programs[p.ID] {
			var matching []rss.ProcID
			for _, c := range children[p.ID.PID] {
				e := l.at(c)
				if e.fact.matches {
					matching = append(matching, c.ID)
					owner = owner || e.known && e.final && !e.asked // it will not be read again
				}
				if e.fact.matches || !e.known {
					l.doubts[p.ID] = true
				}
			}
			for _, id := range matching {
				l.doubts[id] = l.doubts[id] || !owner
			}
		}
		if owner {
			l.owners[p.ID] = true
		}
	}
}

// starts says that a process is a starter, by its name or its command line.
func (l *Pools) starts(p *rss.Proc) bool { return isStarter(p.Comm) || l.at(p).fact.starter }

// candidate says whether a process is, or may turn out to be, a worker: it matches, lives,
// and has a parent that could replace it.
func (l *Pools) candidate(p *rss.Proc) bool {
	return l.at(p).fact.matches && !l.programs[p.ID] && !l.owners[p.ID] && living(p) && l.last.Find(p.Parent) != nil
}

// split returns the workers of the sample. Those of which that is not certain
// yet are in doubt.
func (l *Pools) split() (sure, doubt []rss.ProcID) {
	if l.programReader == nil {
		return nil, nil
	}
	for i := range l.last.Procs {
		p := &l.last.Procs[i]
		switch {
		case !l.candidate(p):
		case l.doubts[p.ID]:
			doubt = append(doubt, p.ID)
		default:
			sure = append(sure, p.ID)
		}
	}
	return sure, doubt
}

// Owner returns the process that replaces the worker: its parent, or that one's where
// the parent is a shell around each worker.
func (l *Pools) Owner(p *rss.Proc) rss.ProcID {
	for _, up := range view.Lineage(l.last.Procs).Up(p.Parent) {
		if up == nil {
			break
		}
		p = up
		if l.programs[p.ID] || !l.starts(p) {
			break
		}
	}
	return p.ID
}

// Members returns the workers of one pool, also those in doubt: one that is missing counts.
func (l *Pools) Members(owner rss.ProcID) []rss.ProcID {
	var ids []rss.ProcID
	for i := range l.last.Procs {
		if p := &l.last.Procs[i]; l.candidate(p) && l.Owner(p) == owner {
			ids = append(ids, p.ID)
		}
	}
	return ids
}
