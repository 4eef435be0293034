package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

type paneKind int

const (
	rowPane    paneKind = iota // all that is known of a rank or a process
	limitsPane                 // … of the limits and the nodes
	helpPane
)

// pane is a text in the place of the tables.
type pane struct {
	kind paneKind
	row  *row // the last that was known of it
	gone bool
	top  int
}

func (m Model) open(p *pane) Model {
	m.pane, m.mode = p, reading
	return m
}

func (m Model) inspect() Model {
	r := m.marked()
	if r == nil {
		m.message = "there is nothing to inspect"
		return m
	}
	return m.open(&pane{kind: rowPane, row: r})
}

// current is the pane with the row as it is now.
func (m *Model) current() pane {
	p := *m.pane
	if p.row == nil {
		return p
	}
	rows := m.ranks
	if p.row.proc != nil {
		rows = m.procs
	}
	id := p.row.id()
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id() == id }); i >= 0 {
		p.row = &rows[i]
	} else {
		p.gone = true
	}
	return p
}

// paneLines are the lines of the open pane: its title first, then its text, broken
// to the width.
func (m *Model) paneLines() []string {
	p := m.current()
	var text []string
	switch p.kind {
	case limitsPane:
		text = m.limitsText()
	case helpPane:
		text = helpText
	default:
		text = m.rowText(&p)
	}
	var lines []string
	for _, t := range text {
		lines = append(lines, folded(clean(t, m.Look), m.W)...)
	}
	return lines
}

func (d *drawing) pane(n int) {
	lines := d.m.paneLines()
	top := max(0, min(d.m.pane.top, len(lines)-n))
	for i, text := range lines[top:min(top+n, len(lines))] {
		style := Plain
		if text != "" && text[0] != ' ' {
			style = Bold
		}
		d.put(0, d.y+i, d.W, style, text)
	}
}

// leastFolded is the narrowest that lines are broken to.
const leastFolded = 10

// folded breaks a line between words, what follows further to the right.
func folded(line string, width int) []string {
	width = max(width, leastFolded)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	// Behind a name the text has a column of its own.
	if name, rest, ok := strings.Cut(line[indent:], "  "); ok && indent > 0 {
		indent += len(name) + 2 + len(rest) - len(strings.TrimLeft(rest, " "))
	} else {
		indent += 2
	}
	if indent > width/2 {
		indent = 2
	}
	var lines []string
	for text.Columns(line) > width {
		r, n, fits, space := []rune(line), 0, 0, 0
		for n+text.Width(r[fits]) <= width {
			n += text.Width(r[fits])
			fits++
			if r[fits] == ' ' && fits > indent {
				space = fits
			}
		}
		if space == 0 { // one long word
			space = max(1, fits)
		}
		lines = append(lines, strings.TrimRight(string(r[:space]), " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(string(r[space:]), " ")
	}
	return append(lines, line)
}

// fact is a line of a pane, its name in a column.
func fact(name, format string, args ...any) string {
	return fmt.Sprintf("  %-12s  %s", name, fmt.Sprintf(format, args...))
}

func (m *Model) rowText(p *pane) []string {
	r := p.row
	var text []string
	if r.proc == nil {
		text = m.rankText(r)
	} else {
		text = m.procText(r)
	}
	if p.gone {
		text = slices.Insert(text, 1, "  It has ended; this is the last that was known.")
	}
	return text
}

func (m *Model) rankText(r *row) []string {
	k := r.rank
	title := "rank " + strconv.Itoa(k.Task)
	if k.Task < 0 {
		title = "the command"
	}
	line := []string{fmt.Sprintf("%s on %s, process %d", title, r.node.Node, k.PID), ""}
	line = append(line, fact("command", "%s", k.Command))
	if k.Step != "" {
		line = append(line, fact("step", "%s of job %s", k.Step, r.node.Job))
	}
	line = append(line,
		fact("started", "%s ago, at %s", since(m.now, k.Since), k.Since.In(m.Zone).Format(time.DateTime)),
		fact("memory", "%v RSS: %v anonymous, %v of files, %v shared", k.RSS, k.Anon, k.File, k.Shmem),
		fact("growth", "%s, over the last seconds", trend(r.mem.Growth, r.node.ceiling)),
		fact("processes", "%d, of them %d loader workers", k.Procs, k.Workers),
		fact("recycled", "%s so far", text.Count(k.Recycled, "worker")))
	hook := map[string]string{"recycle": "recycle: its loader talks to rsswarden, workers can be recycled and trimmed", "trim": "trim: its workers can be trimmed, not recycled", "off": "off"}[k.Hook]
	if hook == "" {
		hook = k.Hook
	}
	if k.Why != "" {
		hook += ": " + k.Why
	}
	line = append(line, fact("hook", "%s", hook),
		fact("rsswarden", "holder %d, watcher %d%s", k.Holder, k.Watcher, map[bool]string{true: ", which leads this node"}[k.Leads]), "")
	return append(line, m.byRole(r)...)
}

// byRole sums up the processes of a rank.
func (k *known) byRole(r *row) []string {
	line := []string{"its processes"}
	for _, role := range roles {
		var n int
		var sum rss.Bytes
		var pids []int
		for i := range k.procs {
			if p := &k.procs[i]; p.rank == r.rank && p.node == r.node && p.proc.Role == role {
				n, sum = n+1, sum+p.proc.RSS
				pids = append(pids, p.proc.PID)
			}
		}
		if n > 0 {
			slices.Sort(pids)
			line = append(line, fact(string(role), "%d, RSS %v: %s", n, sum, text.List(pids, 4)))
		}
	}
	return line
}

// states are the letters of proc_pid_stat(5).
var states = map[string]string{
	"R": "running", "S": "sleeping", "D": "waiting for a disk or a lock, uninterruptible", "T": "stopped",
	"t": "stopped by a tracer", "Z": "ended, not waited for (zombie)", "I": "idle", "X": "dead",
}

func (m *Model) procText(r *row) []string {
	p := r.proc
	line := []string{fmt.Sprintf("process %d on %s, %s", p.PID, r.node.Node, p.Comm), ""}
	rank := "none: it is counted, and belongs to no command under rsswarden"
	if r.rank != nil {
		rank = task(r.rank.Task)
		if r.rank.Task < 0 {
			rank = "the command"
		}
		rank += fmt.Sprintf(", process %d: %s", r.rank.PID, r.rank.Command)
	}
	line = append(line, fact("role", "%s", p.Role), fact("rank", "%s", rank))
	if p.Step != "" {
		line = append(line, fact("step", "%s of job %s", p.Step, r.node.Job))
	}
	line = append(line,
		fact("parent", "%d", p.Parent),
		fact("state", "%s, %s", p.State, cmp.Or(states[p.State], "unknown")),
		fact("RSS", "%v: %v anonymous, %v of files, %v shared", p.RSS, p.Anon, p.File, p.Shmem))
	switch {
	case p.PSS == nil && slices.ContainsFunc(r.node.Limits, func(l control.Limit) bool { return l.Accounting == event.AccountingPSS }):
		line = append(line, fact("PSS", "not read"))
	case p.PSS == nil:
		line = append(line, fact("PSS", "not read: no limit here is compared with it"))
	default:
		line = append(line, fact("PSS", "%v, read %s ago", *p.PSS, text.About(p.Age)))
	}
	line = append(line, fact("growth", "%s of RSS, over the last seconds", trend(p.Growth, r.node.ceiling)),
		fact("maps", "%s", counted(p.Maps)), fact("descriptors", "%s", counted(p.FDs)), fact("threads", "%s", counted(uint64(p.Threads))))
	can := []string{}
	if p.CanTrim {
		can = append(can, "trimmed")
	}
	if p.CanRecycle {
		can = append(can, "recycled")
	}
	line = append(line, fact("can be", "%s", cmp.Or(strings.Join(can, " and "), "neither trimmed nor recycled"+r.why())),
		fact("start", "%d clock ticks after boot", p.Start))
	for i := range r.node.Limits {
		if l := &r.node.Limits[i].Limit; l.PID == p.PID {
			line = append(line, fact("limit", "nearest of all to %s: %s of %s", l.Name, l.Name.Amount(l.Used), l.Name.Amount(l.Limit)))
		}
	}
	return line
}

func counted(n uint64) string {
	if n == 0 {
		return "not counted"
	}
	return text.Digits(n)
}

// limitsText is all that is known of the nodes and their limits.
func (m *Model) limitsText() []string {
	var line []string
	for i := range m.nodes {
		n := &m.nodes[i]
		title := n.name
		if n.Job != "" {
			title += ", job " + n.Job
		}
		line = append(line, title,
			fact("leader", "process %d for %s, rsswarden %s", n.Leader, since(n.Time, n.Since), n.Version),
			fact("read", "%s, %s ago", n.Time.In(m.Zone).Format(time.DateTime), text.About(n.age(m.now).Seconds())))
		if len(n.Rules) > 0 {
			line = append(line, fact("rules", "%s", n.ladder()))
		}
		for _, c := range n.Ours {
			line = append(line, fact(c.Process, "%d: RSS %v, PSS %v, %s of CPU since it began", c.PID, c.RSS, c.PSS, text.Seconds(c.CPU)))
		}
		line = append(line, "")
		for j := range n.Limits {
			line = append(line, n.limitText(&n.Limits[j])...)
		}
	}
	if len(line) == 0 {
		return []string{"no node has answered"}
	}
	return line
}

func (n *node) limitText(m *control.Limit) []string {
	l := &m.Limit
	title := "limit " + n.label(l)
	if l.Binding {
		title += ", which binds first"
	}
	line := []string{title}
	if l.Limit > 0 {
		used := l.Name.Amount(l.Used)
		if l.UsedMax > l.Used {
			used += " to " + l.Name.Amount(l.UsedMax)
		}
		line = append(line, fact("used", "%s of %s, %s", used, l.Name.Amount(l.Limit), percent(l)))
	}
	if l.Name != event.LimitTime {
		line = append(line, fact("changes", "%s, as measured over the last seconds", trend(m.Growth, l.Limit)))
	}
	if l.ETA != nil {
		line = append(line, fact("full in", "%s at the present rate%s", text.About(max(0, *l.ETA)), phrase.Range(l.ETALow, l.ETAHigh)))
		if l.Name == event.LimitTime {
			line[len(line)-1] = fact("ends in", "%s", text.About(max(0, *l.ETA)))
		}
	} else if l.Flattens > 0 {
		line = append(line, fact("flattens", "at about %s, below the limit", l.Name.Amount(l.Flattens)))
	}
	if l.ETA == nil && l.Flattens == 0 && l.Name.Memory() {
		line = append(line, fact("full in", "no forecast yet"))
	}
	if l.Charged > 0 {
		line = append(line, fact("charged", "%v, page cache included; working set %v", l.Charged, l.WorkingSet))
	}
	if l.Age >= 1 {
		line = append(line, fact("age", "read up to %s ago", text.About(l.Age)))
	}
	for _, f := range [][2]string{
		{"enforced by", l.Enforcer}, {"compares", string(l.Accounting)}, {"used from", l.UsedSource},
		{"limit from", l.LimitSource}, {"level", l.Level}, {"note", l.Note},
	} {
		if f[1] != "" {
			line = append(line, fact(f[0], "%s", f[1]))
		}
	}
	return append(line, "")
}

// helpText is what ? shows.
var helpText = []string{
	"keys",
	"  Up Down j k   one row               Tab r p   ranks, processes",
	"  PgUp PgDn     one page              s         sort: arrows, then Enter",
	"  Home End g G  first, last row       S         reverse the order",
	"  Enter i       all about a row       /         filter; Esc shows all",
	"  l             all limits, nodes     space     freeze the display, go on",
	"  R T C         act, see below        ^L        draw again",
	"  q ^C          quit; jobs go on      ^Z        suspend; fg comes back",
	"",
	"R, T and C mean the row with the mark >, and ask first. For a rank they mean",
	"those of its processes that can.",
	"  R recycle     a loader worker is replaced by a fresh one, no batch lost",
	"  T trim        mapped file pages leave a worker's RSS, not the page cache",
	"  C checkpoint  the rank's trainer gets the signal of --checkpoint-signal",
	"",
	"filter",
	"  All words must be met: a role, a node, part of a command, the number of a",
	"  rank, or the front of a PID. In one column alone: rank=3 pid=4711 step=0",
	"  role=worker node=n2 command=python",
	"",
	"what is shown",
	"  A bar is what the enforcer compares, of its limit; lighter what it may be at",
	"  most. now is a reading newer than the rest, which is one sample, of the time",
	"  above. TREND is a forecast (full 12 min), else the change as measured over the",
	"  last seconds; steady is less than a hundredth of the limit in a minute. peak",
	"  is the highest reading so far. ! marks a node that did not answer.",
	"  MiB is RSS: ANON, FILE and SHMEM together; PSS shares what several processes",
	"  map. TRIMS and RECYCLED go with a worker's place: they count those that had it",
	"  before, too. MAPS and FDS are counted now and then, - where not.",
}
