package report

import (
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

// nodeRun is one run to draw: that of a node, where several ranks led one after the
// other.
type nodeRun struct {
	*record.Run
	also []string // the IDs of the others that are in it
}

// perNode joins the records of a node and life that go on in each other, so that a
// node has one chart.
func perNode(runs []*record.Run) []nodeRun {
	var out []nodeRun
	taken := map[*record.Run]bool{}
	for _, r := range runs {
		if taken[r] {
			continue
		}
		if group := sameLead(r, runs); len(group) > 1 {
			if one, ok := record.Join(group); ok {
				d := nodeRun{Run: one}
				for _, g := range group {
					taken[g] = true
					d.also = append(d.also, g.Meta.ID)
				}
				out = append(out, d)
				continue
			}
		}
		out = append(out, nodeRun{Run: r})
	}
	return out
}

// sameLead are the leaders' records of the node and life of r, by time.
func sameLead(r *record.Run, runs []*record.Run) (group []*record.Run) {
	if _, led := r.Recorded(); !led || r.Meta.Job == nil {
		return nil
	}
	for _, o := range runs {
		if _, led := o.Recorded(); led && o.Meta.Job != nil && o.Meta.Node == r.Meta.Node && o.Meta.Job.ID == r.Meta.Job.ID && o.Meta.Job.Restarts == r.Meta.Job.Restarts {
			group = append(group, o)
		}
	}
	slices.SortStableFunc(group, func(a, b *record.Run) int {
		x, _ := a.Recorded()
		y, _ := b.Recorded()
		return a.Wall(x).Compare(b.Wall(y))
	})
	return group
}

// choose keeps the runs to draw where there are too many: those that broke off, and
// those that came nearest to a limit by their exit events.
func choose(runs []nodeRun, most int) []nodeRun {
	if len(runs) <= most {
		return runs
	}
	weight := make(map[*record.Run]float64, len(runs))
	order := slices.Clone(runs)
	for _, d := range runs {
		switch e := d.Exit(); {
		case e == nil, e.Verdict == event.VerdictOOM:
			weight[d.Run] = 2
		case e.Binding != nil:
			weight[d.Run] = e.Binding.Ratio()
		}
	}
	slices.SortStableFunc(order, func(a, b nodeRun) int {
		switch x, y := weight[a.Run], weight[b.Run]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	keep := map[*record.Run]bool{}
	for _, d := range order[:most] {
		keep[d.Run] = true
	}
	return slices.DeleteFunc(slices.Clone(runs), func(d nodeRun) bool { return !keep[d.Run] })
}
