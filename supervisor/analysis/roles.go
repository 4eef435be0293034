package analysis

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// roleLook is one role: in the sample at hand, and at its highest.
type roleSeen struct {
	role rss.Role
	now  roleNow
	most Role
	seen bool
}

// roleNow is what one role has in the sample at hand.
type roleNow struct {
	count                  int
	anon, file, shmem, rss rss.Bytes
	most                   rss.Bytes
}

// processes takes in the processes of a sample. Sums and roles are those of the
// tree: what a limit counts beside it is in the limits.
func (k *RunScan) processes(s *record.Sample) {
	for _, l := range k.roles {
		l.now = roleNow{}
	}
	var sum, anon, pss rss.Bytes
	allPSS, some := true, false
	var maps, fds CountUse
	for i := range s.Procs {
		u := &s.Procs[i]
		if u.Proc < 0 || u.Proc >= len(k.ofProc) || k.ofProc[u.Proc] == nil {
			continue
		}
		some = true
		all := u.RSS()
		sum, anon, pss = sum+all, anon+u.Anon, pss+u.PSS
		allPSS = allPSS && (u.PSS > 0 || all == 0)
		if v := uint64(u.Maps); v > maps.V {
			maps.V, maps.Proc = v, u.Proc
		}
		if v := uint64(u.FDs); v > fds.V {
			fds.V, fds.Proc = v, u.Proc
		}
		n := &k.ofProc[u.Proc].now
		n.count++
		n.anon, n.file, n.shmem, n.rss = n.anon+u.Anon, n.file+u.File, n.shmem+u.Shmem, n.rss+all
		n.most = max(n.most, all)
	}
	if maps.V > 0 {
		k.Maps.add(s.At, maps.V, 0, maps.Proc)
	}
	if fds.V > 0 {
		k.Fds.add(s.At, fds.V, 0, fds.Proc)
	}
	if !some {
		return
	}
	k.peaks[byRSS].raise(sum, s.At)
	k.peaks[byNoShared].raise(anon, s.At)
	if allPSS {
		k.peaks[byPSS].raise(pss, s.At)
	}
	k.takeRoles(s.At)
}

// roleSums takes in what a journal has in place of the processes.
func (k *RunScan) roleSums(s *record.Sample) {
	if len(s.Roles) == 0 {
		return
	}
	for _, l := range k.roles {
		l.now = roleNow{}
	}
	var sum, anon, parts rss.Bytes
	for i := range s.Roles {
		r := &s.Roles[i]
		sum, anon, parts = sum+r.RSS, anon+r.Anon, parts+r.Anon+r.File+r.Shmem
		k.role(r.Role).now = roleNow{count: r.Count, anon: r.Anon, file: r.File, shmem: r.Shmem, rss: r.RSS}
	}
	k.peaks[byRSS].raise(sum, s.At)
	if parts > 0 {
		k.peaks[byNoShared].raise(anon, s.At)
	}
	k.takeRoles(s.At)
}

// role finds what is known of a role, or begins it.
func (k *RunScan) role(r rss.Role) *roleSeen {
	i := slices.IndexFunc(k.roles, func(l *roleSeen) bool { return l.role == r })
	if i < 0 {
		i = len(k.roles)
		k.roles = append(k.roles, &roleSeen{role: r})
	}
	return k.roles[i]
}

func (k *RunScan) takeRoles(at time.Duration) {
	for _, l := range k.roles {
		n, m := &l.now, &l.most
		if n.count == 0 {
			continue
		}
		m.Count = max(m.Count, n.count)
		m.PerProcess = max(m.PerProcess, n.most)
		if n.rss > m.Peak || !l.seen {
			m.Run, m.Role, m.Peak, m.At = k.Run.Meta.ID, l.role, n.rss, k.Run.Wall(at)
			m.Anon, m.File, m.Shmem = n.anon, n.file, n.shmem
		}
		l.seen = true
	}
}

// roleOrder is the order in which roles are told: from who starts to who helps.
var roleOrder = []rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePinThread, rss.RoleShmManager, rss.RoleOther}

// mergeRoles takes of each role the run in which it had most: memory of two
// nodes is under no common limit, so it is not added up.
func mergeRoles(looks []*RunScan) []Role {
	most := map[rss.Role]*Role{}
	for _, k := range looks {
		for _, l := range k.roles {
			if old := most[l.role]; l.seen && (old == nil || l.most.Peak > old.Peak) {
				most[l.role] = &l.most
			}
		}
	}
	out := make([]Role, 0, len(most))
	for _, r := range most {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Role) int {
		if d := slices.Index(roleOrder, a.Role) - slices.Index(roleOrder, b.Role); d != 0 {
			return d
		}
		return strings.Compare(string(a.Role), string(b.Role))
	})
	return out
}
