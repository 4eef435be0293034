package limit

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

type node struct {
	*search
	meminfo *proctree.Node
	mem     proctree.MemInfo
	memOK   bool
	killed  uint64 // by the OOM killer on the node when the set was made
	killsOK bool
}

func findNode(in *search) *node {
	s := &node{search: in, meminfo: proctree.NewNode(in.cfg.Proc)}
	m, err := s.meminfo.Read()
	if err != nil {
		s.warn("node", "%v", err)
		s.look("meminfo", "%v", err)
		return s
	}
	s.killed, s.killsOK = proctree.NodeKills(s.cfg.Proc)
	s.mem, s.memOK = m, true
	s.look("meminfo", "MemTotal %v, swap %v", m.Total, m.SwapTotal)
	return s
}

func (s *node) update() {
	if m, err := s.meminfo.Read(); err == nil {
		s.mem, s.memOK = m, true
	} else if s.memOK {
		s.warn("node", "%v", err)
	}
}

// nearAll is the share of the node's memory from which on a limit no longer
// keeps the job from exhausting the node.
const nearAll = 0.95

// limits returns the node's own limit where no cgroup comes before it.
func (s *node) limits(found []event.Limit, holdsTree func(dir string) bool) []event.Limit {
	if !s.memOK {
		return nil
	}
	least := cgroup.Unlimited
	for i := range found {
		if found[i].Name == event.LimitCgroup && holdsTree(found[i].Level) {
			least = min(least, found[i].Limit)
		}
	}
	if least.Of(s.mem.Size()) < nearAll {
		return nil
	}
	used := s.mem.Used()
	e := event.Limit{
		Name: event.LimitNode, Scope: event.ScopeNode, Used: used, UsedMax: used, Limit: s.mem.Size(),
		Enforcer:   killer + " of the node",
		UsedSource: "meminfo: MemTotal - MemAvailable", LimitSource: "meminfo: MemTotal",
		Note: "everything on the node counts",
	}
	if least != cgroup.Unlimited {
		e.Note = "the cgroup's limit is all of the node's memory or more; everything on the node counts"
	}
	if s.mem.SwapTotal > 0 {
		e.UsedSource += " + SwapTotal - SwapFree"
		e.LimitSource += " + SwapTotal"
		e.Note += fmt.Sprintf("; %v of swap is counted in", s.mem.SwapTotal)
	}
	return []event.Limit{e}
}

// NodeKills counts processes that the OOM killer has ended on the node since the set
// was made, of any job; 0 where the kernel does not say.
func (s *node) NodeKills() uint64 {
	if n, ok := proctree.NodeKills(s.cfg.Proc); ok && s.killsOK {
		return less(n, s.killed)
	}
	return 0
}
