package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/text"
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

// column is one column of a table, and what it may be sorted by.
type column struct {
	key, title string
	width      int
	left       bool // aligned to the left
	// drop is when the column goes where the screen is narrow: the greatest
	// first, 0 never.
	drop int
	cell func(*row) string
	// less compares two rows, nil for by their places; most says that the
	// greatest comes first.
	less func(a, b *row) int
	most bool
}

func amount(f func(*row) rss.Bytes) (func(*row) string, func(a, b *row) int) {
	return func(r *row) string { return size(f(r)) },
		func(a, b *row) int { return cmp.Compare(f(a), f(b)) }
}

func number(f func(*row) uint64) (func(*row) string, func(a, b *row) int) {
	return func(r *row) string { return strconv.FormatUint(f(r), 10) },
		func(a, b *row) int { return cmp.Compare(f(a), f(b)) }
}

func word(f func(*row) string) (func(*row) string, func(a, b *row) int) {
	return f, func(a, b *row) int { return natural(strings.ToLower(f(a)), strings.ToLower(f(b))) }
}

func bytesColumn(key, title string, drop int, f func(*row) rss.Bytes) column {
	c := column{key: key, title: title, width: max(6, len(title)+1), drop: drop, most: true}
	c.cell, c.less = amount(f)
	return c
}

func numberColumn(key, title string, width, drop int, f func(*row) uint64) column {
	c := column{key: key, title: title, width: width, drop: drop, most: true}
	c.cell, c.less = number(f)
	return c
}

// countedColumn is for numbers that are not always counted, and are 0 then.
func countedColumn(key, title string, width, drop int, f func(*row) uint64) column {
	c := numberColumn(key, title, width, drop, f)
	c.cell = func(r *row) string { return count(f(r)) }
	return c
}

func wordColumn(key, title string, width, drop int, f func(*row) string) column {
	c := column{key: key, title: title, width: width, drop: drop, left: true}
	c.cell, c.less = word(f)
	return c
}

// shared are the columns that both tables have.
var (
	nodeColumn = wordColumn("node", "NODE", 5, 0, func(r *row) string { return r.node.name })
	rankColumn = column{key: "rank", title: "RANK", width: 5, cell: func(r *row) string { return task(r.task()) }}
	stepColumn = wordColumn("step", "STEP", 6, 2, (*row).step)
	pidColumn  = column{
		key: "pid", title: "PID", width: 7, cell: func(r *row) string { return count(r.pid()) },
		less: func(a, b *row) int { return cmp.Compare(a.pid(), b.pid()) },
	}
	growthColumn = column{
		key: "growth", title: "GROW/s", width: 7, most: true, cell: func(r *row) string { return growth(r.growth) },
		less: func(a, b *row) int { return cmp.Compare(a.growth, b.growth) },
	}
	commandColumn = wordColumn("command", "COMMAND", 10, 0, (*row).command)
)

// view is one of the two tables.
type view int

const (
	ranksView view = iota
	procsView
)

func (v view) String() string { return [...]string{"ranks", "processes"}[v] }

// columns are those of each table, in their order on a wide screen.
var columns = [...][]column{
	ranksView: {
		nodeColumn, rankColumn, stepColumn, pidColumn,
		bytesColumn("rss", "RSS", 0, func(r *row) rss.Bytes { return r.rank.RSS }),
		growthColumn,
		bytesColumn("anon", "ANON", 7, func(r *row) rss.Bytes { return r.rank.Anon }),
		bytesColumn("file", "FILE", 6, func(r *row) rss.Bytes { return r.rank.File }),
		bytesColumn("shmem", "SHMEM", 6, func(r *row) rss.Bytes { return r.rank.Shmem }),
		numberColumn("procs", "PROCS", 6, 8, func(r *row) uint64 { return uint64(r.rank.Procs) }),
		numberColumn("workers", "WORKERS", 8, 4, func(r *row) uint64 { return uint64(r.rank.Workers) }),
		numberColumn("recycled", "RECYCLED", 9, 5, func(r *row) uint64 { return uint64(r.rank.Recycled) }),
		wordColumn("hook", "HOOK", 7, 3, func(r *row) string { return r.rank.Hook }),
		commandColumn,
	},
	procsView: {
		nodeColumn, rankColumn, pidColumn,
		wordColumn("role", "ROLE", 8, 1, func(r *row) string { return roleName(r.proc.Role) }),
		bytesColumn("rss", "RSS", 0, func(r *row) rss.Bytes { return r.proc.RSS }),
		bytesColumn("anon", "ANON", 2, func(r *row) rss.Bytes { return r.proc.Anon }),
		bytesColumn("file", "FILE", 3, func(r *row) rss.Bytes { return r.proc.File }),
		bytesColumn("shmem", "SHMEM", 4, func(r *row) rss.Bytes { return r.proc.Shmem }),
		{
			key: "pss", title: "PSS", width: 6, drop: 6, most: true, cell: func(r *row) string {
				if r.proc.PSS == nil {
					return "-"
				}
				return size(*r.proc.PSS)
			},
			less: func(a, b *row) int { return cmp.Compare(pss(a), pss(b)) },
		},
		growthColumn,
		countedColumn("maps", "MAPS", 6, 8, func(r *row) uint64 { return r.proc.Maps }),
		countedColumn("fds", "FDS", 6, 7, func(r *row) uint64 { return r.proc.FDs }),
		countedColumn("threads", "THR", 5, 9, func(r *row) uint64 { return uint64(r.proc.Threads) }),
		wordColumn("state", "S", 2, 5, func(r *row) string { return r.proc.State }),
		commandColumn,
	},
}

func pss(r *row) rss.Bytes {
	if r.proc.PSS == nil {
		return 0
	}
	return *r.proc.PSS
}

// roleName is a role in at most eight columns.
func roleName(r rss.Role) string {
	switch r {
	case rss.RolePinThread:
		return "pin"
	case rss.RoleShmManager:
		return "shm"
	}
	return string(r)
}

// Keys lists what the tables can be sorted by.
func Keys() []string {
	var all []string
	seen := map[string]bool{}
	for _, table := range columns {
		for _, c := range table {
			if !seen[c.key] {
				seen[c.key] = true
				all = append(all, c.key)
			}
		}
	}
	return all
}

func columnNamed(v view, key string) *column {
	for i := range columns[v] {
		if columns[v][i].key == key {
			return &columns[v][i]
		}
	}
	return nil
}

// fitted are the columns of a table that a width has room for, the command taking
// the rest. What the table is sorted by stays.
func (m *Model) fitted(v view) []column {
	list := slices.Clone(columns[v])
	wide := 0
	for i := range list {
		switch list[i].key {
		case "node":
			for j := range m.nodes {
				wide = max(wide, text.Columns(m.nodes[j].name))
			}
			list[i].width = min(max(wide, 4), 14)
		case "role":
			if m.W >= 110 {
				list[i].width = 11
				list[i].cell = func(r *row) string { return string(r.proc.Role) }
			}
		}
	}
	list = slices.DeleteFunc(list, func(c column) bool {
		if c.key == m.tables[v].sort {
			return false
		}
		return c.key == "node" && len(m.nodes) < 2 || c.key == "pss" && !m.knowsPSS()
	})
	for {
		total, worst := 2, -1
		for i, c := range list {
			total += c.width + 1
			if c.drop > 0 && c.key != m.tables[v].sort && (worst < 0 || c.drop > list[worst].drop) {
				worst = i
			}
		}
		if total <= m.W || worst < 0 {
			list[len(list)-1].width += max(0, m.W-total)
			return list
		}
		list = slices.Delete(list, worst, worst+1)
	}
}

func (m *Model) knowsPSS() bool {
	return slices.ContainsFunc(m.procs, func(r row) bool { return r.proc.PSS != nil })
}

// table draws a table with the line that names it.
func (d *drawing) table(v view, l layout) {
	m := d.m
	t := &m.tables[v]
	if l.tabs {
		d.tab(v, l)
		d.y++
	}
	list := m.fitted(v)
	d.titles(v, list)
	d.y++
	end := d.y + l.rows[v]
	for i := t.top; i < len(t.rows) && d.y < end; i++ {
		d.row(list, &t.rows[i])
		if m.Live && v == m.view && i == t.index && m.mode != asking {
			d.put(0, d.y, 1, Plain, ">")
			d.paint(d.y, Reverse)
		} else if m.Live && v == m.view && i == t.index {
			d.put(0, d.y, 1, Bold, ">")
		}
		d.y++
	}
	if len(t.rows) == 0 {
		text := "none"
		if m.filter != "" {
			text = fmt.Sprintf("nothing meets the filter %q", m.filter)
		}
		d.put(2, d.y, d.W, Plain, text)
	}
	if m.H > 0 {
		d.y = end
	} else if len(t.rows) == 0 {
		d.y++
	}
}

// tab names the table, the other, what is left by the filter and the order.
func (d *drawing) tab(v view, l layout) {
	m := d.m
	t := &m.tables[v]
	all := [...]int{ranksView: len(m.ranks), procsView: len(m.procs)}
	name := func(v view) string { return fmt.Sprintf("%s %d", strings.ToUpper(v.String()), all[v]) }
	x := 0
	style := Bold
	alone := m.H > 0 && l.rows[1-v] == 0
	switch {
	case m.Live && alone:
		for _, w := range []view{ranksView, procsView} {
			text, s := " "+name(w)+" ", Dim
			if w == v {
				text, s = "["+name(w)+"]", Bold
			}
			x = d.put(x, d.y, d.W, s, text)
		}
	case m.Live && v == m.view:
		x = d.put(x, d.y, d.W, style, "["+name(v)+"]")
	default:
		x = d.put(x, d.y, d.W, style, " "+name(v))
	}
	if m.filter != "" {
		x = d.put(x, d.y, d.W, Bold, fmt.Sprintf("  %d meet %q", len(t.rows), m.filter))
	}
	order := "  by " + t.sort
	if t.reverse {
		order += ", turned round"
	}
	x = d.put(x, d.y, d.W, Plain, order)
	if n := l.rows[v]; n > 0 && len(t.rows) > n {
		d.right(x+1, d.y, d.W, Plain, fmt.Sprintf("%d-%d of %d", t.top+1, min(t.top+n, len(t.rows)), len(t.rows)))
	}
}

// titles draws the names of the columns, the one that sorts with a mark.
func (d *drawing) titles(v view, list []column) {
	t := &d.m.tables[v]
	x := 2
	for _, c := range list {
		title, style := c.title, Dim
		if c.key == t.sort {
			style = Bold
			mark := d.look.either("▲", "^")
			if c.most != t.reverse {
				mark = d.look.either("▼", "v")
			}
			if c.left {
				title += mark
			} else {
				title = mark + title
			}
		}
		d.aligned(x, c, style, title)
		x += c.width + 1
	}
}

func (d *drawing) row(list []column, r *row) {
	style := Plain
	if r.node.missing {
		style = Dim
		d.put(1, d.y, 2, Bold, "!")
	}
	x := 2
	for _, c := range list {
		d.aligned(x, c, style, c.cell(r))
		x += c.width + 1
	}
}

func (d *drawing) aligned(x int, c column, style Style, text string) {
	switch {
	case !c.left:
		d.right(x, d.y, x+c.width, style, text)
	case c.key == "node":
		d.tail(x, d.y, x+c.width, style, text)
	default:
		d.put(x, d.y, x+c.width, style, text)
	}
}

// tail writes the end of a name that is too long: nodes differ there.
func (d *drawing) tail(x, y, end int, style Style, name string) {
	if room := end - x; len(name) > room && room > 1 {
		name = d.ellipsis() + name[len(name)-room+1:]
	}
	d.put(x, y, end, style, name)
}
