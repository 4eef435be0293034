package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// ledFacts is what a leader's record tells of its node.
type ledFacts struct {
	led    bool
	from   time.Duration // when it began to record
	failed bool          // a rank is known to have failed
	// handed says that another rank's watcher went on where the record breaks off:
	// what is missing of it is there.
	handed bool
}

func (f *facts) rank(at time.Duration, e *event.Rank) {
	f.led = true
	if e.What == event.RankLeads && f.from == 0 {
		f.from = at
	}
	f.failed = f.failed || e.Failed()
}

// settle finds which records of a job's nodes go on in others, and puts the run
// that came nearest to a limit last.
func (j *job) settle() {
	if !slices.ContainsFunc(j.runs, func(f *facts) bool { return f.led }) {
		return
	}
	by := slices.Clone(j.runs)
	slices.SortStableFunc(by, func(a, b *facts) int {
		return cmp.Or(cmp.Compare(a.run.Meta.Node, b.run.Meta.Node), a.began().Compare(b.began()))
	})
	for i := 1; i < len(by); i++ {
		a, b := by[i-1], by[i]
		gap := b.began().Sub(a.run.Wall(a.end))
		a.handed = a.exit == nil && !a.run.Live && a.led && b.led && a.run.Meta.Node == b.run.Meta.Node &&
			b.run.Meta.Start.Before(a.run.Wall(a.end)) && gap > -handSlack && gap <= withIt
	}
	share := func(f *facts) float64 {
		if l := f.nearest(); l != nil {
			return l.Ratio()
		}
		return 0
	}
	slices.SortStableFunc(j.runs, func(a, b *facts) int { return cmp.Compare(share(a), share(b)) })
}

// began is when the record began.
func (f *facts) began() time.Time { return f.run.Wall(f.from) }

// onNode says of which node a job's figures are, where it had several and they have
// leaders; else nothing.
func (o *observed) onNode(jobs []*facts) string {
	nodes := map[string]bool{}
	for _, f := range jobs {
		nodes[f.run.Meta.Node] = true
	}
	if len(nodes) < 2 || !o.facts.led {
		return ""
	}
	return fmt.Sprintf("on %s, which needed most of %s; --mem is for each", clean(o.facts.run.Meta.Node), event.Many(len(nodes), "node"))
}
