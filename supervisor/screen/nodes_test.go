package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/golden"
	"github.com/rsswarden/rsswarden/supervisor/control"
)

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
