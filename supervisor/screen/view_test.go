package screen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// TestFrames holds what a user sees, a file a frame.
func TestFrames(t *testing.T) {
	one := []control.Status{scene("n1", 0, 1, 4)}
	many := []control.Status{scene("gpu-0017", 0, 64, 16)}
	two := twoNodes()
	later := func(m Model, d time.Duration) Model {
		m, _ = m.Update(Tick(noon.Add(d)))
		return m
	}
	after := func(m Model, keys string) Model {
		m, _ = typed(m, keysOf(keys)...)
		return m
	}
	ascii := func(m Model) Model {
		m.Look.ASCII = true
		return m
	}
	paper := func(m Model) Model {
		m.Live = false
		return m
	}
	partly := shown(80, 24, two)
	partly, _ = partly.Update(Answer{two[:1], []error{errSilent}, noon.Add(12 * time.Second)})
	over := shown(80, 24, one)
	over, _ = over.Update(Answer{nil, nil, noon.Add(3 * time.Second)})
	outside := scene("login1", 0, 1, 2)
	outside.Job, outside.Ranks[0].Task, outside.Ranks[0].Step = "", -1, ""
	idle := []control.Status{scene("n1", 0, 1, 4)}
	idle[0].Last = nil
	idleTwo := []control.Status{scene("n1", 0, 1, 4), scene("n2", 1, 1, 4)}
	idleTwo[0].Last, idleTwo[1].Last = nil, nil
	idleTwo[1].Since = noon.Add(-time.Minute)
	for i := range outside.Procs {
		outside.Procs[i].Task, outside.Procs[i].Step = -1, ""
	}
	for name, m := range map[string]Model{
		"one-80x24":         shown(80, 24, one),
		"one-80x24-ascii":   ascii(shown(80, 24, one)),
		"one-200x60":        shown(200, 60, one),
		"leaking-80x24":     shown(80, 24, []control.Status{leaking()}),
		"leaking-20x5":      ascii(shown(20, 5, []control.Status{leaking()})),
		"one-ranks":         after(shown(80, 24, one), "tab"),
		"idle":              shown(80, 24, idle),
		"idle-two":          shown(80, 24, idleTwo),
		"outside-slurm":     shown(80, 24, []control.Status{outside}),
		"many-80x24":        shown(80, 24, many),
		"many-200x60":       shown(200, 60, many),
		"two-80x24":         shown(80, 24, two),
		"two-200x60":        shown(200, 60, two),
		"two-paper":         paper(shown(80, 0, two)),
		"two-paper-24":      paper(shown(80, 24, two)),
		"narrow-40x10":      shown(40, 10, two),
		"tiny-20x4":         shown(20, 4, two),
		"start":             New(80, 24, plainLook),
		"no-run":            shown(80, 24, nil),
		"no-answer":         shown(80, 24, nil, errSilent),
		"one-is-silent":     partly,
		"over":              over,
		"old":               later(shown(80, 24, two), 75*time.Second),
		"old-40x10":         later(shown(40, 10, two), 75*time.Second),
		"odd-names":         shown(80, 24, []control.Status{odd()}),
		"help":              after(shown(80, 24, one), "?"),
		"inspect-process":   after(shown(80, 24, one), "down i"),
		"inspect-rank":      after(shown(80, 24, two), "down enter"),
		"inspect-40x10":     after(shown(40, 10, two), "down enter"),
		"sorting":           after(shown(80, 24, one), "s right right"),
		"filter":            after(shown(80, 24, two), "p / worker space rank=3"),
		"filter-nothing":    after(shown(80, 24, two), "/ absent enter"),
		"question-process":  after(shown(80, 24, one), "down R"),
		"question-rank":     after(shown(80, 24, many), "down down T"),
		"question-40x10":    after(shown(40, 10, two), "C"),
		"refused":           after(shown(80, 24, one), "R"),
		"end-of-many":       after(shown(80, 24, many), "p end"),
		"asked":             after(shown(80, 24, one), "down R y"),
		"sorted-by-command": shown(200, 24, two).SortBy("command"),
	} {
		t.Run(name, func(t *testing.T) {
			f := m.View()
			got := f.Text()
			if m.H > 0 && (f.W != m.W || f.H != m.H) {
				t.Errorf("the frame is %dx%d, the screen %dx%d", f.W, f.H, m.W, m.H)
			}
			golden.Check(t, "testdata/"+name+".txt", got)
		})
	}
}

var noon = time.Date(2026, 11, 22, 12, 3, 22, 0, time.UTC)

func seconds64(s float64) *float64 { return &s }

// scene is what one node says: ranks with a trainer and so many workers each.
func scene(name string, first, ranks, workers int) control.Status {
	const unit = 37 * rss.MiB
	s := control.Status{
		V: 1, Time: noon, Node: name, Job: "4711", Leader: 1000 + first, Version: "v0.7.0", Since: noon.Add(-2 * time.Hour),
		Rules: []string{"80%:warn", "eta<10m0s:warn", "85%:trim", "90%:recycle"},
		Ours:  []event.Cost{{Process: "watcher", PID: 1000 + first, RSS: 11 * rss.MiB, PSS: 5 * rss.MiB, CPU: 3.25}},
	}
	for i := range ranks {
		task := first + i
		pid := 40000 + 100*task
		s.Ranks = append(s.Ranks, control.Rank{
			Task: task, Step: "0", PID: pid, Holder: pid - 2, Watcher: pid - 1, Leads: i == 0, Command: "python train.py --epochs 90 --data /scratch/imagenet.lmdb",
			Since: noon.Add(-90 * time.Minute), Memory: memory(unit*30, unit*20, unit*8, unit*2, 12e3),
			Procs: workers + 1, Workers: workers, Recycled: i % 3, Hook: "recycle",
		})
		s.Procs = append(s.Procs, control.Proc{
			PID: pid, Start: uint64(800000 + pid), Parent: pid - 2, Role: rss.RoleTrainer, Task: task, Step: "0", Comm: "python", State: "R",
			Memory: memory(unit*30, unit*20, unit*8, unit*2, 12e3), Maps: 4200, FDs: 311, Threads: 48,
		})
		for w := range workers {
			p := control.Proc{
				PID: pid + 1 + w, Start: uint64(800001 + pid + w), Parent: pid, Role: rss.RoleWorker, Task: task, Step: "0", Comm: "pt_data_worker", State: "S",
				Memory:       memory(unit.Scale(float64(20+(task+3*w)%17)), unit*3, unit.Scale(float64(16+(task+3*w)%17)), unit, float64(1+(w+task)%5)*0.4e6),
				WorkerCounts: control.WorkerCounts{Trims: 3 + w, Recycled: w % 2}, Threads: 2, CanRecycle: true, CanTrim: true,
			}
			s.Procs = append(s.Procs, p)
			s.Ranks[i].Add(p.Memory)
		}
	}
	limit := rss.Bytes(ranks) * 4 * rss.GiB
	s.Limits = limitsOf(
		event.Limit{
			Name: event.LimitCgroup, Scope: event.ScopeJob, Accounting: event.AccountingCgroup, Used: limit.Scale(0.823), Limit: limit, ETA: seconds64(724), Binding: true,
			Charged: limit.Scale(0.99), WorkingSet: limit.Scale(0.9), Enforcer: "kernel OOM killer", Level: "/sys/fs/cgroup/memory/slurm/uid_1000/job_4711",
			UsedSource: "memory.stat", LimitSource: "/sys/fs/cgroup/memory/slurm/uid_1000/job_4711/memory.limit_in_bytes",
		},
		event.Limit{
			Name: event.LimitSlurm, Scope: event.ScopeStep, Level: "4711.0", Accounting: event.AccountingPSS, Used: limit.Scale(0.61), UsedMax: limit.Scale(0.68), Age: 14,
			Limit: limit, Enforcer: "slurmstepd, by OverMemoryKill", UsedSource: "smaps_rollup", LimitSource: "RLIMIT_RSS",
		},
		event.Limit{Name: event.LimitMaps, Scope: event.ScopeProcess, Used: 4200, Limit: 65530, PID: 40000 + 100*first, Role: rss.RoleTrainer, Enforcer: "kernel, by ENOMEM"},
		event.Limit{Name: event.LimitFDs, Scope: event.ScopeProcess, Used: 311, Limit: 1024, PID: 40000 + 100*first, Role: rss.RoleTrainer, Enforcer: "kernel, by EMFILE"},
		event.Limit{Name: event.LimitSHM, Scope: event.ScopeNode, Used: 500 * rss.MiB, Limit: 64 * rss.GiB, Enforcer: "kernel, by SIGBUS, or ENOSPC of write"},
		event.Limit{Name: event.LimitTasks, Scope: event.ScopeUser, Used: 1200, Limit: 4096, Enforcer: "kernel, by EAGAIN of fork"},
		event.Limit{Name: event.LimitTime, Scope: event.ScopeJob, ETA: seconds64(7200), Enforcer: "Slurm", Note: "the job ends at 2026-11-22T14:03:22Z"},
	)
	s.Limits[0].Growth = seconds64(3.5 * float64(rss.MiB))
	peak := s.Limits[0].Limit
	peak.Used = peak.Limit.Scale(0.94)
	s.Peak = &peak
	s.Saved = &event.Saved{WorkerTrims: 18, Recycled: 3, Actions: []event.ActionSum{
		{Action: event.ActionTrim, Fired: 4, Worked: 4}, {Action: event.ActionRecycle, Fired: 3, Worked: 3, Paused: 0.16},
	}}
	s.Last = []control.Outcome{
		{
			Outcome: event.Outcome{Head: event.Head{Time: noon.Add(-40 * time.Second)}, OK: true, PID: 40000 + 100*first + 2, Before: 3 * rss.GiB, Freed: 612 * rss.MiB, Duration: 0.41, Paused: 0.012},
			Action:  event.ActionRecycle, Rule: "90%:recycle",
		},
		{
			Outcome: event.Outcome{Head: event.Head{Time: noon.Add(-70 * time.Second)}, Reason: event.ReasonTooLittle, Before: 3 * rss.GiB, Freed: 3 * rss.MiB},
			Action:  event.ActionTrim, Rule: event.AskedFor,
		},
	}
	return s
}

func memory(all, anon, file, shmem rss.Bytes, growth float64) control.Memory {
	return control.Memory{RSS: all, Anon: anon, File: file, Shmem: shmem, Growth: &growth}
}

func limitsOf(list ...event.Limit) (all []control.Limit) {
	for _, l := range list {
		all = append(all, control.Limit{Limit: l})
	}
	return all
}

var plainLook = text.Style{}

// shown is a live screen with an answer.
func shown(w, h int, statuses []control.Status, errs ...error) Model {
	m := New(w, h, plainLook)
	m.Live, m.Zone = true, time.UTC
	m, _ = m.Update(Answer{statuses, errs, noon})
	return m
}

// twoNodes is a job of two nodes with two ranks each.
func twoNodes() []control.Status {
	a, b := scene("n1", 0, 2, 4), scene("n2", 2, 2, 4)
	b.Limits[0].Used, b.Limits[0].ETA = b.Limits[0].Limit.Limit.Scale(0.912), seconds64(240)
	b.Action = &control.Action{Action: event.ActionRecycle, Rule: "90%:recycle", PIDs: []int{40201}, Since: noon.Add(-2 * time.Second)}
	return []control.Status{a, b}
}

var errSilent = errors.New("n2 does not answer: srun: error: Unable to create step for job 4711: Job/step already completing or completed")

// typed gives keys to a model one after the other.
func typed(m Model, keys ...Key) (Model, []Effect) {
	var all []Effect
	for _, k := range keys {
		var effects []Effect
		m, effects = m.Update(k)
		all = append(all, effects...)
	}
	return m, all
}

// keysOf are keys by their names, with a _ in them for a blank, and what else is typed: "p / wor down".
func keysOf(text string) (keys []Key) {
	named := []Key{
		KeyUp, KeyDown, KeyLeft, KeyRight, KeyPageUp, KeyPageDown, KeyHome, KeyEnd, KeyTab, KeyEnter, KeyEscape, KeyBackspace,
		KeyCtrlC, KeyCtrlL, KeyCtrlU, KeyCtrlZ,
	}
	for word := range strings.FieldsSeq(text) {
		name := Key(strings.ReplaceAll(word, "_", " "))
		switch {
		case word == "space":
			keys = append(keys, " ")
		case slices.Contains(named, name):
			keys = append(keys, name)
		default:
			for _, r := range word {
				keys = append(keys, Key(r))
			}
		}
	}
	return keys
}

// odd are names that would break a screen.
func odd() control.Status {
	s := scene("n1", 0, 1, 6)
	for i, name := range []string{"\x1b[31mred\x1b[0m", "数据加载器进程名", "tab\tand\nline", "\xff\xfe\x80", "e\u0301\u0301\u0301\u202eevil", "🐍python🐍", "a\u200bb\x7f"} {
		s.Procs[i].Comm = name
		s.Procs[i].RSS = rss.Bytes(100-i) * rss.MiB
	}
	s.Ranks[0].Command = "python \x1b]0;title\x07 " + fmt.Sprintf("%c", 0x9b)
	return s
}

func oddNodes() []control.Status { return []control.Status{odd()} }

func nodesOf(s ...control.Status) []control.Status { return s }

// grown is what a node says a second later: every worker has grown by what it
// said, and the rate itself changes a little.
func grown(s control.Status, n int) control.Status {
	s.Time = s.Time.Add(time.Second)
	s.Ranks, s.Procs, s.Limits = slices.Clone(s.Ranks), slices.Clone(s.Procs), slices.Clone(s.Limits)
	for i := range s.Procs {
		p := &s.Procs[i]
		growth := *p.Growth
		p.RSS += rss.Bytes(growth)
		p.File += rss.Bytes(growth)
		if (i+n)%4 == 0 {
			growth *= 1.01
			p.Growth = &growth
		}
	}
	for i := range s.Ranks {
		s.Ranks[i].RSS += 8e6
		s.Ranks[i].Growth = seconds64(*s.Ranks[i].Growth * 1.002)
	}
	s.Limits[0].Used += 500e6
	return s
}

// TestMain is the tests, or the screen that they look at: the test binary with the
// argument "screen" and how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "screen" {
		os.Exit(fakeScreen(os.Args[2], os.Args[3:]))
	}
	rsstest.DefaultSignals()
	os.Exit(m.Run())
}

// fakeScreen shows a scene that grows ten times a second.
func fakeScreen(how string, args []string) int {
	m := New(80, 24, text.Style{Color: true})
	m.Interval = 100 * time.Millisecond
	s, n := scene("n1", 0, 4, 8), 0
	s.Time = time.Now()
	var asked atomic.Int64
	o := Options{
		In: os.Stdin, Out: os.Stdout, Model: m,
		Fetch: func(context.Context) ([]control.Status, []error) {
			n++
			switch {
			case how == "panic" && n == 3:
				panic("of the fetching")
			case how == "many": // as many bytes as can be had
				time.Sleep(time.Millisecond)
				if err := os.WriteFile(args[0], fmt.Append(nil, n), 0o600); err != nil {
					panic(err)
				}
				s = scene("n1", n, 4, 8)
			}
			s = grown(s, n)
			s.Time = time.Now()
			return nodesOf(s), nil
		},
		Do: func(_ context.Context, o Order, each func(control.Result)) error {
			if how == "panic in an order" {
				panic("of the order")
			}
			asked.Add(1)
			for _, pid := range o.Command.PIDs {
				each(control.Result{PID: pid, OK: true})
			}
			return nil
		},
	}
	if how == "many" {
		o.Model.Interval = 0
	}
	err := Run(context.Background(), o)
	var sig *SignalError
	if errors.As(err, &sig) {
		Raise(sig.Signal)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	fmt.Println("left after", asked.Load(), "orders")
	return 0
}

// state is what keys change, for people.
func state(m Model) string {
	t := &m.tables[m.view]
	parts := []string{m.view.String(), fmt.Sprintf("row %d of %d", t.index, len(t.rows)), "by " + t.sort}
	add := func(on bool, text string) {
		if on {
			parts = append(parts, text)
		}
	}
	add(t.reverse, "reversed")
	add(m.filter != "", "filter "+m.filter)
	add(m.mode != browsing, [...]string{"", "filtering", "asking", "reading"}[m.mode])
	add(m.pane != nil && m.pane.top > 0, "scrolled")
	add(m.message != "", "says "+m.message)
	return strings.Join(parts, ", ")
}

// TestKeys: what each key does, from two nodes with two ranks and eight workers
// each.
func TestKeys(t *testing.T) {
	var b strings.Builder
	for _, keys := range []string{
		"", "down j up", "up k", "end down j", "G g", "tab", "tab tab", "p p", "p r", "p page_down",
		"p page_down page_up", "s", "right right", "s s s s", "left left", "s S", "S",
		"p / worker", "p / q backspace trainer enter", "p / x space y escape", "p / trainer ctrl-u 3 enter",
		"/ ä数 backspace backspace backspace enter", "p / worker enter escape", "p / worker down", "enter", "i q",
		"i escape", "? page_down", "? end home", "? j k k", "q", "ctrl-c", "/ q ctrl-c",
		"i ctrl-c", "ctrl-z", "ctrl-l", "R", "R x enter down", "R n", "T escape down", "C y", "i C y", "i C n",
		"? R", "/ absent enter R", "/ absent enter i", "x Ω",
	} {
		m, effects := typed(shown(80, 24, twoNodes()), keysOf(keys)...)
		fmt.Fprintf(&b, "%-38s %s\n", keys, state(m))
		for _, e := range effects {
			fmt.Fprintf(&b, "%38s and %s\n", "", [...]string{Quit: "quit", Suspend: "suspend", Redraw: "redraw", Do: "do"}[e])
		}
	}
	golden.Check(t, "testdata/keys.txt", b.String())
}

// TestKeysAnywhere: whatever the data and the size, no key brings the screen down.
func TestKeysAnywhere(t *testing.T) {
	keys := keysOf("jkgGrpssS/x?hl space iRTCyn space q enter escape tab page_down page_up up down home end left right backspace ctrl-u")
	many := nodesOf(scene("n1", 0, 12, 3))
	for _, data := range [][]control.Status{nil, nodesOf(control.Status{Node: "n1"}), twoNodes(), many, oddNodes()} {
		for _, size := range []Size{{0, 0}, {1, 1}, {30, 6}, {31, 7}, {40, 12}, {57, 13}, {80, 24}, {79, 40}, {300, 100}} {
			m := shown(size.W, size.H, data, errSilent)
			for _, k := range keys {
				for _, then := range keys {
					m, _ = typed(m, k, then)
					if then == KeyEnter {
						f := m.View()
						if size.H > 0 && (f.W != max(1, size.W) || f.H != size.H) {
							t.Fatalf("%v: the frame is %dx%d", size, f.W, f.H)
						}
					}
				}
			}
		}
	}
}

// TestOrders: a question names exactly who is meant, and an order is to them.
func TestOrders(t *testing.T) {
	alone := scene("n1", 0, 1, 2)
	alone.Ranks[0].Task = -1
	twice := scene("n1", 0, 2, 1)
	twice.Ranks[1].Task, twice.Ranks[1].Step = 0, "1"
	for i := range twice.Procs[2:] {
		twice.Procs[2+i].Task, twice.Procs[2+i].Step = 0, "1"
	}
	for i := range alone.Procs {
		alone.Procs[i].Task = -1
	}
	off := scene("n1", 0, 1, 2)
	off.Ranks[0].Hook, off.Ranks[0].Why = "off", "torch 1.4 is not known"
	for i := range off.Procs {
		off.Procs[i].CanRecycle, off.Procs[i].CanTrim = false, i > 0
	}
	stray := scene("n1", 0, 1, 1)
	stray.Procs = append(stray.Procs, control.Proc{PID: 77, Task: -1, Role: rss.RoleOther, Comm: "bash", Memory: control.Memory{RSS: 100 * rss.GiB}})
	var b strings.Builder
	for _, tt := range []struct {
		name string
		data []control.Status
		keys string
	}{
		{"a worker", twoNodes(), "p R"},
		{"a rank's workers", twoNodes(), "down T"},
		{"a rank's checkpoint", twoNodes(), "end C"},
		{"of a worker its rank", twoNodes(), "p C"},
		{"outside Slurm", nodesOf(alone), "C"},
		{"two steps with a rank 0 each", nodesOf(twice), "down C"},
		{"a trainer", twoNodes(), "p / trainer enter R"},
		{"without a hook", nodesOf(off), "r R"},
		{"of no rank", nodesOf(stray), "T"},
		{"no checkpoint of no rank", nodesOf(stray), "C"},
	} {
		m, _ := typed(shown(80, 24, tt.data), keysOf(tt.keys)...)
		if m.asked == nil {
			fmt.Fprintf(&b, "%s: %s\n", tt.name, m.message)
			continue
		}
		fmt.Fprintf(&b, "%s: %s?\n", tt.name, m.asked.question)
		// What comes meanwhile does not change who is meant.
		m, _ = m.Update(Answer{nodesOf(scene("n1", 0, 1, 1)), nil, noon.Add(time.Second)})
		m, effects := typed(m, "y")
		if !slices.Equal(effects, []Effect{Do}) {
			t.Errorf("%s: %v", tt.name, effects)
		}
		fmt.Fprintf(&b, "\t%+v\n", m.Newest())
	}
	golden.Check(t, "testdata/orders.txt", b.String())
}

// TestOrderOfTheSilent: nothing is asked of a node that does not answer.
func TestOrderOfTheSilent(t *testing.T) {
	m := shown(80, 24, twoNodes())
	m, _ = m.Update(Answer{twoNodes()[:1], []error{errSilent}, noon.Add(time.Second)})
	m, _ = typed(m, KeyEnd, "R")
	if m.mode == asking || !strings.Contains(m.message, "n2 did not answer") {
		t.Errorf("%s", state(m))
	}
}

// TestResults: how an order goes is shown, and its end for a while.
func TestResults(t *testing.T) {
	var b strings.Builder
	m := shown(80, 24, twoNodes())
	after := func(events ...any) {
		for _, e := range events {
			m, _ = m.Update(e)
			fmt.Fprintln(&b, m.activityLines()[0])
		}
	}
	m, _ = typed(m, "R", "y")
	id := m.Newest().ID
	after(
		Tick(noon.Add(3*time.Second)),
		Said{id, control.Result{PID: 40001, OK: true, Freed: 500 * rss.MiB, Paused: 0.012}},
		Said{id, control.Result{PID: 40002, Reason: event.ReasonRecent}},
		Said{id, control.Result{Done: true}},
		Ended{id, nil},
	)
	m, _ = typed(m, KeyDown, "T", "y")
	after(Ended{m.Newest().ID, errors.New("cannot ask the leader:\nno leader is here")}, Tick(noon.Add(2*time.Minute)))
	golden.Check(t, "testdata/results.txt", b.String())
}

// TestMarkStays: the mark stays with its row when others overtake it, and at the
// top when it was not moved.
func TestMarkStays(t *testing.T) {
	s := scene("n1", 0, 1, 4)
	for _, moved := range []bool{false, true} {
		m := shown(80, 24, nodesOf(s))
		if moved {
			m, _ = typed(m, KeyDown)
		}
		before := m.marked().pid
		next := scene("n1", 0, 1, 4)
		next.Procs[1].RSS = 100 * rss.GiB
		m, _ = m.Update(Answer{nodesOf(next), nil, noon.Add(time.Second)})
		if got := m.marked().pid; (got == before) != moved {
			t.Errorf("moved %v: the mark was at %d, is at %d", moved, before, got)
		}
		next.Procs = next.Procs[:2] // where its row has gone the mark stays on the screen
		m, _ = m.Update(Answer{nodesOf(next), nil, noon.Add(2 * time.Second)})
		if m.marked() == nil {
			t.Error("no mark")
		}
	}
}

// TestInspectTheEnded: a pane goes on showing what has ended, and says so.
func TestInspectTheEnded(t *testing.T) {
	m, _ := typed(shown(80, 24, nodesOf(scene("n1", 0, 1, 4))), KeyDown, "i")
	if text := strings.Join(m.paneLines(), "\n"); !strings.Contains(text, "process 40004") || strings.Contains(text, "has ended") {
		t.Fatal(text)
	}
	m, _ = m.Update(Answer{nodesOf(scene("n1", 0, 1, 2)), nil, noon.Add(time.Second)})
	if text := strings.Join(m.paneLines(), "\n"); !strings.Contains(text, "process 40004") || !strings.Contains(text, "It has ended") {
		t.Error(text)
	}
}
