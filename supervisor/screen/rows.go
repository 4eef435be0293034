package screen

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
)

// row is a line of a table: a rank, or a process with the rank it belongs to.
type row struct {
	node   *node
	rank   *control.Rank // of a process: nil for one of no rank
	proc   *control.Proc // nil in the table of ranks
	growth float64       // bytes a second
}

// rowID names a row from one answer to the next.
type rowID struct {
	job, node string
	pid       int
	start     uint64 // 0 for a rank
}

func (r *row) id() rowID {
	id := rowID{job: r.node.Job, node: r.node.Node}
	if r.proc != nil {
		id.pid, id.start = r.proc.PID, r.proc.Start
	} else {
		id.pid = r.rank.PID
	}
	return id
}

func (r *row) pid() int {
	if r.proc != nil {
		return r.proc.PID
	}
	return r.rank.PID
}

func (r *row) task() int {
	if r.proc != nil {
		return r.proc.Task
	}
	return r.rank.Task
}

func (r *row) step() string {
	if r.proc != nil {
		return r.proc.Step
	}
	return r.rank.Step
}

// command is a rank's command, or the name of a process.
func (r *row) command() string {
	if r.proc != nil {
		return r.proc.Comm
	}
	return r.rank.Command
}

// place orders rows as they belong together: by node, rank and role.
func place(a, b *row) int {
	role := func(r *row) int {
		if r.proc == nil {
			return 0
		}
		return slices.Index(roles, r.proc.Role)
	}
	return cmp.Or(natural(a.node.Node, b.node.Node), cmp.Compare(a.node.Leader, b.node.Leader),
		natural(a.step(), b.step()), cmp.Compare(a.task(), b.task()), cmp.Compare(role(a), role(b)), cmp.Compare(a.pid(), b.pid()))
}

var roles = []rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePinThread, rss.RoleShmManager, rss.RoleOther}

// rowsOf makes the rows of both tables, in their places.
func rowsOf(nodes []node) (ranks, procs []row) {
	for i := range nodes {
		n := &nodes[i]
		type key struct {
			step string
			task int
		}
		of := make(map[key]int, len(n.Ranks))
		for j := range n.Ranks {
			r := &n.Ranks[j]
			of[key{r.Step, r.Task}] = len(ranks)
			ranks = append(ranks, row{node: n, rank: r, growth: r.Growth})
		}
		for j := range n.Procs {
			p := &n.Procs[j]
			r := row{node: n, proc: p, growth: p.Growth}
			if k, ok := of[key{p.Step, p.Task}]; ok {
				r.rank = ranks[k].rank
			}
			procs = append(procs, r)
		}
	}
	byPlace := func(a, b row) int { return place(&a, &b) }
	slices.SortStableFunc(ranks, byPlace)
	slices.SortStableFunc(procs, byPlace)
	return ranks, procs
}

// matches says whether all words of a filter are met by a row. A number is a rank,
// or the front of a PID; NAME=WORD looks in one column alone.
func matches(r *row, filter string) bool {
	for _, word := range strings.Fields(strings.ToLower(filter)) {
		if !matchesWord(r, word) {
			return false
		}
	}
	return true
}

func matchesWord(r *row, word string) bool {
	pid, rank := strconv.Itoa(r.pid()), task(r.task())
	role, extra := "", ""
	if r.proc != nil {
		role = string(r.proc.Role)
		if r.rank != nil {
			extra = r.rank.Command
		}
	}
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), word) }
	if name, value, ok := strings.Cut(word, "="); ok {
		word = value
		switch name {
		case "rank":
			return rank == value
		case "pid":
			return pid == value
		case "step":
			return r.step() == value
		case "role":
			return has(role)
		case "node":
			return has(r.node.name)
		case "command":
			return has(r.command())
		}
		word = name + "=" + value
	}
	if _, err := strconv.Atoi(word); err == nil && (rank == word || strings.HasPrefix(pid, word)) {
		return true
	}
	return has(role) || has(r.node.name) || has(r.command()) || r.proc != nil && has(extra)
}
