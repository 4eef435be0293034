package workers

import (
	"math"
	"strconv"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// roles gives processes the roles that follow from LOCAL_RANK, or from RANK where no
// process has that, where loaders said nothing of them. It keeps roles over time: a
// trainer whose loaders live for one epoch has none between two.
type roles struct {
	places *environReader
	kept   map[rss.ProcID]rss.Role
	byRank bool // RANK shows which processes are ranks

	// leads are processes that started the other ranks and are rank 0 themselves, such as
	// Lightning's main process; open are those for which that is not certain yet.
	leads, open map[rss.ProcID]bool
}

// assign completes the roles of the sample. hello says which processes have the hook.
//
// A process inherits the environment of its parent, so trainer, workers and helpers of
// one rank all have its LOCAL_RANK. The trainer is the uppermost of them that said hello, or
// of all where none did. A process without a LOCAL_RANK that started it is the agent, or rank 0
// where no other is.
func (r *roles) assign(s *rss.Sample, hello func(rss.ProcID) bool) {
	r.places.update(s)
	r.byRank, r.open = true, nil
	some := false
	for i := range s.Procs {
		at, _ := r.places.of(&s.Procs[i])
		r.byRank = r.byRank && at.local < 0
		some = some || at.local >= 0 || at.rank >= 0
	}
	t := rankTree{r: r, s: s, hello: hello}
	if some {
		t.assign()
	}
	kept := make(map[rss.ProcID]rss.Role, len(r.kept))
	leads := make(map[rss.ProcID]bool, len(r.leads))
	for i := range s.Procs {
		p := &s.Procs[i]
		if role, ok := r.kept[p.ID]; ok && plain(p) {
			p.Role = role
		}
		// Without a hello a trainer is only the likeliest so far.
		if p.Role == rss.RoleAgent && !r.open[p.ID] || p.Role == rss.RoleTrainer && hello(p.ID) {
			kept[p.ID] = p.Role
		}
		if r.leads[p.ID] {
			leads[p.ID] = true
		}
	}
	r.kept, r.leads = kept, leads
}

func (r *roles) ranked(p *rss.Proc) bool {
	at, _ := r.places.of(p)
	return at.local >= 0 || r.byRank && at.rank >= 0
}

// begins says whether the process is the uppermost of a rank.
func (r *roles) begins(s *rss.Sample, p *rss.Proc) bool {
	up := s.Find(p.Parent)
	return r.ranked(p) && (up == nil || !r.ranked(up))
}

// plain says that nothing is known of the process's role yet.
func plain(p *rss.Proc) bool { return p.Role == rss.RoleOther || p.Role == "" }

// rankTree is a sample in which a process has a LOCAL_RANK.
type rankTree struct {
	r       *roles
	s       *rss.Sample
	hello   func(rss.ProcID) bool
	lineage view.Lineage
}

func (t *rankTree) assign() {
	t.lineage = t.s.Procs
	told := map[*rss.Proc]bool{} // uppermost of a rank, and whether its trainer is known
	for i := range t.s.Procs {
		p := &t.s.Procs[i]
		if !t.r.ranked(p) || p.Role.IsWorker() {
			continue
		}
		top, saidAbove := t.climb(p)
		if plain(p) && !saidAbove && t.hello(p.ID) {
			p.Role = rss.RoleTrainer
		}
		told[top] = told[top] || p.Role == rss.RoleTrainer
	}
	for top, known := range told {
		if !known && top.Orphan {
			continue // what a trainer has left behind
		}
		up := t.lineage.Find(top.Parent)
		if up != nil && !t.r.ranked(up) {
			if role := t.starter(up, told); plain(up) {
				up.Role = role
			}
			if at, _ := t.r.places.of(top); at.local == 0 && t.r.leads[up.ID] {
				continue // a helper of rank 0, which has said so in its own environment since
			}
		}
		if !known && plain(top) {
			top.Role = rss.RoleTrainer
		}
	}
}

// starter returns the role of who started ranks and has no LOCAL_RANK itself. It
// is an agent where one of them is local rank 0; a shell is, whatever they are.
func (t *rankTree) starter(up *rss.Proc, told map[*rss.Proc]bool) rss.Role {
	if t.r.kept[up.ID] == rss.RoleAgent || isStarter(up.Comm) || t.r.byRank {
		return rss.RoleAgent
	}
	// Agents start rank 0 first. What rank 0 starts itself later has its
	// LOCAL_RANK too, and is none of the ranks.
	var zero, others uint64 = math.MaxUint64, math.MaxUint64
	young, greeted := false, false
	for top, known := range told {
		if !t.lineage.Below(top.ID.PID, up.ID.PID) {
			continue
		}
		greeted = greeted || known
		if at, _ := t.r.places.of(top); at.local == 0 {
			zero = min(zero, top.ID.Start)
			continue
		}
		others = min(others, top.ID.Start)
		young = young || !t.r.places.late(top, t.s.Mono)
	}
	switch {
	case zero <= others && (others < math.MaxUint64 || !t.r.leads[up.ID]), greeted && !t.hello(up.ID):
		delete(t.r.leads, up.ID)
		return rss.RoleAgent
	case t.r.leads[up.ID]:
		return rss.RoleTrainer
	case young:
		// The environment of rank 0 may not have been read yet.
		if t.r.open == nil {
			t.r.open = map[rss.ProcID]bool{}
		}
		t.r.open[up.ID] = true
		return rss.RoleAgent
	}
	if t.r.leads == nil {
		t.r.leads = map[rss.ProcID]bool{}
	}
	t.r.leads[up.ID] = true
	return rss.RoleTrainer
}

// climb returns the uppermost process of p's rank, and whether one above p said
// hello.
func (t *rankTree) climb(p *rss.Proc) (top *rss.Proc, saidAbove bool) {
	for _, above := range t.lineage.Up(p.Parent) {
		if above == nil || !t.r.ranked(above) {
			break
		}
		p = above
		saidAbove = saidAbove || t.hello(p.ID)
	}
	return p, saidAbove
}

// ranks is what the environment that a process was started with says of its place among
// others, -1 where it does not.
type ranks struct {
	rank  int // RANK, of torchrun and the like
	local int // LOCAL_RANK
	task  int // SLURM_PROCID
}

var noRanks = ranks{-1, -1, -1}

// zero says whether the process is rank 0 of all, where that is known. RANK
// alone tells; without it, LOCAL_RANK and SLURM_PROCID must both be 0 or unset:
// several local ranks may have grown from one task.
func (r ranks) zero() (zero, known bool) {
	if r.rank >= 0 {
		return r.rank == 0, true
	}
	return r.local <= 0 && r.task <= 0, r.local >= 0 || r.task >= 0
}

const (
	rankVariable  = "RANK"
	localVariable = "LOCAL_RANK"
	taskVariable  = "SLURM_PROCID"
)

func isRank(name string) bool {
	return name == rankVariable || name == localVariable || name == taskVariable
}

// ranksOf takes what is no number for not there.
func ranksOf(vars map[string]string) ranks {
	number := func(name string) int {
		n, err := strconv.ParseUint(vars[name], 10, 31)
		if err != nil {
			return -1
		}
		return int(n)
	}
	return ranks{number(rankVariable), number(localVariable), number(taskVariable)}
}

// environReader reads the environment of processes. What may not be read says nothing of a
// rank.
type environReader struct{ *programReader[ranks] }

func newEnvironReader(proc string) *environReader {
	return &environReader{newProgramReader("rank", noRanks, func(of program) ranks {
		vars, _ := proctree.Environ(proc, of.id.PID, isRank)
		return ranksOf(vars)
	})}
}

// of returns what the environment of a process says; known is false where it was
// not read yet.
func (k *environReader) of(p *rss.Proc) (r ranks, known bool) {
	e := k.at(p)
	return e.fact, e.known
}

// late says that the environment of a process should have been read by now.
func (k *environReader) late(p *rss.Proc, now time.Duration) bool {
	e := k.seen[programOf(p)]
	return e != nil && now-e.since >= settled
}
