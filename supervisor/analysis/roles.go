package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// treeScan is what the processes of the tree had, by role and together. What a limit
// counts beside the tree is in the limits.
type treeScan struct {
	run                     *record.Run
	peaks                   [accountings]peakSeen
	roles                   []*Group
	Workers, Trainers, Tree *Group     // Workers are those of loaders and of pools
	Procs                   []ProcSeen // by index in run.Procs
	own                     course     // summed RSS without file pages of workers
}

// Group is what processes of one role had, or all of the tree, over the run.
type Group struct {
	now  Sum // in the sample at hand
	seen bool
	most Role // at their highest
	// What they had together, each by itself.
	Anon, File, Shmem, RSS course
}

// Most is how many there were at most at a time.
func (g *Group) Most() int { return g.most.Count }

// Sum is what several processes have in one sample.
type Sum struct {
	Count                       int
	anon, file, shmem, pss, rss rss.Bytes
	largest                     rss.Bytes // of one of them
	grown                       rss.Bytes // RssAnon beyond what each had when it was first seen
	noPSS                       bool      // of one of them PSS is not known
}

// ProcSeen is one process.
type ProcSeen struct {
	group       *Group // nil of one that is not of the tree
	Seen        bool
	first, last time.Duration
	Born        rss.Bytes // RssAnon when it was first seen
	Trainer     rss.Bytes // … and its parent's, 0 where that is no trainer
}

func newTreeScan(r *record.Run) treeScan {
	k := treeScan{run: r, Procs: make([]ProcSeen, len(r.Procs)), Tree: &Group{}, Workers: &Group{}}
	for _, role := range roleOrder {
		k.role(role)
	}
	k.Trainers = k.role(rss.RoleTrainer)
	last := lastEntries(r)
	for i := range r.Procs {
		if p := &r.Procs[i]; !p.Extra && !p.Ours {
			k.Procs[i].group = k.role(r.Procs[last[i]].Role)
		}
	}
	return k
}

// lastEntries is by entry of r.Procs the last entry of the same process: it has a new one when
// its role is known, or with another program.
func lastEntries(r *record.Run) []int {
	last, byID := make([]int, len(r.Procs)), map[rss.ProcID]int{}
	for i := len(r.Procs) - 1; i >= 0; i-- {
		last[i] = i
		if id := r.Procs[i].ID; id.PID == 0 {
			continue // of many
		} else if n, ok := byID[id]; ok {
			last[i] = n
		} else {
			byID[id] = i
		}
	}
	return last
}

// held is what each role has in the sample at hand of a limit that counts so, in summed RSS where
// that is not known.
func (k *treeScan) held(to []Held, key LimitKey) []Held {
	for _, g := range k.roles {
		if g.now.Count > 0 {
			counted, ok := g.now.Counted(key)
			switch {
			case !ok:
				counted = g.now.rss
			case key.Accounting == event.AccountingCgroup && !g.most.Role.IsWorker():
				counted = g.now.anon + g.now.shmem // what it began with is its own, not its trainer's
			}
			to = append(to, Held{g.most.Role, g.now.Count, counted})
		}
	}
	return to
}

// role finds what is known of a role, or begins it.
func (k *treeScan) role(r rss.Role) *Group {
	i := slices.IndexFunc(k.roles, func(g *Group) bool { return g.most.Role == r })
	if i < 0 {
		i = len(k.roles)
		k.roles = append(k.roles, &Group{most: Role{Role: r}})
	}
	return k.roles[i]
}

// PoolsOnly says that its workers were those of pools, none a loader's.
func (k *treeScan) PoolsOnly() bool {
	return k.role(rss.RolePoolWorker).seen && !k.role(rss.RoleWorker).seen
}

func (s *Sum) add(o *Sum) {
	s.Count += o.Count
	s.anon, s.file, s.shmem, s.pss, s.rss = s.anon+o.anon, s.file+o.file, s.shmem+o.shmem, s.pss+o.pss, s.rss+o.rss
	s.largest, s.grown, s.noPSS = max(s.largest, o.largest), s.grown+o.grown, s.noPSS || o.noPSS
}

func (s *Sum) parts() rss.Bytes { return s.anon + s.file + s.shmem }

// processes takes in the processes of a sample, or what a journal has in their place, and
// returns what one of them had most of.
func (k *treeScan) processes(s *record.Sample, ranks *RanksSeen) (maps, fds CountUse) {
	k.Tree.now, k.Workers.now = Sum{}, Sum{}
	for _, g := range k.roles {
		g.now = Sum{}
	}
	ranks.begin()
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc < 0 || u.Proc >= len(k.Procs) {
			continue
		}
		p, who, all := &k.Procs[u.Proc], &k.run.Procs[u.Proc], u.RSS()
		ranks.add(u, who)
		if p.group == nil {
			continue
		}
		if !p.Seen {
			p.Seen, p.first, p.Born = true, s.At, u.Anon
			if who.Role.IsWorker() {
				p.Trainer = k.trainer(s, who.Parent)
			}
		}
		p.last = s.At
		if v := uint64(u.Maps); v > maps.V {
			maps.V, maps.Proc = v, u.Proc
		}
		if v := uint64(u.FDs); v > fds.V {
			fds.V, fds.Proc = v, u.Proc
		}
		has := Sum{Count: 1, anon: u.Anon, file: u.File, shmem: u.Shmem, pss: u.PSS, rss: all, largest: all, grown: u.Anon.Sub(p.Born), noPSS: u.PSS == 0 && all > 0}
		p.group.now.add(&has)
		k.Tree.now.add(&has)
		if p.group.most.Role.IsWorker() {
			k.Workers.now.add(&has)
		}
	}
	ranks.end(s.At)
	for i := range s.Roles {
		r := &s.Roles[i]
		has := Sum{Count: r.Count, anon: r.Anon, file: r.File, shmem: r.Shmem, rss: r.RSS, noPSS: true}
		k.role(r.Role).now = has
		k.Tree.now.add(&has)
		if r.Role.IsWorker() {
			k.Workers.now.add(&has)
		}
	}
	if sum := &k.Tree.now; sum.Count > 0 || len(s.Roles) > 0 {
		k.peaks[byRSS].raise(sum.rss, s.At)
		if len(s.Roles) == 0 || sum.parts() > 0 {
			k.peaks[byNoShared].raise(sum.anon, s.At)
		}
		if !sum.noPSS {
			k.peaks[byPSS].raise(sum.pss, s.At)
		}
	}
	k.Tree.take(k.run, s.At)
	k.Workers.take(k.run, s.At)
	if k.Tree.now.Count > 0 {
		k.own.add(s.At, k.Tree.now.rss.Sub(k.workerFiles(event.AccountingRSS)))
	}
	for _, g := range k.roles {
		g.take(k.run, s.At)
	}
	return maps, fds
}

// take takes in what there is in the sample at hand.
func (g *Group) take(r *record.Run, at time.Duration) {
	n, m := &g.now, &g.most
	if n.Count == 0 {
		return
	}
	m.Count, m.PerProcess = max(m.Count, n.Count), max(m.PerProcess, n.largest)
	if n.rss > m.Peak || !g.seen {
		m.Run, m.Peak, m.At = r.Meta.ID, n.rss, r.Wall(at)
		m.Anon, m.File, m.Shmem = n.anon, n.file, n.shmem
	}
	g.seen = true
	g.Anon.add(at, n.anon)
	g.File.add(at, n.file)
	g.Shmem.add(at, n.shmem)
	g.RSS.add(at, n.parts())
}

// workerFiles is what of a limit's use is file pages of workers, in the sample at hand:
// of PSS as if all had the same pages.
func (k *treeScan) workerFiles(a event.Accounting) rss.Bytes {
	w := &k.Workers.now
	switch a {
	case event.AccountingRSS:
		return w.file
	case event.AccountingPSS:
		return w.file / rss.Bytes(max(w.Count, 1))
	}
	return 0
}

// trainer is the RssAnon of the trainer with that PID in a sample.
func (k *treeScan) trainer(s *record.Sample, pid int) rss.Bytes {
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc >= 0 && u.Proc < len(k.Procs) && k.run.Procs[u.Proc].ID.PID == pid && k.run.Procs[u.Proc].Role == rss.RoleTrainer {
			return u.Anon
		}
	}
	return 0
}

// peakSeen is the most of one accounting, and when.
type peakSeen struct {
	v     rss.Bytes
	at    time.Duration
	known bool
}

func (p *peakSeen) raise(v rss.Bytes, at time.Duration) {
	if !p.known || v > p.v {
		*p = peakSeen{v, at, true}
	}
}

const (
	byRSS = iota
	byPSS
	byNoShared
	byCgroup
	accountings
)

// mergeRoles takes of each role the run in which it had most: memory of two
// nodes is under no common limit, so it is not added up.
func mergeRoles(looks []*RunScan) []Role {
	out := []Role{}
	for _, k := range looks {
		for _, g := range k.roles {
			switch i := slices.IndexFunc(out, func(r Role) bool { return r.Role == g.most.Role }); {
			case !g.seen:
			case i < 0:
				out = append(out, g.most)
			case g.most.Peak > out[i].Peak:
				out[i] = g.most
			}
		}
	}
	slices.SortFunc(out, func(a, b Role) int {
		return cmp.Or(slices.Index(roleOrder, a.Role)-slices.Index(roleOrder, b.Role), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// roleOrder is the order of roles in texts: starters first, helpers last.
var roleOrder = []rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePoolWorker, rss.RoleForkHelper, rss.RolePinThread, rss.RoleShmManager, rss.RoleOther}

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*RunScan) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.Wall(v.at), Run: k.Run.Meta.ID}
			}
		}
	}
	return p
}
