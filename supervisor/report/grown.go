package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Diagnosis is one finding on one role, of all runs in which it was told. What it
// says is of the run in which it weighs most.
type Diagnosis struct {
	Run        string           `json:"run"`
	Finding    event.Finding    `json:"finding"`
	Confidence event.Confidence `json:"confidence"`
	Role       rss.Role         `json:"role,omitempty"`
	PID        int              `json:"pid,omitempty"`
	Bytes      rss.Bytes        `json:"bytes,omitempty"`
	Evidence   []string         `json:"evidence"`
	Advice     []string         `json:"advice"`
	// First is when it was told first, in whichever run, At when this was.
	First time.Time `json:"first"`
	At    time.Time `json:"time"`
	Runs  int       `json:"runs"` // in how many it was told
	// weight orders findings.
	weight float64
}

// mostGrown bounds what is kept of one run: a journal is text that anybody may
// have changed.
const mostGrown = 64

// grown is what was told in one run. The zero value is ready.
type grown struct {
	found []findingSeen
	cures []Cure
}

// findingSeen is one finding as it stands after the last time it was told.
type findingSeen struct {
	*event.Diagnosis
	first, at time.Duration
}

// diagnosed takes in what was told at a moment. It is told again where it has
// become more certain or weighs more, and by a second watcher from the start.
func (g *grown) diagnosed(at time.Duration, d *event.Diagnosis) {
	i := slices.IndexFunc(g.found, func(t findingSeen) bool { return t.Finding == d.Finding && t.Role == d.Role })
	switch {
	case i < 0 && len(g.found) < mostGrown:
		g.found = append(g.found, findingSeen{d, at, at})
	case i >= 0 && d.Rank() >= g.found[i].Rank():
		g.found[i].Diagnosis, g.found[i].at = d, at
	}
}

// first takes in what was told and says that it was not told before.
func (g *grown) first(d *event.Diagnosis) bool {
	n := len(g.found)
	g.diagnosed(0, d)
	return len(g.found) > n
}

// of returns a finding, nil where it was not told.
func (g *grown) of(f event.Finding) *findingSeen {
	if i := slices.IndexFunc(g.found, func(t findingSeen) bool { return t.Finding == f }); i >= 0 {
		return &g.found[i]
	}
	return nil
}

// binding is how the limit adds up that binds the run, empty where none does.
func (k *look) binding() event.Accounting {
	if k.exit != nil && k.exit.Binding != nil {
		return k.exit.Binding.Accounting
	}
	for i := range k.limits {
		if l := &k.limits[i]; l.seen && l.last.Binding {
			return l.Accounting
		}
	}
	return ""
}

// diagnoses puts findings of several runs together, the weightiest first.
type diagnoses struct{ list []Diagnosis }

// add takes in those of one run, in which the tree had so much at most.
func (s *diagnoses) add(id string, wall func(time.Duration) time.Time, g *grown, tree rss.Bytes, by event.Accounting) {
	for i := range g.found {
		t := &g.found[i]
		d := Diagnosis{
			Run: id, Finding: t.Finding, Confidence: t.Confidence, Role: t.Role, PID: t.PID, Bytes: t.Bytes,
			Evidence: append([]string{}, t.Evidence...), Advice: append([]string{}, t.Advice...),
			First: wall(t.first), At: wall(t.at), Runs: 1, weight: t.Weigh(tree, by),
		}
		n := slices.IndexFunc(s.list, func(o Diagnosis) bool { return o.Finding == d.Finding && o.Role == d.Role })
		if n < 0 {
			s.list = append(s.list, d)
			continue
		}
		old := &s.list[n]
		first, runs := old.First, old.Runs+1
		if d.First.Before(first) {
			first = d.First
		}
		if d.weight > old.weight {
			*old = d
		}
		old.First, old.Runs = first, runs
	}
}

func (s *diagnoses) sorted() []Diagnosis {
	slices.SortFunc(s.list, func(a, b Diagnosis) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.Finding, b.Finding), cmp.Compare(a.Role, b.Role))
	})
	return s.list
}

func mergeGrown(looks []*look) []Diagnosis {
	s := diagnoses{list: []Diagnosis{}}
	for _, k := range looks {
		s.add(k.run.Meta.ID, k.wall, &k.grown, k.peaks[byRSS].v, k.binding())
	}
	return s.sorted()
}
