package supervisor

import "github.com/rsswarden/rsswarden/rss"

// roles gives processes the roles that follow from LOCAL_RANK, where loaders
// said nothing of them. It keeps roles over time: a trainer whose loaders live
// for one epoch has none between two.
type roles struct {
	places *ranker
	kept   map[rss.ProcID]rss.Role
}

// assign completes the roles of the sample. hello tells who has the hook.
//
// A process inherits the environment of who started it, so trainer, workers and
// helpers of one rank all have its LOCAL_RANK. The trainer is the uppermost of
// them that said hello, or, where none did, the uppermost of all. Who started
// that one without a LOCAL_RANK of its own is the agent.
func (r *roles) assign(s *rss.Sample, hello func(rss.ProcID) bool) {
	all := make([]*rss.Proc, len(s.Procs))
	for i := range s.Procs {
		all[i] = &s.Procs[i]
	}
	r.places.update(s.Mono, all)
	t := rankTree{r: r, s: s, hello: hello}
	for i := range s.Procs {
		if r.ranked(&s.Procs[i]) {
			t.assign()
			break
		}
	}
	kept := make(map[rss.ProcID]rss.Role, len(r.kept))
	for _, p := range all {
		if role, ok := r.kept[p.ID]; ok && plain(p) {
			p.Role = role
		}
		// Without a hello a trainer is only the likeliest so far.
		if p.Role == rss.RoleAgent || p.Role == rss.RoleTrainer && hello(p.ID) {
			kept[p.ID] = p.Role
		}
	}
	r.kept = kept
}

func (r *roles) ranked(p *rss.Proc) bool {
	at, _ := r.places.of(p)
	return at.local >= 0
}

// plain says that nothing is known of the process's role yet.
func plain(p *rss.Proc) bool { return p.Role == rss.RoleOther || p.Role == "" }

// rankTree is a sample in which somebody has a LOCAL_RANK.
type rankTree struct {
	r     *roles
	s     *rss.Sample
	hello func(rss.ProcID) bool
	byPID map[int]*rss.Proc
}

func (t *rankTree) assign() {
	t.byPID = make(map[int]*rss.Proc, len(t.s.Procs))
	for i := range t.s.Procs {
		t.byPID[t.s.Procs[i].ID.PID] = &t.s.Procs[i]
	}
	told := map[*rss.Proc]bool{} // uppermost of a rank, and whether its trainer is known
	for i := range t.s.Procs {
		p := &t.s.Procs[i]
		if !t.r.ranked(p) || p.Role == rss.RoleWorker {
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
		if !known && plain(top) {
			top.Role = rss.RoleTrainer
		}
		if agent := t.byPID[top.Parent]; agent != nil && plain(agent) && !t.r.ranked(agent) {
			agent.Role = rss.RoleAgent
		}
	}
}

// climb returns the uppermost process of p's rank, and whether one above p said
// hello.
func (t *rankTree) climb(p *rss.Proc) (top *rss.Proc, saidAbove bool) {
	for range t.s.Procs {
		above := t.byPID[p.Parent]
		if above == nil || above == p || !t.r.ranked(above) {
			break
		}
		p = above
		saidAbove = saidAbove || t.hello(p.ID)
	}
	return p, saidAbove
}
