package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
)

// onNode is the leader's record of one of two nodes with two ranks each, over ten
// minutes; all of it ends well.
func onNode(n int) recordtest.Ranks {
	first := 2 * (n - 1)
	return recordtest.Ranks{
		Node: fmt.Sprint("n", n), NodeID: n - 1, Nodes: 2, Tasks: 4, First: first, Count: 2, Leader: first, Heavy: first + 1,
		Start: noon, To: minutes, Workers: 2, Limit: 4 * rss.GiB, Share: recordtest.Rising(minutes, 0.3, 0.4+0.2*float64(n)),
		Ends: []recordtest.RankEnd{{Task: first + 1, At: minutes}}, Exit: recordtest.Ended(0, "", event.VerdictFine),
	}
}

// built makes the records.
func built(nodes ...recordtest.Ranks) (runs []*record.Run) {
	for _, n := range nodes {
		runs = append(runs, n.Run())
	}
	return runs
}

// oomOnN2: task 3 is killed on n2, and srun ends the others for it.
func oomOnN2() []*record.Run {
	n1, n2 := onNode(1), onNode(2)
	killed := minutes - 4*time.Second
	n2.Share = func(at time.Duration) float64 {
		if at > killed {
			return 0.4
		}
		return recordtest.Rising(killed, 0.3, 0.99)(at)
	}
	n2.Ends = []recordtest.RankEnd{{Task: 3, At: killed, Signal: "SIGKILL"}}
	n2.Exit = recordtest.Ended(0, "SIGTERM", event.VerdictOOM, event.KernelKills{Level: "/job", Scope: event.ScopeJob, Kills: 1})
	n1.Ends = []recordtest.RankEnd{{Task: 1, At: minutes - time.Second, Signal: "SIGTERM"}}
	n1.Exit = recordtest.Ended(0, "SIGTERM", event.VerdictFine)
	n2.Recycles = []time.Duration{4 * time.Minute, 6 * time.Minute}
	runs := built(n1, n2)
	for _, r := range runs {
		at := minutes - 2*time.Second
		e := signalled(at, "SIGTERM")
		r.Events = append(r.Events[:len(r.Events)-1:len(r.Events)-1], e, r.Events[len(r.Events)-1])
	}
	return runs
}

// leadMoved: the watcher of task 2 is killed on n2, and that of task 3 goes on.
func leadMoved() []*record.Run {
	a, b := onNode(2), onNode(2)
	a.To, a.Exit, a.Ends = 5*time.Minute, nil, nil
	b.From, b.Leader = 5*time.Minute+1500*time.Millisecond, 3
	b.Ends = []recordtest.RankEnd{{Task: 2, At: minutes - time.Second}}
	return built(onNode(1), a, b)
}

// secondLife: the job died on n2 for want of memory and was requeued with more.
func secondLife() []*record.Run {
	runs := oomOnN2()
	for n := 1; n <= 2; n++ {
		again := onNode(n)
		again.Restart, again.Start, again.Limit = 1, noon.Add(time.Hour), 6*rss.GiB
		runs = append(runs, again.Run())
	}
	return runs
}

func saysNodes(nodes ...string) *SlurmSays {
	return &SlurmSays{Source: "sacct", State: "COMPLETED", ExitCode: "0:0", Start: noon, End: noon.Add(minutes + time.Second), Nodes: nodes}
}

// sixtyFour are as many nodes with eight ranks each, of which one node came nearer
// than the others.
func sixtyFour(length time.Duration) (runs []*record.Run) {
	for n := range 64 {
		d := recordtest.Ranks{
			Node: fmt.Sprintf("n%02d", n+1), NodeID: n, Nodes: 64, Tasks: 512, First: 8 * n, Count: 8, Leader: 8 * n, Heavy: 8*n + 5,
			Start: noon.Add(time.Duration(n) * 10 * time.Millisecond), To: length, Workers: 4, Limit: 64 * rss.GiB,
			Share: recordtest.Rising(length, 0.3, 0.5+0.001*float64(n)), Exit: recordtest.Ended(0, "", event.VerdictFine),
		}
		if n == 40 {
			d.Share = recordtest.Rising(length, 0.3, 0.93)
		}
		for task := 8*n + 1; task < 8*n+8; task++ {
			d.Ends = append(d.Ends, recordtest.RankEnd{Task: task, At: length})
		}
		runs = append(runs, d.Run())
	}
	return runs
}

// TestPageTogether: a page has one chart a node under one time, tables of nodes and
// ranks that can be sorted, and says which node is missing. It is small for 64
// nodes.
func TestPageTogether(t *testing.T) {
	for _, test := range []struct {
		name   string
		runs   []*record.Run
		said   *SlurmSays
		charts []string
		has    []string
	}{
		{"two nodes", built(onNode(1), onNode(2)), nil, []string{"n1", "n2"}, []string{"n2 came nearest to its limit", `<h2 id="nodes">Nodes</h2>`, `<h2 id="ranks">Ranks</h2>`, "on n2, "}},
		{"the lead moved", leadMoved(), nil, []string{"n1", "n2"}, []string{"on n2 the lead went from step 0, task 2", "the watcher of step 0, task 3 leads from here on"}},
		{"killed on n2", oomOnN2(), nil, []string{"n1", "n2"}, []string{"step 0, task 3 ended by SIGKILL", "n2 met its limit"}},
		{"a node is missing", built(onNode(1)), saysNodes("n1", "n<2>"), []string{"n1"}, []string{"there is no record of n&lt;2&gt;"}},
		{"two lives", secondLife(), nil, []string{"n1 · life 1", "n1 · life 2", "n2 · life 1", "n2 · life 2"}, []string{`<h2 id="lives">Lives</h2>`, ", life 2</td>"}},
		{"64 nodes", sixtyFour(time.Minute), nil, nil, []string{"n41 came nearest to its limit", "32 more runs are not drawn"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rep, tl := build(test.runs, test.said, noon), series(test.runs)
			page, svg := writeBoth(t, rep, &tl)
			var names []string
			for _, s := range tl.Runs {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff(test.charts, names); diff != "" && test.charts != nil {
				t.Errorf("charts: %s", diff)
			}
			for _, want := range test.has {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
			if len(page) > pageBound {
				t.Errorf("%d bytes", len(page))
			}
			if n := len(tl.Runs); n > 12 {
				if !strings.Contains(svg, ">n41</text>") || strings.Count(svg, "<g transform") != mostPanels {
					t.Error("the static chart lacks the node that came nearest")
				}
			}
		})
	}
}
