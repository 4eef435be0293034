package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/view"
)

// A rank whose rsswarden was killed says nothing, so the leader looks who lives: seldom
// where all commands live and the bell rings for those that come or go in order.
const (
	meetEvery  = 2 * time.Second
	meetSeldom = 10 * time.Second
)

// MeetDue says that it is time for [Place.Meet], by the last sample.
func (p *Place) MeetDue(now time.Duration, last *rss.Sample) bool {
	since := now - p.metAt
	switch {
	case p.post == nil || since < meetEvery:
		return false
	case !p.hears || since >= meetSeldom:
		return true
	}
	return slices.ContainsFunc(p.Others, func(m Member) bool {
		q := last.Find(m.Command.PID)
		return q == nil || q.ID != m.Command
	})
}

func (p *Place) Meet(now time.Duration) (n News) {
	if p.post == nil {
		return n
	}
	p.metAt = now
	p.renew(now, &n)
	members, left, err := p.post.Members()
	if err != nil {
		n.fault("leader", err)
		return n
	}
	before := p.Others
	p.Others = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Ended != nil })
	for i := range p.Others {
		if m := &p.Others[i]; find(before, m.Holder) == nil {
			n.rank(event.RankJoined, m, nil)
			n.Changed = true
		}
	}
	for i := range before {
		if o := &before[i]; find(p.Others, o.Holder) == nil {
			n.rank(event.RankEnded, o, endOf(o.Holder, members, left))
			p.told[o.Holder] = true
			n.Changed = true
		}
	}
	p.tellEnds(&n, left)
	return n
}

func find(list []Member, holder rss.ProcID) *Member {
	if i := slices.IndexFunc(list, func(m Member) bool { return m.Holder == holder }); i >= 0 {
		return &list[i]
	}
	return nil
}

func endOf(holder rss.ProcID, lists ...[]Member) *Ended {
	for _, list := range lists {
		if m := find(list, holder); m != nil && m.Ended != nil {
			return m.Ended
		}
	}
	return nil
}

// Ends are the ends of ranks that have ended together with ours. alone says that no other
// rank's command lives.
func (p *Place) Ends() (n News, alone bool) {
	members, left, err := p.post.Members()
	n.fault("leader", err)
	p.tellEnds(&n, left)
	return n, err == nil && !slices.ContainsFunc(members, func(m Member) bool { return m.Ended == nil && m.Holder != p.Me.Holder })
}

// tellEnds reports ranks that were not met and that wrote how they ended.
func (p *Place) tellEnds(n *News, left []Member) {
	for i := range left {
		if m := &left[i]; m.Ended != nil && !p.told[m.Holder] {
			n.rank(event.RankEnded, m, m.Ended)
			p.told[m.Holder] = true
		}
	}
}

// Ranks are those of the job on this node.
type Ranks struct {
	Me     Member   // who we are, zero where we have not joined
	Others []Member // whose commands live, as the leader has met them
}

// Owner is the rank that a process belongs to: ours where it belongs to no other.
func (r *Ranks) Owner(procs view.Lineage, pid int) *Member {
	if len(r.Others) == 0 {
		return &r.Me
	}
	for up := range procs.Up(pid) {
		if up == r.Me.Command.PID {
			return &r.Me
		}
		for i := range r.Others {
			if m := &r.Others[i]; m.Command.PID == up {
				return m
			}
		}
	}
	return &r.Me
}

// Numbered finds a rank of this node by SLURM_PROCID, ours included.
func (r *Ranks) Numbered(task int) (m *Member, ok bool) {
	if r.Me.Task == task {
		return &r.Me, true
	}
	for i := range r.Others {
		if r.Others[i].Task == task {
			return &r.Others[i], true
		}
	}
	return nil, false
}

// Title names a rank for people: "rank 3", or "step 0, rank 3" where it is of another step
// than ours.
func (r *Ranks) Title(m *Member) string {
	name := fmt.Sprintf("rank %d", m.Task)
	if m.Task < 0 {
		name = fmt.Sprintf("process %d", m.Command.PID)
	}
	if m.Step != r.Me.Step {
		return "step " + m.Step + ", " + name
	}
	return name
}
