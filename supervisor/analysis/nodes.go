package analysis

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fill fills in what a job of several ranks, nodes or attempts has, and returns the end of
// each attempt.
func (j *MultiNode) fill(looks []*RunScan, cases []*Case, best *Case, said *SlurmSays, last int, zone *time.Location) (ends []*Case) {
	j.Nodes = nodesOf(looks, zone)
	j.Ranks = mergeRanks(looks, zone)
	j.Leads = leadChanges(looks, zone)
	j.Attempts, ends = attemptsOf(looks, cases, zone)
	j.missing(looks, said, last)
	if len(looks) == 1 && len(j.Ranks) == 1 && j.Unrecorded == 0 {
		*j = MultiNode{} // one run of one rank
		return nil
	}
	j.Binding = bindingOf(looks, best, last, zone)
	return ends
}

// nearest is the limit on memory that a run came nearest to; nil for none. The
// node's own is everybody's, and counts where there is no other.
func (k *RunScan) nearest(zone *time.Location) *Nearest {
	l, ok := k.Highest()
	if !ok {
		return nil
	}
	n := k.nearestOf(l, zone)
	if e := k.atExit(l); e != nil {
		if e.Ratio() > n.Share+atNearest {
			n.At, n.Step, n.Task, n.RankRSS = time.Time{}, "", -1, 0
		}
		n.Used, n.Size, n.Share, n.Headroom = e.Used, e.Limit, e.Ratio(), e.Headroom()
	}
	return n
}

// atExit is the limit at its highest by the exit event, where that was between two samples:
// much in a journal. It is nil where a sample has the highest.
func (k *RunScan) atExit(l *LimitScan) *event.Limit {
	if k.Exit == nil || k.Exit.Binding == nil {
		return nil
	}
	if e := k.Exit.Binding; e.ID() == l.ID() && e.Limit > 0 && e.Ratio() > l.Max.Ratio() {
		return e
	}
	return nil
}

// atNearest is by how much of a limit a sample may have missed its highest and still
// tell when that was and which process had most then.
const atNearest = 0.01

func (k *RunScan) nearestOf(l *LimitScan, zone *time.Location) *Nearest {
	n := &Nearest{
		Run: k.Run.Meta.ID, Limit: l.Name, Scope: l.Scope, Used: l.Max.Used, Size: l.Max.Size, Share: l.Max.Ratio(),
		Headroom: l.Max.Size.Sub(l.Max.Used), At: k.Wall(l.maxAt).In(zone), Task: -1,
	}
	if r := l.most; r != nil {
		n.Step, n.Task, n.RankRSS = r.Step, r.Task, l.mostRSS
	}
	return n
}

// nodesOf puts runs together that were on one node in one attempt.
func nodesOf(looks []*RunScan, zone *time.Location) []Node {
	type place struct {
		node    string
		restart int
	}
	groups := map[place][]*RunScan{}
	var order []place
	for _, k := range looks {
		p := place{k.Run.Meta.Node, k.Restarts()}
		if groups[p] == nil {
			order = append(order, p)
		}
		groups[p] = append(groups[p], k)
	}
	out := make([]Node, 0, len(order))
	for _, p := range order {
		group := groups[p]
		n := Node{Node: p.node, Restart: p.restart, Peaks: mergePeaks(group), Roles: mergeRoles(group), Ranks: len(mergeRanks(group, zone)), JournalOnly: true}
		done := mergeActions(group)
		n.Actions = append([]event.ActionSum{}, done.Actions...)
		slices.SortStableFunc(group, func(a, b *RunScan) int { return a.Wall(a.from()).Compare(b.Wall(b.from())) })
		for _, k := range group {
			if id := k.Run.Meta.ID; !slices.Contains(n.Runs, id) {
				n.Runs = append(n.Runs, id)
			}
			n.Decisions, n.Recycled = n.Decisions+k.decisions, n.Recycled+k.Actions.Recycled
			n.JournalOnly, n.Live = n.JournalOnly && k.Run.JournalOnly, n.Live || k.Run.Live
			if near := k.nearest(zone); near != nil && (n.Nearest == nil || near.Share > n.Nearest.Share) {
				n.Nearest = near
			}
			widen(&n.Start, &n.End, k.Run.Meta.Start.In(zone), k.Wall(k.End).In(zone))
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b Node) int {
		return cmp.Or(cmp.Compare(b.Restart, a.Restart), cmp.Compare(b.peakShare(), a.peakShare()), strings.Compare(a.Node, b.Node))
	})
	return out
}

func (n *Node) peakShare() float64 {
	if n.Nearest == nil {
		return -1
	}
	return n.Nearest.Share
}

// mergeRanks puts together what several records of a node have of a rank.
func mergeRanks(looks []*RunScan, zone *time.Location) []Rank {
	type place struct {
		node    string
		restart int
		RankKey
	}
	at := map[place]int{}
	var out []Rank
	for _, k := range looks {
		for _, l := range k.Ranks.List {
			p := place{k.Run.Meta.Node, k.Restarts(), l.RankKey}
			i, ok := at[p]
			if !ok {
				i = len(out)
				at[p] = i
				out = append(out, Rank{Node: p.node, Restart: p.restart, Step: l.Step, Task: l.Task})
			}
			out[i].take(k, l, zone)
		}
	}
	slices.SortStableFunc(out, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(b.Restart, a.Restart), strings.Compare(a.Node, b.Node), strings.Compare(a.Step, b.Step), cmp.Compare(a.Task, b.Task))
	})
	return out
}

// take adds what one record has of the rank.
func (r *Rank) take(k *RunScan, l *RankSeen, zone *time.Location) {
	r.PID, r.Comm = cmp.Or(r.PID, l.Pid), cmp.Or(r.Comm, l.Comm)
	if start := k.Wall(l.joined).In(zone); r.Start.IsZero() || start.Before(r.Start) {
		r.Start = start
	}
	ended, code, signal := l.ended, l.code, l.signal
	if e := k.Exit; l.own && e != nil && e.By != "detached" && (e.Code != nil || e.Signal != nil) {
		ended, code, signal = k.exitAt, e.Code, e.Signal
	}
	// An end with a status is better than one without, and stands.
	if r.Code == nil && r.Signal == nil && ended >= 0 {
		r.End, r.Code, r.Signal = k.Wall(ended).In(zone), code, signal
	}
	if l.Seen && (r.Peak == nil || l.Peak > *r.Peak) {
		peak := l.Peak
		r.Peak, r.PeakAt = &peak, k.Wall(l.PeakAt).In(zone)
	}
	r.Workers = max(r.Workers, l.workers)
	r.Live = r.Live && r.End.IsZero() || k.Run.Live && r.End.IsZero()
}

// Failed says that it is known to have ended otherwise than with status 0.
func (r *Rank) Failed() bool { return r.Signal != nil || r.Code != nil && *r.Code != 0 }

// bindingOf is the limit that the verdict is about, else the nearest of one attempt.
func bindingOf(looks []*RunScan, best *Case, attempt int, zone *time.Location) *Binding {
	if best != nil && best.Found.Limit >= 0 && best.Found.Limit < len(best.Limits) {
		if l := &best.Limits[best.Found.Limit]; l.Seen && l.Max.Size > 0 && l.Name.Row().Amount {
			b := &Binding{best.Run.Meta.Node, *best.nearestOf(l, zone), true}
			if r := best.Rank; r != nil && b.RankRSS == 0 {
				b.Step, b.Task = r.Step, r.Task
			}
			return b
		}
	}
	var b *Binding
	for _, k := range looks {
		if k.Restarts() != attempt {
			continue
		}
		if n := k.nearest(zone); n != nil && (b == nil || n.Share > b.Share) {
			b = &Binding{Node: k.Run.Meta.Node, Nearest: *n}
		}
	}
	return b
}

// attemptsOf is each time that a job ran, where that is more than once.
func attemptsOf(looks []*RunScan, cases []*Case, zone *time.Location) (out []Attempt, ends []*Case) {
	var attempts []int
	for _, k := range looks {
		if !slices.Contains(attempts, k.Restarts()) {
			attempts = append(attempts, k.Restarts())
		}
	}
	if len(attempts) < 2 {
		return nil, nil
	}
	slices.Sort(attempts)
	for _, restart := range attempts {
		attempt := Attempt{Restart: restart}
		nodes := map[string]bool{}
		for _, k := range looks {
			if k.Restarts() != restart {
				continue
			}
			nodes[k.Run.Meta.Node] = true
			widen(&attempt.Start, &attempt.End, k.Run.Meta.Start.In(zone), k.Wall(k.End).In(zone))
		}
		best := decisive(slices.DeleteFunc(slices.Clone(cases), func(q *Case) bool { return q.Restarts() != restart }), restart)
		attempt.Nodes, attempt.Duration = len(nodes), attempt.End.Sub(attempt.Start).Seconds()
		attempt.Cause = best.Found.Cause
		attempt.Binding = bindingOf(looks, best, restart, zone)
		out, ends = append(out, attempt), append(ends, best)
	}
	return out, ends
}

// missing finds the nodes of the last attempt without a record.
func (j *MultiNode) missing(looks []*RunScan, said *SlurmSays, last int) {
	seen, nodes := map[string]bool{}, 0
	for _, k := range looks {
		if m := &k.Run.Meta; m.Job != nil && m.Job.Restarts == last && !m.Attached {
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
