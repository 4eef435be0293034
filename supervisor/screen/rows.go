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
	node *node
	rank *control.Rank // of a process: nil for one of no rank
	proc *control.Proc // nil in the table of ranks
	// Of the process, else of the rank; command is the name of a process, and role empty for
	// a rank.
	pid, task     int
	step, command string
	role          rss.Role
	mem           control.Memory
}

// rowID names a row from one answer to the next.
type rowID struct {
	job, node string
	pid       int
	start     uint64 // 0 for a rank
}

func (r *row) id() rowID {
	id := rowID{job: r.node.Job, node: r.node.Node, pid: r.pid}
	if r.proc != nil {
		id.start = r.proc.Start
	}
	return id
}

var roles = []rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePoolWorker, rss.RoleForkHelper, rss.RolePinThread, rss.RoleShmManager, rss.RoleOther}

// rowsOf makes the rows of both tables, in their places: as they belong together, by
// node, rank and role.
func rowsOf(nodes []node) (ranks, procs []row) {
	for i := range nodes {
		n := &nodes[i]
		type key struct {
			step string
			task int
		}
		of := make(map[key]*control.Rank, len(n.Ranks))
		for j := range n.Ranks {
			r := &n.Ranks[j]
			of[key{r.Step, r.Task}] = r
			ranks = append(ranks, row{n, r, nil, r.PID, r.Task, r.Step, r.Command, "", r.Memory})
		}
		for j := range n.Procs {
			p := &n.Procs[j]
			procs = append(procs, row{n, of[key{p.Step, p.Task}], p, p.PID, p.Task, p.Step, p.Comm, p.Role, p.Memory})
		}
	}
	place := func(a, b row) int {
		return cmp.Or(natural(a.node.Node, b.node.Node), cmp.Compare(a.node.Leader, b.node.Leader), natural(a.step, b.step), cmp.Compare(a.task, b.task),
			cmp.Compare(slices.Index(roles, a.role), slices.Index(roles, b.role)), cmp.Compare(a.pid, b.pid))
	}
	slices.SortStableFunc(ranks, place)
	slices.SortStableFunc(procs, place)
	return ranks, procs
}

// matches says whether all words of a filter are met by a row. A number is a rank,
// or the front of a PID; NAME=WORD looks in one column alone.
func matches(r *row, filter string) bool {
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(filter)), func(word string) bool { return !matchesWord(r, word) })
}

func matchesWord(r *row, word string) bool {
	pid, rank, role := strconv.Itoa(r.pid), task(r.task), string(r.role)
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), word) }
	if name, value, ok := strings.Cut(word, "="); ok {
		word = value
		switch name {
		case "rank":
			return rank == value
		case "pid":
			return pid == value
		case "step":
			return r.step == value
		case "role":
			return has(role)
		case "node":
			return has(r.node.name)
		case "command":
			return has(r.command)
		}
		word = name + "=" + value
	}
	if _, err := strconv.Atoi(word); err == nil && (rank == word || strings.HasPrefix(pid, word)) {
		return true
	}
	return has(role) || has(r.node.name) || has(r.command) || r.rank != nil && has(r.rank.Command)
}

// column is one column of a table, and what it may be sorted by.
type column struct {
	key, title string
	width      int
	drop       int  // see fit
	left       bool // aligned to the left
	words      bool // sorted as words
	most       bool // the greatest comes first
	value      func(*row) value
}

// value is what a column shows: a text, and what numbers are sorted by.
type value struct {
	text   string
	amount float64
}

func word(s string) value     { return value{text: s} }
func sized(b rss.Bytes) value { return value{mib(b), float64(b)} }
func number(n int) value      { return value{strconv.Itoa(n), float64(n)} }
func seldom(n uint64) value   { return value{count(n), float64(n)} } // not always counted, and 0 then
func numbers(key, title string, width, drop int, value func(*row) value) column {
	return column{key, title, width, drop, false, false, true, value}
}

func words(key, title string, width, drop int, value func(*row) value) column {
	return column{key, title, width, drop, true, true, false, value}
}

// order sorts rows by a column. What has neither words nor amounts leaves them in their
// places. Each value is made once: to word it costs more than to compare it.
func (c *column) order(rows []row, reverse bool) {
	type keyed struct {
		row
		by value
	}
	all := make([]keyed, len(rows))
	for i := range rows {
		all[i] = keyed{rows[i], c.value(&rows[i])}
		if c.words {
			all[i].by.text = strings.ToLower(all[i].by.text)
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		if reverse {
			a, b = b, a
		}
		if c.words {
			return natural(a.by.text, b.by.text)
		}
		return cmp.Compare(a.by.amount, b.by.amount)
	})
	for i := range all {
		rows[i] = all[i].row
	}
}

// shared are the columns that both tables have.
var (
	nodeColumn   = words("node", "NODE", 5, 0, func(r *row) value { return word(r.node.name) })
	rankColumn   = column{"rank", "RANK", 5, 2, false, false, false, func(r *row) value { return word(task(r.task)) }}
	stepColumn   = words("step", "STEP", 6, 7, func(r *row) value { return word(r.step) })
	pidColumn    = column{"pid", "PID", 7, 0, false, false, false, func(r *row) value { return seldom(uint64(r.pid)) }}
	rssColumn    = numbers("rss", "MiB", 6, 0, func(r *row) value { return sized(r.mem.RSS) })
	anonColumn   = numbers("anon", "ANON", 6, 5, func(r *row) value { return sized(r.mem.Anon) })
	fileColumn   = numbers("file", "FILE", 6, 4, func(r *row) value { return sized(r.mem.File) })
	shmemColumn  = numbers("shmem", "SHMEM", 6, 10, func(r *row) value { return sized(r.mem.Shmem) })
	growthColumn = column{"growth", "TREND", 10, 2, true, false, true, func(r *row) value {
		v := value{text: trend(r.mem.Growth, r.node.ceiling)}
		if r.mem.Growth != nil {
			v.amount = *r.mem.Growth
		}
		return v
	}}
	commandColumn = words("command", "COMMAND", 10, 1, func(r *row) value { return word(r.command) })
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
		nodeColumn, rankColumn, stepColumn, pidColumn, rssColumn, anonColumn, fileColumn, shmemColumn, growthColumn,
		numbers("procs", "PROCS", 6, 9, func(r *row) value { return number(r.rank.Procs) }),
		numbers("workers", "WORKERS", 8, 6, func(r *row) value { return number(r.rank.Workers) }),
		numbers("recycled", "RECYCLED", 9, 3, func(r *row) value { return number(r.rank.Recycled) }),
		words("hook", "HOOK", 7, 8, func(r *row) value { return word(r.rank.Hook) }),
		commandColumn,
	},
	procsView: {
		nodeColumn, rankColumn, pidColumn,
		words("role", "ROLE", 8, 3, func(r *row) value { return word(r.roleName()) }),
		rssColumn, anonColumn, fileColumn, shmemColumn,
		numbers("pss", "PSS", 6, 9, func(r *row) value {
			if r.proc.PSS == nil {
				return word("-")
			}
			return sized(*r.proc.PSS)
		}),
		growthColumn,
		numbers("trims", "TRIMS", 6, 7, func(r *row) value { return r.ofWorker(r.proc.Trims) }),
		numbers("recycled", "RECYCLED", 9, 6, func(r *row) value { return r.ofWorker(r.proc.Recycled) }),
		numbers("maps", "MAPS", 6, 12, func(r *row) value { return seldom(r.proc.Maps) }),
		numbers("fds", "FDS", 6, 11, func(r *row) value { return seldom(r.proc.FDs) }),
		numbers("threads", "THR", 5, 13, func(r *row) value { return seldom(uint64(r.proc.Threads)) }),
		words("state", "S", 2, 8, func(r *row) value { return word(r.proc.State) }),
		commandColumn,
	},
}

// memory says that the column adds up.
func (c *column) memory() bool {
	return slices.Contains([]string{"rss", "anon", "file", "shmem"}, c.key)
}

// ofWorker is a count that only workers have.
func (r *row) ofWorker(n int) value {
	if n == 0 && !r.role.IsWorker() {
		return word("-")
	}
	return number(n)
}

// roleName is a role in at most eight columns.
func (r *row) roleName() string {
	return cmp.Or(map[rss.Role]string{rss.RolePoolWorker: "pool", rss.RoleForkHelper: "helper", rss.RolePinThread: "pin", rss.RoleShmManager: "shm"}[r.role], string(r.role))
}

// Keys lists what the tables can be sorted by.
func Keys() (all []string) {
	for _, c := range slices.Concat(columns[:]...) {
		if !slices.Contains(all, c.key) {
			all = append(all, c.key)
		}
	}
	return all
}

func columnNamed(v view, key string) *column {
	if i := slices.IndexFunc(columns[v], func(c column) bool { return c.key == key }); i >= 0 {
		return &columns[v][i]
	}
	return nil
}

// fitted are the columns of a table that a width has room for, the command taking
// the rest. What the table is sorted by stays.
func (m *Model) fitted(v view) []column {
	list := slices.Clone(columns[v])
	wide := 0
	var sum control.Memory
	for i := range m.tables[v].rows {
		sum.Add(m.tables[v].rows[i].mem)
	}
	for i := range list {
		switch c := &list[i]; {
		case c.memory():
			c.width = max(c.width, len(mib(sum.RSS)))
		case c.key == "node":
			for j := range m.nodes {
				wide = max(wide, text.Columns(m.nodes[j].name))
			}
			c.width = min(max(wide, 4), 14)
		case c.key == "role" && m.W >= 110:
			c.width = 11
			c.value = func(r *row) value { return word(string(r.role)) }
		}
	}
	list = slices.DeleteFunc(list, func(c column) bool {
		if c.key == m.tables[v].sort {
			return false
		}
		return c.key == "node" && len(m.nodes) < 2 || c.key == "rank" && len(m.ranks) < 2 || c.key == "pss" && !slices.ContainsFunc(m.procs, func(r row) bool { return r.proc.PSS != nil })
	})
	list, total := fit(list, m.W-2, func(c column) (width, drop int) {
		if c.key == m.tables[v].sort {
			return c.width + 1, 0
		}
		return c.width + 1, c.drop
	})
	if last := &list[len(list)-1]; last.key == "command" {
		last.width += max(0, m.W-2-total)
	}
	return list
}

// table draws a table with the line that names it, and behind the processes their sum.
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
	for i, end := t.top, d.y+l.rows[v]; i < len(t.rows) && d.y < end; i++ {
		d.row(list, &t.rows[i])
		if m.Live && v == m.view && i == t.index {
			d.put(0, d.y, 1, Bold, ">")
			if m.mode != asking {
				d.paint(d.y, Reverse)
			}
		}
		d.y++
	}
	if len(t.rows) == 0 {
		text := "none"
		if m.filter != "" {
			text = fmt.Sprintf("nothing meets the filter %q", m.filter)
		}
		d.put(2, d.y, d.W, Plain, text)
		d.y++
	}
	if l.sum && (v == procsView || l.rows[procsView] == 0) {
		d.total(list, t.rows)
	}
}

// total is the line with the sums of a table, and beside them what rsswarden itself has,
// which is in none.
func (d *drawing) total(list []column, rows []row) {
	sum, ours := row{node: &node{}}, rss.Bytes(0)
	for i := range rows {
		sum.mem.Add(rows[i].mem)
	}
	for i := range d.m.nodes {
		for _, c := range d.m.nodes[i].Ours {
			ours += c.RSS
		}
	}
	d.put(1, d.y, d.W, Bold, "sum")
	x, end := 2, 0
	for _, c := range list {
		if c.memory() {
			d.aligned(x, c, Bold, c.value(&sum).text)
			end = x + c.width
		}
		x += c.width + 1
	}
	if beside := "rsswarden itself " + mib(ours) + " MiB"; ours > 0 && end+2+len(beside) <= d.W {
		d.put(max(end+2, min(x-len(beside), 50)), d.y, d.W, Dim, beside)
	}
	d.y++
}

// tab names the table, the other, what is left by the filter and the order.
func (d *drawing) tab(v view, l layout) {
	m := d.m
	t := &m.tables[v]
	x := 0
	for w, n := range []int{ranksView: len(m.ranks), procsView: len(m.procs)} {
		name, style := fmt.Sprintf("%s %d", strings.ToUpper(view(w).String()), n), Bold
		switch alone := m.H > 0 && l.rows[1-v] == 0; {
		case m.Live && view(w) == v && (alone || v == m.view):
			name = "[" + name + "]"
		case m.Live && alone:
			name, style = " "+name+" ", Dim
		case view(w) == v:
			name = " " + name
		default:
			continue
		}
		x = d.put(x, d.y, d.W, style, name)
	}
	if m.filter != "" {
		x = d.put(x, d.y, d.W, Bold, fmt.Sprintf("  %d meet %q", len(t.rows), m.filter))
	}
	order := "  by " + t.sort
	if t.reverse {
		order += ", reversed"
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
			mark := "▲"
			if c.most != t.reverse {
				mark = "▼"
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
		d.aligned(x, c, style, c.value(r).text)
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
