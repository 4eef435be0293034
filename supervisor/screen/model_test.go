package screen

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
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
