package report

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// together fills in what a job of several ranks, nodes or lives has.
func (rep *Report) together(looks []*look, cases []*inquest, best *inquest, last int, zone *time.Location) {
	j := &rep.Together
	j.Nodes = nodesOf(looks, zone)
	j.Ranks = mergeRanks(looks, zone)
	j.Leads = leadChanges(looks, zone)
	j.Lives = livesOf(looks, cases, zone)
	j.missing(looks, rep.Slurm, last)
	if len(looks) == 1 && len(j.Ranks) == 1 && j.Unrecorded == 0 {
		*j = Together{} // one run of one rank
		return
	}
	j.Clock = clock(looks, rep.Slurm, last)
	j.Binding = bindingOf(looks, best, last, zone)
	j.told = len(j.Lives) > 0 || j.Unrecorded > 0 || slices.ContainsFunc(looks, func(k *look) bool { return k.ranks.led })
}

// nearest is the limit on memory that a run came nearest to; nil for none. The
// node's own is everybody's, and counts where there is no other.
func (k *look) nearest(zone *time.Location) *Nearest {
	l, ok := k.highest()
	if !ok {
		return nil
	}
	n := k.nearestOf(l, zone)
	// The exit event has what came between two samples, which is much in a journal.
	if k.exit != nil && k.exit.Binding != nil {
		if e := k.exit.Binding; e.Name == l.Name && e.Scope == l.Scope && e.Level == l.Level && e.Limit > 0 && e.Ratio() > n.Share+atNearest {
			n.Used, n.Size, n.Share, n.Headroom = e.Used, e.Limit, e.Ratio(), e.Headroom()
			n.At, n.Step, n.Task, n.RankRSS = time.Time{}, "", -1, 0
		}
	}
	return n
}

// atNearest is by how much of a limit a sample may have missed its highest and still
// tell when that was and who had most then.
const atNearest = 0.01

func (k *look) nearestOf(l *lookLimit, zone *time.Location) *Nearest {
	n := &Nearest{
		Run: k.run.Meta.ID, Limit: l.Name, Scope: l.Scope, Used: l.max.Used, Size: l.max.Size, Share: l.max.Ratio(),
		Headroom: l.max.Size.Sub(l.max.Used), At: k.wall(l.maxAt).In(zone), Task: -1,
	}
	if r := l.most.rank; r != nil {
		n.Step, n.Task, n.RankRSS = r.step, r.task, l.most.rss
	}
	return n
}

// nodesOf puts runs together that were on one node in one life.
func nodesOf(looks []*look, zone *time.Location) []Node {
	type place struct {
		node    string
		restart int
	}
	groups := map[place][]*look{}
	var order []place
	for _, k := range looks {
		p := place{k.run.Meta.Node, k.restarts()}
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], k)
	}
	out := make([]Node, 0, len(order))
	for _, p := range order {
		group := groups[p]
		n := Node{Node: p.node, Restart: p.restart, Peaks: mergePeaks(group), Roles: mergeRoles(group), Ranks: len(mergeRanks(group, zone)), JournalOnly: true}
		n.Actions, _ = mergeDeeds(group)
		slices.SortStableFunc(group, func(a, b *look) int { return a.wall(a.from()).Compare(b.wall(b.from())) })
		for _, k := range group {
			if id := k.run.Meta.ID; !slices.Contains(n.Runs, id) {
				n.Runs = append(n.Runs, id)
			}
			n.Decisions, n.Recycled = n.Decisions+k.decisions, n.Recycled+k.recycled
			n.JournalOnly, n.Live = n.JournalOnly && k.run.JournalOnly, n.Live || k.run.Live
			if near := k.nearest(zone); near != nil && (n.Nearest == nil || near.Share > n.Nearest.Share) {
				n.Nearest = near
			}
			if start := k.run.Meta.Start.In(zone); n.Start.IsZero() || start.Before(n.Start) {
				n.Start = start
			}
			if end := k.wall(k.end).In(zone); end.After(n.End) {
				n.End = end
			}
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b Node) int {
		return cmp.Or(cmp.Compare(b.Restart, a.Restart), cmp.Compare(b.share(), a.share()), strings.Compare(a.Node, b.Node))
	})
	return out
}

func (n *Node) share() float64 {
	if n.Nearest == nil {
		return -1
	}
	return n.Nearest.Share
}

// mergeRanks puts together what several records of a node tell of a rank.
func mergeRanks(looks []*look, zone *time.Location) []Rank {
	type place struct {
		node    string
		restart int
		rankKey
	}
	at := map[place]int{}
	var out []Rank
	for _, k := range looks {
		for _, l := range k.ranks.list {
			p := place{k.run.Meta.Node, k.restarts(), l.rankKey}
			i, ok := at[p]
			if !ok {
				i = len(out)
				at[p] = i
				out = append(out, Rank{Node: p.node, Restart: p.restart, Step: l.step, Task: l.task})
			}
			out[i].take(k, l, zone)
		}
	}
	slices.SortStableFunc(out, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(b.Restart, a.Restart), strings.Compare(a.Node, b.Node), strings.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task))
	})
	return out
}

// take adds what one record tells of the rank.
func (r *Rank) take(k *look, l *lookRank, zone *time.Location) {
	r.PID, r.Comm = cmp.Or(r.PID, l.pid), cmp.Or(r.Comm, l.comm)
	if start := k.wall(l.joined).In(zone); r.Start.IsZero() || start.Before(r.Start) {
		r.Start = start
	}
	ended, code, signal := l.ended, l.code, l.signal
	if e := k.exit; l.own && e != nil && e.By != "detached" && (e.Code != nil || e.Signal != nil) {
		ended, code, signal = k.exitAt, e.Code, e.Signal
	}
	// An end with a status is better than one without, and stands.
	if r.Code == nil && r.Signal == nil && ended >= 0 {
		r.End, r.Code, r.Signal = k.wall(ended).In(zone), code, signal
	}
	if l.seen && (r.Peak == nil || l.peak > *r.Peak) {
		peak := l.peak
		r.Peak, r.PeakAt = &peak, k.wall(l.peakAt).In(zone)
	}
	r.Workers = max(r.Workers, l.workers)
	r.Live = r.Live && r.End.IsZero() || k.run.Live && r.End.IsZero()
}

// failed says that it is known to have ended otherwise than with status 0.
func (r *Rank) failed() bool { return r.Signal != nil || r.Code != nil && *r.Code != 0 }

// bindingOf is the limit that the verdict is about, else the nearest of one life.
func bindingOf(looks []*look, best *inquest, life int, zone *time.Location) *Binding {
	if best != nil && best.found.limit >= 0 && best.found.limit < len(best.limits) {
		if l := &best.limits[best.found.limit]; l.seen && l.max.Size > 0 && l.Name.Row().Amount {
			b := &Binding{best.run.Meta.Node, *best.nearestOf(l, zone), true}
			if r := best.rank; r != nil && b.RankRSS == 0 {
				b.Step, b.Task = r.step, r.task
			}
			return b
		}
	}
	var b *Binding
	for _, k := range looks {
		if k.restarts() != life {
			continue
		}
		if n := k.nearest(zone); n != nil && (b == nil || n.Share > b.Share) {
			b = &Binding{Node: k.run.Meta.Node, Nearest: *n}
		}
	}
	return b
}

// livesOf is each time that a job ran, where that is more than once.
func livesOf(looks []*look, cases []*inquest, zone *time.Location) (out []Life) {
	var lives []int
	for _, k := range looks {
		if !slices.Contains(lives, k.restarts()) {
			lives = append(lives, k.restarts())
		}
	}
	if len(lives) < 2 {
		return nil
	}
	slices.Sort(lives)
	for _, restart := range lives {
		life := Life{Restart: restart}
		nodes := map[string]bool{}
		for _, k := range looks {
			if k.restarts() != restart {
				continue
			}
			nodes[k.run.Meta.Node] = true
			if start := k.run.Meta.Start.In(zone); life.Start.IsZero() || start.Before(life.Start) {
				life.Start = start
			}
			if end := k.wall(k.end).In(zone); end.After(life.End) {
				life.End = end
			}
		}
		best := decisive(slices.DeleteFunc(slices.Clone(cases), func(q *inquest) bool { return q.restarts() != restart }), restart)
		life.Nodes, life.Duration = len(nodes), life.End.Sub(life.Start).Seconds()
		life.Cause, life.best = best.found.cause, best
		life.Binding = bindingOf(looks, best, restart, zone)
		out = append(out, life)
	}
	return out
}

// missing finds the nodes of the last life without a record.
func (j *Together) missing(looks []*look, said *SlurmSays, last int) {
	seen, nodes := map[string]bool{}, 0
	for _, k := range looks {
		if m := &k.run.Meta; m.Job != nil && m.Job.Restarts == last && !m.Attached {
			seen[m.Node] = true
			nodes = max(nodes, m.Job.Nodes)
		}
	}
	if len(seen) == 0 {
		return
	}
	if said != nil {
		for _, name := range said.Nodes {
			if !seen[name] {
				j.Missing = append(j.Missing, name)
			}
		}
		nodes = max(nodes, len(said.Nodes))
	}
	j.Unrecorded = max(nodes-len(seen), len(j.Missing))
}
