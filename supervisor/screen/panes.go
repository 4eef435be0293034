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
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// pane is a text in the place of the tables: all that is known of a rank or a process, or help.
type pane struct {
	row *row // the last that was known of it; nil for help
	top int
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
	return m.open(&pane{row: r})
}

// current is the row as it is now; gone says that it was not there in the last answer.
func (m *Model) current(r *row) (_ *row, gone bool) {
	for _, rows := range [][]row{m.ranks, m.procs} {
		if i := slices.IndexFunc(rows, func(x row) bool { return x.id() == r.id() }); i >= 0 {
			return &rows[i], false
		}
	}
	return r, true
}

// paneLines are the lines of the open pane: its title first, then its text, broken
// to the width.
func (m *Model) paneLines() []string {
	text := helpText
	if m.pane.row != nil {
		text = m.rowText(m.current(m.pane.row))
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

// facts are the lines of a pane.
type facts []string

// add adds a line with its name in a column, where there is something to say.
func (f *facts) add(name, value string) {
	if value != "" {
		*f = append(*f, fmt.Sprintf("  %-12s  %s", name, value))
	}
}

func (f *facts) addf(name, format string, args ...any) { f.add(name, fmt.Sprintf(format, args...)) }

func (m *Model) rowText(r *row, gone bool) []string {
	f := facts{fmt.Sprintf("%s on %s, process %d", rankTitle(r.rank), r.node.Node, r.pid)}
	if r.proc != nil {
		f[0] = fmt.Sprintf("process %d on %s, %s", r.pid, r.node.Node, r.proc.Comm)
	}
	if gone {
		f = append(f, "  It has ended; this is the last that was known.")
	}
	f = append(f, "")
	if r.proc != nil {
		m.procText(&f, r)
	} else {
		m.rankText(&f, r)
	}
	return f
}

func rankTitle(k *control.Rank) string {
	if k == nil || k.Task < 0 {
		return "the command"
	}
	return "rank " + strconv.Itoa(k.Task)
}

// inStep names the step of a row, empty outside Slurm.
func (r *row) inStep() string {
	if r.step == "" {
		return ""
	}
	return r.step + " of job " + r.node.Job
}

var hooks = map[string]string{
	"recycle": "recycle: its loader talks to rsswarden, workers can be recycled and trimmed",
	"trim":    "trim: its workers can be trimmed, not recycled",
}

func (m *Model) rankText(f *facts, r *row) {
	k := r.rank
	f.add("command", k.Command)
	f.add("step", r.inStep())
	f.addf("started", "%s ago, at %s", since(m.now, k.Since), k.Since.In(m.Zone).Format(time.DateTime))
	f.addf("memory", "%v RSS: %v anonymous, %v of files, %v shared", k.RSS, k.Anon, k.File, k.Shmem)
	f.addf("growth", "%s, over the last seconds", trend(r.mem.Growth, r.node.ceiling))
	f.addf("processes", "%d, of them %d workers", k.Procs, k.Workers)
	f.addf("recycled", "%s so far", text.Count(k.Recycled, "worker"))
	hook := cmp.Or(hooks[k.Hook], k.Hook)
	if k.Why != "" {
		hook += ": " + k.Why
	}
	f.add("hook", hook)
	f.addf("rsswarden", "holder %d, watcher %d%s", k.Holder, k.Watcher, map[bool]string{true: ", which leads this node"}[k.Leads])
	*f = append(*f, "", "its processes")
	for _, role := range roles {
		var sum rss.Bytes
		pids := m.of(r, func(p *control.Proc) bool {
			if p.Role == role {
				sum += p.RSS
			}
			return p.Role == role
		})
		if len(pids) > 0 {
			f.addf(string(role), "%d, RSS %v: %s", len(pids), sum, text.List(pids, 4))
		}
	}
}

// states are the letters of proc_pid_stat(5).
var states = map[string]string{
	"R": "running", "S": "sleeping", "D": "waiting for a disk or a lock, uninterruptible", "T": "stopped",
	"t": "stopped by a tracer", "Z": "ended, not waited for (zombie)", "I": "idle", "X": "dead",
}

func (m *Model) procText(f *facts, r *row) {
	p := r.proc
	if p.Pool != "" {
		f.addf("role", "%s (%s)", p.Role, p.Pool)
	} else {
		f.add("role", string(p.Role))
	}
	if r.rank == nil {
		f.add("rank", "none: it is counted, and belongs to no command under rsswarden")
	} else {
		f.addf("rank", "%s, process %d: %s", strings.TrimPrefix(rankTitle(r.rank), "rank "), r.rank.PID, r.rank.Command)
	}
	f.add("step", r.inStep())
	f.add("parent", strconv.Itoa(p.Parent))
	f.addf("state", "%s, %s", p.State, cmp.Or(states[p.State], "unknown"))
	f.addf("RSS", "%v: %v anonymous, %v of files, %v shared", p.RSS, p.Anon, p.File, p.Shmem)
	switch {
	case p.PSS != nil:
		f.addf("PSS", "%v, read %s ago", *p.PSS, text.About(p.Age))
	case slices.ContainsFunc(r.node.Limits, func(l control.Limit) bool { return l.Accounting == event.AccountingPSS }):
		f.add("PSS", "not read")
	default:
		f.add("PSS", "not read: no limit here is compared with it")
	}
	f.addf("growth", "%s of RSS, over the last seconds", trend(p.Growth, r.node.ceiling))
	f.add("maps", counted(p.Maps))
	f.add("descriptors", counted(p.FDs))
	f.add("threads", counted(uint64(p.Threads)))
	switch {
	case p.CanTrim && p.CanRecycle:
		f.add("can be", "trimmed and recycled")
	case p.CanTrim:
		f.add("can be", "trimmed")
	case p.CanRecycle:
		f.add("can be", "recycled")
	default:
		f.add("can be", "neither trimmed nor recycled"+r.why())
	}
	f.addf("start", "%d clock ticks after boot", p.Start)
	for i := range r.node.Limits {
		if l := &r.node.Limits[i].Limit; l.PID == p.PID {
			f.addf("limit", "nearest of all to %s: %s of %s", l.Name, l.Name.Amount(l.Used), l.Name.Amount(l.Limit))
		}
	}
}

func counted(n uint64) string {
	if n == 0 {
		return "not counted"
	}
	return text.Digits(n)
}

// helpText is what ? shows.
var helpText = []string{
	"keys",
	"  Up Down j k   one row               Tab r p   ranks, processes",
	"  PgUp PgDn     one page              s Left    sort by the next column, back",
	"  Home End g G  first, last row       S         reverse the order",
	"  Enter i       all about a row       /         filter; Esc shows all",
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
