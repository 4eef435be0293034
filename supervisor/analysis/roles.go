package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// roleSeen is one role: in the sample at hand, and at its highest.
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

// treeScan is what the processes of the tree had, by role and together.
type treeScan struct {
	run    *record.Run
	peaks  [accountings]peakSeen
	roles  []*roleSeen
	ofProc []*roleSeen // by index in run.Procs; nil of one that is not of the tree
}

func newTreeScan(r *record.Run) treeScan {
	k := treeScan{run: r, ofProc: make([]*roleSeen, len(r.Procs))}
	for i := range r.Procs {
		if p := &r.Procs[i]; !p.Extra && !p.Ours {
			k.ofProc[i] = k.role(p.Role)
		}
	}
	return k
}

// processes takes in the processes of a sample, and returns what one of them had most of. Sums and roles are those of the tree: what a limit counts beside it is in the
// limits.
func (k *treeScan) processes(s *record.Sample) (maps, fds CountUse) {
	for _, l := range k.roles {
		l.now = roleNow{}
	}
	var sum, anon, pss rss.Bytes
	allPSS, some := true, false
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
	if !some {
		return maps, fds
	}
	k.peaks[byRSS].raise(sum, s.At)
	k.peaks[byNoShared].raise(anon, s.At)
	if allPSS {
		k.peaks[byPSS].raise(pss, s.At)
	}
	k.takeRoles(s.At)
	return maps, fds
}

// roleSums takes in what a journal has in place of the processes.
func (k *treeScan) roleSums(s *record.Sample) {
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
func (k *treeScan) role(r rss.Role) *roleSeen {
	i := slices.IndexFunc(k.roles, func(l *roleSeen) bool { return l.role == r })
	if i < 0 {
		i = len(k.roles)
		k.roles = append(k.roles, &roleSeen{role: r})
	}
	return k.roles[i]
}

func (k *treeScan) takeRoles(at time.Duration) {
	for _, l := range k.roles {
		n, m := &l.now, &l.most
		if n.count == 0 {
			continue
		}
		m.Count = max(m.Count, n.count)
		m.PerProcess = max(m.PerProcess, n.most)
		if n.rss > m.Peak || !l.seen {
			m.Run, m.Role, m.Peak, m.At = k.run.Meta.ID, l.role, n.rss, k.run.Wall(at)
			m.Anon, m.File, m.Shmem = n.anon, n.file, n.shmem
		}
		l.seen = true
	}
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

// The accountings that a peak is told by.
const (
	byRSS = iota
	byPSS
	byNoShared
	byCgroup
	accountings
)
