package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const mib1 = float64(rss.MiB)

// leaking is a run outside Slurm whose workers leak, 12 s after its start.
func leaking() control.Status {
	at := time.Date(2026, 11, 23, 17, 53, 11, 0, time.UTC)
	proc := func(pid int, role rss.Role, anon, file rss.Bytes, growth float64, trims, recycled int) control.Proc {
		return control.Proc{
			PID: pid, Start: uint64(pid), Parent: 19, Role: role, Task: -1, Comm: "python3", State: "S",
			Memory:       memory((anon+file)*rss.MiB, anon*rss.MiB, file*rss.MiB, 0, growth*mib1),
			WorkerCounts: control.WorkerCounts{Trims: trims, Recycled: recycled}, CanRecycle: role == rss.RoleWorker, CanTrim: role == rss.RoleWorker,
		}
	}
	st := control.Status{
		V: 1, Time: at, Node: "n2", Leader: 18, Version: "v0.7.0", Since: at.Add(-12 * time.Second),
		Ranks: []control.Rank{{Task: -1, PID: 19, Holder: 17, Watcher: 18, Leads: true, Command: "python3 train.py --epochs 3", Since: at.Add(-12 * time.Second), Hook: "recycle", Workers: 3, Procs: 4, Recycled: 3}},
		Limits: limitsOf(
			event.Limit{Name: event.LimitUser, Scope: event.ScopeTree, Accounting: event.AccountingRSS, Used: 884 * rss.MiB, Limit: 1100 * rss.MiB, Binding: true, Enforcer: "our own rules"},
			event.Limit{Name: event.LimitNode, Scope: event.ScopeNode, Used: 1843 * rss.MiB, Limit: 24064 * rss.MiB, Enforcer: "kernel OOM killer of the node"},
			event.Limit{Name: event.LimitFDs, Used: 100, Limit: 1024, Enforcer: "kernel, by EMFILE", PID: 19},
		),
		Procs: []control.Proc{
			proc(19, rss.RoleTrainer, 116, 123, 0, 0, 0), proc(47, rss.RoleWorker, 215, 35, 36, 6, 1),
			proc(51, rss.RoleWorker, 192, 33, 33, 7, 1), proc(55, rss.RoleWorker, 135, 35, 26, 5, 1),
		},
		Rules: []string{"80%:warn", "eta<10m:warn", "85%:trim", "90%:recycle", "maps 80%:warn", "fds 80%:warn", "maps 95%:warn", "fds 95%:warn"},
		Ours:  []event.Cost{{Process: "holder", PID: 17, RSS: 9 * rss.MiB}, {Process: "watcher", PID: 18, RSS: 18 * rss.MiB}},
		Saved: &event.Saved{WorkerTrims: 18, Recycled: 3, Actions: []event.ActionSum{
			{Action: event.ActionTrim, Fired: 4, Worked: 4}, {Action: event.ActionRecycle, Fired: 3, Worked: 3, Paused: 0.16},
		}},
		Last: []control.Outcome{{
			Outcome: event.Outcome{Head: event.Head{Time: at.Add(-time.Second)}, OK: true, PID: 37, Freed: 226 * rss.MiB, Paused: 0.02},
			Action:  event.ActionRecycle, Rule: "90%:recycle",
		}},
	}
	st.Limits[0].Growth, st.Limits[1].Growth = seconds64(95*mib1), seconds64(0)
	peak := st.Limits[0].Limit
	peak.Used = 1034 * rss.MiB
	st.Peak = &peak
	return st
}

// inSlurm is a job of four ranks whose limit is forecast to be full.
func inSlurm() control.Status {
	st := scene("n1", 0, 4, 2)
	st.Limits = st.Limits[1:]
	l := &st.Limits[0]
	l.Limit.Limit, l.Used, l.UsedMax, l.ETA, l.Binding = 30*rss.GiB, 24678*rss.MiB, 0, seconds64(720), true
	peak := l.Limit
	peak.Used = peak.Limit.Scale(0.83)
	st.Peak, st.Last[0].Time = &peak, st.Time.Add(-2*time.Minute)
	return st
}

// TestStatus holds what the command status prints, a file each.
func TestStatus(t *testing.T) {
	faster := leaking()
	now := 911 * rss.MiB
	faster.Limits[0].Now = &now
	dry := inSlurm()
	dry.DryRun, dry.Saved = true, &event.Saved{Actions: []event.ActionSum{
		{Action: event.ActionTrim, Skipped: 2, Reasons: map[event.Reason]int{event.ReasonNoHelp: 2}},
		{Action: event.ActionRecycle, Fired: 3, Reasons: map[event.Reason]int{event.ReasonDryRun: 3}},
	}}
	dry.Ranks[1].Hook, dry.Ranks[1].Why = "trim", "torch 2.3 is not known: workers are trimmed, not recycled"
	failed := dry.Time.Add(-time.Minute)
	dry.Alerts = []control.Alerts{{Receiver: "https://h.example", Firing: 1, Sent: 2, Failed: 1, FailedAt: &failed, Error: "no route to host"}}
	dry.Gaps = rss.Gaps{Denied: 1}
	older := leaking()
	older.Peak, older.Saved, older.Version = nil, nil, "v0.6.0"
	for i := range older.Limits {
		older.Limits[i].Growth = nil
	}
	many := []control.Status{inSlurm(), leaking()}
	for i := range 12 {
		st := inSlurm()
		st.Node, st.Job, st.Leader, st.Limits = "n2", "48", 2000+i, nil
		many = append(many, st)
	}
	idle := leaking() // the node is fuller, by others, and less than it is worth to be named
	idle.Limits[0].Used, idle.Limits[0].Binding = 11*rss.MiB, false
	for i := range idle.Limits {
		idle.Limits[i].Binding = idle.Limits[i].Name == event.LimitNode
	}
	none := control.Status{Node: "n1", Time: noon}
	for name, tt := range map[string]struct {
		statuses []control.Status
		width    int
		ascii    bool
		details  bool
	}{
		"several":       {statuses: []control.Status{inSlurm(), leaking()}, width: 80},
		"several-ascii": {statuses: []control.Status{inSlurm(), leaking()}, width: 80, ascii: true},
		"several-20":    {statuses: []control.Status{inSlurm(), leaking()}, width: 20},
		"several-idle":  {statuses: []control.Status{idle, idle}, width: 80},
		"several-many":  {statuses: many, width: 80},
		"details":       {statuses: []control.Status{inSlurm(), leaking()}, width: 80, details: true},
		"one":           {statuses: []control.Status{faster}, width: 80},
		"one-dry":       {statuses: []control.Status{dry}, width: 80},
		"one-20":        {statuses: []control.Status{dry}, width: 20, ascii: true},
		"one-older":     {statuses: []control.Status{older}, width: 80},
		"one-nothing":   {statuses: []control.Status{none}, width: 80},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for i, f := range Status(tt.statuses, text.Style{ASCII: tt.ascii, Width: tt.width}, time.UTC, tt.details) {
				if i > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(f.Text())
			}
			for line := range strings.Lines(b.String()) {
				if text.Columns(strings.TrimSuffix(line, "\n")) > tt.width {
					t.Errorf("%q is wider than %d", line, tt.width)
				}
			}
			golden.Check(t, "testdata/status-"+name+".txt", b.String())
		})
	}
}

// TestTrend: a forecast, else what was measured; the absence of either is no growth of 0.
func TestTrend(t *testing.T) {
	gib := event.Limit{Name: event.LimitCgroup, Limit: 10 * rss.GiB}
	with := func(eta, growth *float64) *control.Limit {
		l := gib
		l.ETA = eta
		return &control.Limit{Limit: l, Measured: control.Measured{Growth: growth}}
	}
	for _, tt := range []struct {
		limit *control.Limit
		want  string
	}{
		{with(seconds64(724), seconds64(95*mib1)), "full 12 min"},
		{with(nil, seconds64(95*mib1)), "+95 MiB/s"},
		{with(nil, seconds64(-2560*mib1)), "-2.5 GiB/s"},
		{with(nil, seconds64(1.8*mib1)), "+1.8 MiB/s"},
		{with(nil, seconds64(1.7*mib1)), "steady"}, // 102 MiB are 1 % of it
		{with(nil, seconds64(0)), "steady"},
		{with(nil, nil), "-"},
		{&control.Limit{Limit: event.Limit{Name: event.LimitFDs, Limit: 1024}, Measured: control.Measured{Growth: seconds64(12)}}, "+12/s"},
		{&control.Limit{Limit: event.Limit{Name: event.LimitTime, ETA: seconds64(7200)}}, "ends 2.0 h"},
	} {
		if got := Trend(tt.limit); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.limit, got, tt.want)
		}
	}
}

// TestMerged: who has answered before stays only where the answer has a gap.
func TestMerged(t *testing.T) {
	a, b := control.Status{Node: "n1", Job: "1", Leader: 10}, control.Status{Node: "n2", Job: "1", Leader: 20}
	next := b
	next.Leader = 21
	other := a
	other.Leader = 11
	for _, tt := range []struct {
		name        string
		old, answer []control.Status
		errs        int
		want        string
	}{
		{"all answer", nodesOf(a, b), nodesOf(b, a), 0, "n1:10 n2:20"},
		{"one has ended", nodesOf(a, b), nodesOf(a), 0, "n1:10"},
		{"one is silent", nodesOf(a, b), nodesOf(a), 1, "n1:10 n2:20 silent"},
		{"another leads", nodesOf(a, b), nodesOf(a, next), 1, "n1:10 n2:21"},
		{"two populations of a node", nodesOf(a), nodesOf(other, a), 0, "n1:10 n1:11"},
		{"two jobs of a node", nil, nodesOf(a, control.Status{Node: "n1", Job: "2", Leader: 12}), 0, "n1:1 n1:2"},
		{"all have ended", nodesOf(a, b), nil, 0, "n1:10 silent n2:20 silent"},
		{"none ever", nil, nil, 1, ""},
	} {
		var got []string
		for _, n := range merged(merged(nil, tt.old, 0, noon), tt.answer, tt.errs, noon) {
			text := n.name
			if n.name == n.Node {
				text += ":" + count(n.Leader)
			}
			if n.missing {
				text += " silent"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, " "); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

// TestAge: a clock of a node that is wrong makes no data old, once the node has
// said something new; a leader that says the same again and again does.
func TestAge(t *testing.T) {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	says := func(s int) []control.Status { return nodesOf(control.Status{Node: "n1", Time: at(s)}) }
	var nodes []node
	for _, step := range []struct{ now, clock, age int }{
		{now: 100, clock: 40, age: 60}, // wrong or old, it is not known which
		{now: 101, clock: 41, age: 0},
		{now: 103, clock: 42, age: 1}, // an answer that took 1 s
		{now: 104, clock: 44, age: 0},
		{now: 105, clock: 44, age: 1},
		{now: 120, clock: 44, age: 16}, // it hangs
	} {
		nodes = merged(nodes, says(step.clock), 0, at(step.now))
		if got := nodes[0].age(at(step.now)); got != time.Duration(step.age)*time.Second {
			t.Errorf("at %d with the node's clock at %d: %v old, want %d s", step.now, step.clock, got, step.age)
		}
	}
	ahead := merged(nil, says(500), 0, at(100))
	if got := ahead[0].age(at(100)); got != 0 {
		t.Errorf("a clock that is ahead: %v old", got)
	}
}

func TestNatural(t *testing.T) {
	names := []string{"n10", "n2", "gpu-0100", "gpu-0017", "n", "n2a", "m10"}
	slices.SortFunc(names, natural)
	if got, want := strings.Join(names, " "), "gpu-0017 gpu-0100 m10 n n2 n2a n10"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSort: each key of each table sorts by what its column shows.
func TestSort(t *testing.T) {
	s := scene("n1", 0, 3, 4)
	big := 3 * rss.GiB
	s.Procs[6].PSS = &big
	s.Procs[7].State = "Z"
	s.Procs[8].Maps, s.Procs[8].FDs, s.Procs[8].Threads, s.Procs[8].Shmem, s.Procs[8].Anon = 90000, 9000, 900, 90*rss.GiB, 90*rss.GiB
	var b strings.Builder
	for _, v := range []view{ranksView, procsView} {
		for _, c := range columns[v] {
			for _, reversed := range []bool{false, true} {
				m := shown(40, 24, nodesOf(s))
				m.tables[v].sort, m.tables[v].reverse = c.key, reversed
				m = m.arranged()
				if !slices.ContainsFunc(m.fitted(v), func(f column) bool { return f.key == c.key }) {
					t.Errorf("%v sorted by %s does not show it on 40 columns", v, c.key)
				}
				fmt.Fprintf(&b, "%v by %s, reversed %v:", v, c.key, reversed)
				for i := range m.tables[v].rows {
					fmt.Fprintf(&b, " %d", m.tables[v].rows[i].pid)
				}
				b.WriteByte('\n')
			}
		}
	}
	golden.Check(t, "testdata/sorted.txt", b.String())
}

// TestFilter: how many ranks and processes of two nodes meet some words.
func TestFilter(t *testing.T) {
	var b strings.Builder
	for _, words := range []string{
		"", "WORKER", "n2", "3", "401", "40104", "rank=3", "rank=4", "pid=401", "role=trainer node=n1", "step=0 worker rank=2",
		"command=pt_data", "imagenet", "train.py worker", "nothing",
	} {
		m := shown(80, 24, twoNodes()).Filter(words)
		fmt.Fprintf(&b, "%q: %d ranks, %d processes\n", words, len(m.tables[ranksView].rows), len(m.tables[procsView].rows))
	}
	golden.Check(t, "testdata/filtered.txt", b.String())
}

func TestClean(t *testing.T) {
	for _, tt := range []struct {
		in, unicode, ascii string
		width              int
	}{
		{"python3", "python3", "python3", 7},
		{"\x1b[31mred\x1b[0m", "?[31mred?[0m", "?[31mred?[0m", 12},
		{"a\tb\nc\rd\x00\x7f", "a b c d??", "a b c d??", 9},
		{"数据", "数据", "??", 4},
		{"한글か", "한글か", "???", 6},
		{"🐍", "🐍", "?", 2},
		{"é", "é", "?", 1},
		{"e\u0301x", "ex", "e?x", 2},
		{"\xff\xfe", "??", "??", 2},
		{"a\u202eb\u200bc\u009bd", "a?b?c?d", "a?b?c?d", 7},
	} {
		if got := clean(tt.in, text.Style{}); got != tt.unicode || text.Columns(got) != tt.width {
			t.Errorf("clean(%q) = %q of %d columns, want %q of %d", tt.in, got, text.Columns(got), tt.unicode, tt.width)
		}
		if got := clean(tt.in, text.Style{ASCII: true}); got != tt.ascii {
			t.Errorf("clean(%q) in ASCII = %q, want %q", tt.in, got, tt.ascii)
		}
	}
}

// FuzzPut: whatever a name has in it, a text stays in its place and steers
// nothing.
func FuzzPut(f *testing.F) {
	for _, s := range []string{"python", "数据加载器", "\x1b[2J", "e\u0301", "\xff", "a🐍b", "\u202e"} {
		f.Add(s, 7)
	}
	f.Fuzz(func(t *testing.T, s string, end int) {
		for _, look := range []text.Style{{ASCII: true}, {}} {
			frame := newFrame(12, 1, look)
			end = max(3, min(end, 12))
			last := frame.put(3, 0, end, Plain, s)
			for x, c := range frame.line(0) {
				switch {
				case (x < 3 || x >= last || x >= end) && c != blank:
					t.Fatalf("%q: %q at %d, outside 3 to %d of %d", s, c.r, x, last, end)
				case c.r == 0 && (x == 0 || text.Width(frame.line(0)[x-1].r) != 2):
					t.Fatalf("%q: half a character at %d", s, x)
				case c.r != 0 && !unicode.IsPrint(c.r), look.ASCII && c.r > '~':
					t.Fatalf("%q: %q at %d", s, c.r, x)
				}
			}
			for _, line := range folded(clean(s, look), 10) {
				if text.Columns(line) > 10 {
					t.Fatalf("%q: folded to %q", s, line)
				}
			}
		}
	})
}

func TestFolded(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"  name    one two three", 20, "  name    one two|          three"},
		{"  name    one two three", 16, "  name    one|  two three"},
		{"one two three", 11, "one two|  three"},
		{"abcdefghijklmnopqrst", 10, "abcdefghij|  klmnopqr|  st"},
		{"", 5, ""},
	} {
		if got := strings.Join(folded(tt.in, tt.width), "|"); got != tt.want {
			t.Errorf("folded(%q, %d) = %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}
