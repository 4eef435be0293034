package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/record"
)

const (
	// handSlack is how much earlier than the end of a record another rank may
	// have taken the lead, by two clocks that are read one after the other.
	handSlack = time.Second
	// withIt is how soon after the last of its record a rank must have ended for
	// the record to tell why.
	withIt = 5 * time.Second
)

// handOver finds which records go on in another one of their node, and gives those
// that break off the end that the next one knows of.
func handOver(looks []*RunScan) {
	var led []*RunScan
	for _, k := range looks {
		if k.Ranks.led && k.Run.Meta.Job != nil {
			led = append(led, k)
		}
	}
	before := successions(led)
	for i, n := range before {
		led[i].Line = led[firstOf(before, i)].Run
		if n < 0 {
			continue
		}
		a, b := led[n], led[i]
		end, taken := a.Wall(a.End), b.Wall(b.from())
		a.Handing = &Handover{Next: b, At: taken, gap: taken.Sub(end), lost: a.Exit == nil || a.Exit.Code == nil && a.Exit.Signal == nil}
		b.Follows = a.Handing.whole(a)
		if a.Exit != nil {
			continue
		}
		r := b.Ranks.find(a.Ranks.List[0].RankKey)
		if r == nil || !r.known() {
			continue
		}
		if ended := b.Wall(r.ended); ended.Sub(end) <= withIt {
			a.Exit = &event.Exit{By: "command", Code: r.code, Signal: r.signal}
			a.exitAt = max(a.End, ended.Sub(a.Run.Meta.Start))
			a.End = a.exitAt
			if f := b.fallen; f != nil && f.RankSeen == r {
				b.fallen = nil // it is reported with the record that saw it
			}
		}
	}
}

// whole says that the two records have all of what was between: of other steps each is for
// itself.
func (h *Handover) whole(from *RunScan) bool {
	return h.gap <= withIt && jobName(from.Run) == jobName(h.Next.Run)
}

func leadChanges(looks []*RunScan, zone *time.Location) (out []LeadChange) {
	for _, k := range looks {
		h := k.Handing
		if h == nil {
			continue
		}
		from, to := k.Ranks.List[0], h.Next.Ranks.List[0]
		out = append(out, LeadChange{
			Node: k.Run.Meta.Node, Restart: k.Restarts(), FromStep: from.Step, From: from.Task, ToStep: to.Step, To: to.Task,
			Time: h.At.In(zone), Gap: max(h.gap.Seconds(), 0), Lost: h.lost,
		})
	}
	slices.SortStableFunc(out, func(a, b LeadChange) int { return a.Time.Compare(b.Time) })
	return out
}

// leaderPeriods cuts the record of a rank that led more than once where another rank led in
// between, into several that follow each other. Where no other is known to have led the
// record stays whole.
func leaderPeriods(runs []*record.Run) (out []*record.Run) {
	for _, r := range runs {
		from := time.Duration(math.MinInt64)
		leads := r.Leads()
		for i, at := range leads {
			if i > 0 && slices.ContainsFunc(runs, func(o *record.Run) bool { return o != r && ledBetween(o, r, leads[i-1], at) }) {
				part := r.Part(from, at)
				part.Live = false
				out = append(out, part)
				from = at
			}
		}
		if from != math.MinInt64 {
			r = r.Part(from, math.MaxInt64)
		}
		out = append(out, r)
	}
	return out
}

// ledBetween says that another rank of the same node and attempt took the lead between
// two moments of a run.
func ledBetween(other, r *record.Run, from, to time.Duration) bool {
	if r.Meta.Job == nil || other.Meta.Job == nil || other.Meta.Node != r.Meta.Node || jobOf(other) != jobOf(r) {
		return false
	}
	return slices.ContainsFunc(other.Leads(), func(at time.Duration) bool {
		w := other.Wall(at)
		return w.After(r.Wall(from)) && w.Before(r.Wall(to))
	})
}

// jobAttempt is one attempt of one job.
type jobAttempt struct {
	cluster, id string
	restarts    int
}

func jobOf(r *record.Run) jobAttempt {
	return jobAttempt{r.Meta.Job.Cluster, r.Meta.Job.ID, r.Meta.Job.Restarts}
}

// jobName is what the runs of one job have in common and no others.
func jobName(r *record.Run) string {
	j := r.Meta.Job
	if j == nil {
		return r.Meta.ID
	}
	// A job that Slurm has requeued is another observation.
	return fmt.Sprintf("%s %s %s %d", j.Cluster, j.ID, j.Step, j.Restarts)
}

// successions returns for each leader's record the index of the one that it went on from, -1
// for none. Leaders of one meeting place follow each other, and their limit is one
// limit. Ranks that were started otherwise meet elsewhere: two such leaders lead the
// same node at the same time, each with a limit of its own.
func successions(all []*RunScan) (before []int) {
	order := make([]int, len(all))
	before = make([]int, len(all))
	for i := range all {
		order[i], before[i] = i, -1
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[a].Wall(all[a].from()).Compare(all[b].Wall(all[b].from())) })
	var last []int // of each line of leaders
	for _, i := range order {
		at := -1
		for n, l := range last {
			if all[l].handsTo(all[i]) && (at < 0 || all[l].likelier(all[last[at]], all[i])) {
				at = n
			}
		}
		if at < 0 {
			last = append(last, i)
			continue
		}
		before[i], last[at] = last[at], i
	}
	return before
}

// firstOf is the first of those that led before one.
func firstOf(before []int, i int) int {
	for before[i] >= 0 {
		i = before[i]
	}
	return i
}

// handsTo says that the next one may have gone on from this one: later on the same
// node, by a rank that was there before. A step that came later is another job for
// the node.
func (k *RunScan) handsTo(next *RunScan) bool {
	ended := k.Wall(k.End)
	return k.Run.Meta.Node == next.Run.Meta.Node && jobOf(k.Run) == jobOf(next.Run) && !k.Run.Live &&
		!ended.After(next.Wall(next.from()).Add(handSlack)) && next.Run.Meta.Start.Before(ended)
}

// likelier says that the next one went on from this one rather than from the other:
// from a leader that knew its rank, else from the one that ended last.
func (k *RunScan) likelier(other, next *RunScan) bool {
	rank := next.Ranks.List[0].RankKey
	if a, b := k.Ranks.find(rank) != nil, other.Ranks.find(rank) != nil; a != b {
		return a
	}
	return k.Wall(k.End).After(other.Wall(other.End))
}

// nodeRun is one run to draw: that of a node, where several ranks led one after the
// other.
type nodeRun struct {
	*record.Run
	also []string // the IDs of the others that are in it
}

// perNode joins the records of a node and attempt that go on in each other, so that a
// node has one chart.
func perNode(runs []*record.Run) (out []nodeRun) {
	type place struct {
		node string
		job  jobAttempt
	}
	led := map[place][]*record.Run{} // by time
	began := map[*record.Run]time.Time{}
	for _, r := range runs {
		if from, leads := r.Recorded(); leads && r.Meta.Job != nil {
			p := place{r.Meta.Node, jobOf(r)}
			led[p], began[r] = append(led[p], r), r.Wall(from)
		}
	}
	taken := map[*record.Run]bool{}
	for _, r := range runs {
		if taken[r] {
			continue
		}
		d := nodeRun{Run: r}
		if _, leads := began[r]; leads {
			group := led[place{r.Meta.Node, jobOf(r)}]
			slices.SortStableFunc(group, func(a, b *record.Run) int { return began[a].Compare(began[b]) })
			if len(group) > 1 {
				if one, ok := record.Join(group); ok {
					d.Run = one
					for _, g := range group {
						taken[g], d.also = true, append(d.also, g.Meta.ID)
					}
				}
			}
		}
		out = append(out, d)
	}
	return out
}

// weight is how much a run is worth to be drawn where there are too many: those that broke
// off come first, then those that came nearest to a limit by their exit events.
func (d nodeRun) weight() float64 {
	switch e := d.Exit(); {
	case e == nil, e.Outcome == event.RunOOM:
		return 2
	case e.Binding != nil:
		return e.Binding.Ratio()
	}
	return 0
}

// Foremost keeps of a list the n of the greatest weight, in their order.
func Foremost[T any](list []T, n int, weight func(T) float64) (out []T) {
	if len(list) <= n {
		return list
	}
	of, order := make([]float64, len(list)), make([]int, len(list))
	for i, x := range list {
		of[i], order[i] = weight(x), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(of[b], of[a]) })
	for _, i := range slices.Sorted(slices.Values(order[:n])) {
		out = append(out, list[i])
	}
	return out
}
