package supervisor

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/hold"
	"github.com/rsswarden/rsswarden/supervisor/node"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/population"
	"github.com/rsswarden/rsswarden/supervisor/tell"
)

// peers are the other ranks of the job on this node, as the leader knows them.
type peers struct {
	post  *node.Post // nil where we could not join: we lead for our own command alone
	me    node.Member
	hears bool // the bell rings for members that come and go, and for answers
	// others are the ranks whose commands live, but ours.
	others  []node.Member
	orders  orders
	stop    ownStop      // of our own command, that a leader asked for
	stagger node.Stagger // of recycles
	handing
	from   time.Duration // when we began to lead
	heir   bool          // somebody led before us
	lookAt time.Duration // when we looked who is here last
	// told are the ranks whose ends were told of, by holder.
	told map[rss.ProcID]bool
	// renewed is when our place was looked after last.
	renewed time.Duration
}

// takeLead begins to lead: who else is here is met, and told of. It says whether
// anybody is.
func (w *watcher) takeLead() bool {
	p := &w.peers
	p.from = w.now()
	if p.post == nil {
		w.noteStart()
		return false
	}
	err := w.bell.Watch(rankNews, unix.IN_MOVED_TO|unix.IN_DELETE, p.post.Path())
	if p.hears = err == nil; err != nil {
		w.fault("leader", err) // who comes is met at the next look
	}
	w.tellRank(event.RankLeads, &p.me, nil)
	w.noteStart()
	w.setRanks()
	if job, in := w.observe.Limits.Job(); in {
		w.observe.Pop.FindUnmanaged(&w.probes, w.Sys, job)
	}
	met := w.meet()
	w.takeOver()
	return met
}

// A rank whose rsswarden was killed says nothing, so it is looked who lives:
// seldom where all commands live and who comes or goes in order is told of.
const (
	meetEvery  = 2 * time.Second
	meetSeldom = 10 * time.Second
)

// meetDue says that it is time to look who is here.
func (w *watcher) meetDue(now time.Duration) bool {
	p := &w.peers
	since := now - p.lookAt + sameWake
	switch {
	case p.post == nil || since < meetEvery:
		return false
	case !p.hears || since >= meetSeldom:
		return true
	}
	return slices.ContainsFunc(p.others, func(m node.Member) bool {
		q := w.view.Sample.Find(m.Command.PID)
		return q == nil || q.ID != m.Command
	})
}

// meet looks who is here. The tree is read again where somebody came or went.
func (w *watcher) meet() (changed bool) {
	p := &w.peers
	if p.post == nil {
		return false
	}
	p.lookAt = w.now()
	w.renew()
	members, left, err := p.post.Members()
	if err != nil {
		w.fault("leader", err)
		return false
	}
	before := p.others
	defer func() {
		if changed {
			w.setRanks()
		}
	}()
	p.others = slices.DeleteFunc(slices.Clone(members), func(m node.Member) bool { return m.Ended != nil })
	w.tell.Sum.Ranks = max(w.tell.Sum.Ranks, len(p.others)+1)
	for i := range p.others {
		if m := &p.others[i]; !slices.ContainsFunc(before, func(o node.Member) bool { return o.Holder == m.Holder }) {
			changed = true
			w.tellRank(event.RankJoined, m, nil)
			w.talkTo(m)
		}
	}
	for i := range before {
		o := &before[i]
		if slices.ContainsFunc(p.others, func(m node.Member) bool { return o.Holder == m.Holder }) {
			continue
		}
		changed = true
		w.tellRankEnd(o, endOf(o.Holder, members, left))
		if w.observe.Loader != nil && o.Dir != "" {
			for _, s := range w.observe.Loader.Drop(o.Dir) {
				w.heard(s)
			}
		}
	}
	w.tellRankEnds(left)
	return changed
}

// setRanks says whose commands are watched.
func (w *watcher) setRanks() {
	rank := func(m *node.Member) population.Rank {
		return population.Rank{Command: m.Command, Step: m.Step, Holder: m.Holder.PID, Watcher: m.Watcher.PID}
	}
	var others []population.Rank
	for i := range w.peers.others {
		others = append(others, rank(&w.peers.others[i]))
	}
	w.observe.Pop.SetRanks(rank(&w.peers.me), others)
}

// rankNamed finds a rank of this node by SLURM_PROCID, ours included.
func (w *watcher) rankNamed(task int) (m *node.Member, ok bool) {
	p := &w.peers
	if p.me.Task == task {
		return &p.me, true
	}
	for i := range p.others {
		if p.others[i].Task == task {
			return &p.others[i], true
		}
	}
	return nil, false
}

func endOf(holder rss.ProcID, lists ...[]node.Member) *node.Ended {
	for _, list := range lists {
		for i := range list {
			if list[i].Holder == holder && list[i].Ended != nil {
				return list[i].Ended
			}
		}
	}
	return nil
}

// talkTo opens the loaders' directory of a rank.
func (w *watcher) talkTo(m *node.Member) {
	if m.Dir == "" || !w.Settings.Loader {
		return
	}
	var err error
	if w.observe.Loader == nil {
		err = w.openLoader(m.Dir)
	} else if err = w.observe.Loader.Add(m.Dir); err == nil {
		err = w.bell.Watch(loaderNews, newsMask, m.Dir)
		w.observe.Hears = w.observe.Hears && err == nil
	}
	if err != nil {
		w.fault("loader", err)
	}
}

// tellRank tells what happened to a rank.
func (w *watcher) tellRank(what event.RankNews, m *node.Member, end *node.Ended) {
	e := event.Rank{What: what, Task: m.Task, Step: m.Step, Node: w.tell.Run.Node, PID: m.Command.PID, Holder: m.Holder.PID}
	if w.peers.post != nil && w.peers.post.Leads() {
		e.Leader = w.Self
	}
	if end != nil {
		if end.Signal != 0 {
			name := tell.SignalName(end.Signal)
			e.Signal = &name
		} else {
			e.Code = &end.Code
		}
	}
	w.tell.Put(event.NameRank, func(h event.Head) any { e.Head = h; return e })
}

// rankName names a rank for people: "rank 3", or "step 0, rank 3" where there are
// several steps.
func (w *watcher) rankName(m *node.Member) string {
	name := fmt.Sprintf("rank %d", m.Task)
	if m.Task < 0 {
		name = fmt.Sprintf("process %d", m.Command.PID)
	}
	if m.Step != w.peers.me.Step {
		return "step " + m.Step + ", " + name
	}
	return name
}

// pass gives the lead up: our command has ended, others' may not have.
func (w *watcher) pass(exit *hold.Exit) {
	p := &w.peers
	if p.post == nil {
		return
	}
	w.serveNoMore()
	if exit != nil {
		w.layLast()
	}
	if exit != nil {
		p.post.End(p.me, node.Ended{Code: exit.Code, Signal: exit.Signal})
	} else {
		p.post.Leave()
	}
	p.post = nil
}

// sayHeir says that the lead fell to us, in the place of the first line.
func (w *watcher) sayHeir(begin hold.Begin) {
	w.tell.Info(fmt.Sprintf("rank %d leads on this node now, the one before has ended; %s", w.peers.me.Task, phrase.Watching(w.Settings.Command, begin.PID, w.view.Limits)))
}

// rankKey is the rank that a process belongs to, by its holder.
func (w *watcher) rankKey(pid int) rss.ProcID {
	if m := w.rankOf(pid); m != nil {
		return m.Holder
	}
	return w.peers.me.Holder
}
