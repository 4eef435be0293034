package screen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/supervisor/control"
)

var update = flag.Bool("update", false, "write the frames of testdata anew")

// TestFrames holds what a user sees, a file a frame.
func TestFrames(t *testing.T) {
	one := []control.Status{scene("n1", 0, 1, 4)}
	many := []control.Status{scene("gpu-0017", 0, 64, 16)}
	two := twoNodes()
	later := func(m Model, d time.Duration) Model {
		m, _ = m.Update(Tick(noon.Add(d)))
		return m
	}
	after := func(m Model, keys ...Key) Model {
		m, _ = typed(m, keys...)
		return m
	}
	ascii := func(m Model) Model {
		m.Look.Unicode = false
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
		"one-ranks":         after(shown(80, 24, one), KeyTab),
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
		"nobody":            shown(80, 24, nil),
		"nobody-answers":    shown(80, 24, nil, errSilent),
		"one-is-silent":     partly,
		"over":              over,
		"old":               later(shown(80, 24, two), 75*time.Second),
		"old-40x10":         later(shown(40, 10, two), 75*time.Second),
		"frozen":            later(after(shown(80, 24, one), " "), 14*time.Second),
		"odd-names":         shown(80, 24, []control.Status{odd()}),
		"help":              after(shown(80, 24, one), "?"),
		"inspect-process":   after(shown(80, 24, one), KeyDown, "i"),
		"inspect-rank":      after(shown(80, 24, two), KeyDown, KeyEnter),
		"inspect-40x10":     after(shown(40, 10, two), KeyDown, KeyEnter),
		"limits":            after(shown(80, 24, two), "l"),
		"sorting":           after(shown(80, 24, one), "s", KeyRight, KeyRight),
		"sorting-40x10":     after(shown(40, 10, one), "s", KeyLeft, KeyLeft, KeyLeft),
		"filter":            after(after(shown(80, 24, two), "p", "/"), letters("worker rank=3")...),
		"filter-nothing":    after(after(shown(80, 24, two), "/"), append(letters("nobody"), KeyEnter)...),
		"question-process":  after(shown(80, 24, one), KeyDown, "R"),
		"question-rank":     after(shown(80, 24, many), KeyDown, KeyDown, "T"),
		"question-40x10":    after(shown(40, 10, two), "C"),
		"refused":           after(shown(80, 24, one), "R"),
		"end-of-many":       after(shown(80, 24, many), "p", KeyEnd),
		"asked":             after(shown(80, 24, one), KeyDown, "R", "y"),
		"sorted-by-command": shown(200, 24, two).SortBy("command"),
	} {
		t.Run(name, func(t *testing.T) {
			f := m.View()
			got := f.Text()
			if m.H > 0 && (f.W != m.W || f.H != m.H) {
				t.Errorf("the frame is %dx%d, the screen %dx%d", f.W, f.H, m.W, m.H)
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("not what testdata has (go test -update writes it):\n%s", diff)
			}
		})
	}
}
