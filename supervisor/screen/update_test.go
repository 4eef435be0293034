package screen

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

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
	add(!m.frozen.IsZero(), "frozen")
	add(m.mode != browsing, [...]string{"", "filtering", "sorting", "asking", "reading"}[m.mode])
	add(m.pane != nil && m.pane.top > 0, "scrolled")
	add(m.message != "", "says "+m.message)
	return strings.Join(parts, ", ")
}

// TestKeys: what each key does, from two nodes with two ranks and eight workers
// each.
func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		keys    []Key
		want    string
		effects []Effect
	}{
		{nil, "ranks, row 0 of 4, by rank", nil},
		{[]Key{KeyDown, "j", KeyUp}, "ranks, row 1 of 4, by rank", nil},
		{[]Key{KeyUp, "k"}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{KeyEnd, KeyDown, "j"}, "ranks, row 3 of 4, by rank", nil},
		{[]Key{"G", "g"}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{KeyTab}, "processes, row 0 of 20, by rss", nil},
		{[]Key{KeyTab, KeyTab}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{"p", "p"}, "processes, row 0 of 20, by rss", nil},
		{[]Key{"p", "r"}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{"p", KeyPageDown}, "processes, row 10 of 20, by rss", nil},
		{[]Key{"p", KeyPageDown, KeyPageUp}, "processes, row 0 of 20, by rss", nil},
		{[]Key{"s"}, "ranks, row 0 of 4, by rank, sorting", nil},
		{[]Key{"s", KeyRight, KeyRight, KeyEnter}, "ranks, row 0 of 4, by pid", nil},
		{[]Key{"s", "s", "s", "s", KeyEscape}, "ranks, row 0 of 4, by rss", nil},
		{[]Key{"s", KeyLeft, KeyLeft, KeyEnter}, "ranks, row 0 of 4, by command", nil},
		{[]Key{"s", "S", "q"}, "ranks, row 0 of 4, by rank, reversed", nil},
		{[]Key{"S"}, "ranks, row 0 of 4, by rank, reversed", nil},
		{append([]Key{"p", "/"}, letters("worker")...), "processes, row 0 of 16, by rss, filter worker, filtering", nil},
		{append([]Key{"p", "/"}, append(letters("q"), KeyBackspace, "t", "r", "a", "i", "n", "e", "r", KeyEnter)...), "processes, row 0 of 4, by rss, filter trainer", nil},
		{append([]Key{"p", "/"}, append(letters("x y"), KeyEscape)...), "processes, row 0 of 20, by rss", nil},
		{append([]Key{"p", "/"}, append(letters("trainer"), KeyCtrlU, "3", KeyEnter)...), "processes, row 0 of 5, by rss, filter 3", nil},
		{append([]Key{"/"}, append(letters("ä数"), KeyBackspace, KeyBackspace, KeyBackspace, KeyEnter)...), "ranks, row 0 of 4, by rank", nil},
		{append([]Key{"p", "/"}, append(letters("worker"), KeyEnter, KeyEscape)...), "processes, row 0 of 20, by rss", nil},
		{append([]Key{"p", "/"}, append(letters("worker"), KeyDown)...), "processes, row 1 of 16, by rss, filter worker, filtering", nil},
		{[]Key{KeyEnter}, "ranks, row 0 of 4, by rank, reading", nil},
		{[]Key{"i", "q"}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{"i", KeyEscape}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{"l", KeyPageDown}, "ranks, row 0 of 4, by rank, reading, scrolled", nil},
		{[]Key{"l", KeyEnd, KeyHome}, "ranks, row 0 of 4, by rank, reading", nil},
		{[]Key{"?", "j", "k", "k"}, "ranks, row 0 of 4, by rank, reading", nil},
		{[]Key{" "}, "ranks, row 0 of 4, by rank, frozen", nil},
		{[]Key{" ", " "}, "ranks, row 0 of 4, by rank", nil},
		{[]Key{"q"}, "ranks, row 0 of 4, by rank", []Effect{Quit}},
		{[]Key{KeyCtrlC}, "ranks, row 0 of 4, by rank", []Effect{Quit}},
		{[]Key{"/", "q", KeyCtrlC}, "ranks, row 0 of 0, by rank, filter q, filtering", []Effect{Quit}},
		{[]Key{"i", KeyCtrlC}, "ranks, row 0 of 4, by rank, reading", []Effect{Quit}},
		{[]Key{KeyCtrlZ}, "ranks, row 0 of 4, by rank", []Effect{Suspend}},
		{[]Key{KeyCtrlL}, "ranks, row 0 of 4, by rank", []Effect{Redraw}},
		{[]Key{"R"}, "ranks, row 0 of 4, by rank, asking", nil},
		{[]Key{"R", "x", KeyEnter, KeyDown}, "ranks, row 0 of 4, by rank, asking", nil},
		{[]Key{"R", "n"}, "ranks, row 0 of 4, by rank, says nothing was done", nil},
		{[]Key{"T", KeyEscape, KeyDown}, "ranks, row 1 of 4, by rank", nil},
		{[]Key{"C", "y"}, "ranks, row 0 of 4, by rank", []Effect{Do}},
		{[]Key{"i", "C", "y"}, "ranks, row 0 of 4, by rank, reading", []Effect{Do}},
		{[]Key{"i", "C", "n"}, "ranks, row 0 of 4, by rank, reading, says nothing was done", nil},
		{[]Key{"l", "R"}, "ranks, row 0 of 4, by rank, reading", nil},
		{append([]Key{"/"}, append(letters("absent"), KeyEnter, "R")...), "ranks, row 0 of 0, by rank, filter absent, says there is nothing to choose", nil},
		{append([]Key{"/"}, append(letters("absent"), KeyEnter, "i")...), "ranks, row 0 of 0, by rank, filter absent, says there is nothing to inspect", nil},
		{[]Key{"x", "Ω"}, "ranks, row 0 of 4, by rank", nil},
	} {
		m, effects := typed(shown(80, 24, twoNodes()), tt.keys...)
		if got := state(m); got != tt.want || !slices.Equal(effects, tt.effects) {
			t.Errorf("%q: %s %v\nwant %s %v", tt.keys, got, effects, tt.want, tt.effects)
		}
	}
}

// TestKeysAnywhere: whatever the data and the size, no key brings the screen down.
func TestKeysAnywhere(t *testing.T) {
	keys := append(letters("jkgGrpssS/x?hl iRTCyn q"), KeyEnter, KeyEscape, KeyTab, KeyPageDown, KeyPageUp, KeyUp, KeyDown, KeyHome, KeyEnd, KeyLeft, KeyRight, KeyBackspace, KeyCtrlU)
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
	for _, tt := range []struct {
		name     string
		data     []control.Status
		keys     []Key
		question string
		order    Order
		says     string
	}{
		{
			name: "a worker", data: twoNodes(), keys: []Key{"p", "R"}, question: "recycle worker 40304 of rank 3 on n2 (1.16 GiB)",
			order: Order{Job: "4711", Node: "n2", Leader: 1002, Command: control.Command{Do: event.ActionRecycle, PIDs: []int{40304}}, Rank: -1},
		},
		{
			name: "a rank's workers", data: twoNodes(), keys: []Key{KeyDown, "T"}, question: "trim 4 processes of rank 1 on n1: 40101, 40102, 40103 and 40104",
			order: Order{Job: "4711", Node: "n1", Leader: 1000, Command: control.Command{Do: event.ActionTrim, PIDs: []int{40101, 40102, 40103, 40104}}, Rank: 1},
		},
		{
			name: "a rank's checkpoint", data: twoNodes(), keys: []Key{KeyEnd, "C"}, question: "have rank 3 (process 40300) on n2 write a checkpoint",
			order: Order{Job: "4711", Node: "n2", Leader: 1002, Command: control.Command{Do: event.ActionSignal, Ranks: []int{3}}, Rank: 3},
		},
		{
			name: "of a worker its rank", data: twoNodes(), keys: []Key{"p", "C"}, question: "have rank 3 (process 40300) on n2 write a checkpoint",
			order: Order{Job: "4711", Node: "n2", Leader: 1002, Command: control.Command{Do: event.ActionSignal, Ranks: []int{3}}, Rank: 3},
		},
		{
			name: "outside Slurm", data: nodesOf(alone), keys: []Key{"C"}, question: "have process 40000 on n1 write a checkpoint",
			order: Order{Job: "4711", Node: "n1", Leader: 1000, Command: control.Command{Do: event.ActionSignal, PIDs: []int{40000}}, Rank: -1},
		},
		{
			name: "two steps with a rank 0 each", data: nodesOf(twice), keys: []Key{KeyDown, "C"}, question: "have process 40100 on n1 write a checkpoint",
			order: Order{Job: "4711", Node: "n1", Leader: 1000, Command: control.Command{Do: event.ActionSignal, PIDs: []int{40100}}, Rank: -1},
		},
		{name: "a trainer", data: twoNodes(), keys: append(append([]Key{"p", "/"}, letters("trainer")...), KeyEnter, "R"), says: "process 40000 (trainer) cannot be recycled: it is no loader worker"},
		{name: "without a hook", data: nodesOf(off), keys: []Key{"r", "R"}, says: "no process of rank 0 on n1 can be recycled: torch 1.4 is not known"},
		{name: "of no rank", data: nodesOf(stray), keys: []Key{"T"}, says: "process 77 (other) cannot be trimmed: it belongs to no rank"},
		{name: "no checkpoint of no rank", data: nodesOf(stray), keys: []Key{"C"}, says: "process 77 belongs to no rank: it cannot write a checkpoint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := typed(shown(80, 24, tt.data), tt.keys...)
			if m.asked == nil {
				if m.message != tt.says || tt.says == "" {
					t.Fatalf("says %q, want %q", m.message, tt.says)
				}
				return
			}
			if m.asked.question != tt.question {
				t.Errorf("asks %q, want %q", m.asked.question, tt.question)
			}
			// What comes meanwhile does not change who is meant.
			m, _ = m.Update(Answer{nodesOf(scene("n1", 0, 1, 1)), nil, noon.Add(time.Second)})
			m, effects := typed(m, "y")
			tt.order.ID = 1
			if diff := cmp.Diff(tt.order, m.Newest()); diff != "" || !slices.Equal(effects, []Effect{Do}) {
				t.Errorf("%v\n%s", effects, diff)
			}
		})
	}
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
	line := func(m Model) string { return m.activityLines()[0] }
	m, _ := typed(shown(80, 24, twoNodes()), "R", "y")
	id := m.Newest().ID
	m, _ = m.Update(Tick(noon.Add(3 * time.Second)))
	for _, step := range []struct {
		event any
		want  string
	}{
		{nil, "asked recycle of 4 processes of rank 0 on n1: no answer yet, 3 s"},
		{Said{id, control.Result{PID: 40001, OK: true, Freed: 500 * rss.MiB, Paused: 0.012}}, "asked recycle of 4 processes of rank 0 on n1: 40001 done, freed 500 MiB, trainer paused 12 ms"},
		{Said{id, control.Result{PID: 40002, Reason: event.ReasonRecent}}, "asked recycle of 4 processes of rank 0 on n1: 40002 refused: worker recycled less than 30 s ago"},
		{Said{id, control.Result{Done: true}}, "asked recycle of 4 processes of rank 0 on n1: 40002 refused: worker recycled less than 30 s ago"},
		{Ended{id, nil}, "asked recycle of 4 processes of rank 0 on n1: 1 of 2 not done, the last: 40002 refused: worker recycled less than 30 s ago"},
	} {
		if step.event != nil {
			m, _ = m.Update(step.event)
		}
		if got := line(m); got != step.want {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
	m, _ = typed(m, KeyDown, "T", "y")
	m, _ = m.Update(Ended{m.Newest().ID, errors.New("cannot ask the leader:\nno leader is here")})
	if got, want := line(m), "asked trim of 4 processes of rank 1 on n1: cannot ask the leader: no leader is here"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m, _ = m.Update(Tick(noon.Add(2 * time.Minute)))
	if got := line(m); strings.HasPrefix(got, "asked") {
		t.Errorf("after two minutes still %q", got)
	}
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

// TestFrozen: what comes while the display is frozen is shown afterwards.
func TestFrozen(t *testing.T) {
	m, _ := typed(shown(80, 24, nodesOf(scene("n1", 0, 1, 4))), " ")
	before := len(m.procs)
	m, _ = m.Update(Answer{nodesOf(scene("n1", 0, 1, 9)), nil, noon.Add(time.Second)})
	if len(m.procs) != before {
		t.Errorf("%d processes, %d before", len(m.procs), before)
	}
	if m, _ = typed(m, " "); len(m.procs) != 10 {
		t.Errorf("%d processes when it goes on, want 10", len(m.procs))
	}
}
