package analysis

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/record"
)

// mostShift is by how much CLOCK_MONOTONIC may correct a time of day. More is
// another time namespace, not a clock that was set.
const mostShift = time.Hour

// AlignClocks puts runs of one boot on one clock: where the time of day was set between
// their starts, CLOCK_MONOTONIC says how far apart they were, and the last one's time of
// day counts. Runs that move are copied.
func AlignClocks(runs []*record.Run) []*record.Run {
	type boot struct{ node, id string }
	last := map[boot]*record.Meta{}
	for _, r := range runs {
		if r == nil || r.Meta.BootID == "" || r.Meta.Mono <= 0 {
			continue
		}
		b := boot{r.Meta.Node, r.Meta.BootID}
		if o := last[b]; o == nil || r.Meta.Mono > o.Mono {
			last[b] = &r.Meta
		}
	}
	out := slices.Clone(runs)
	for i, r := range out {
		if r == nil || r.Meta.Mono <= 0 {
			continue
		}
		o := last[boot{r.Meta.Node, r.Meta.BootID}]
		if o == nil {
			continue
		}
		start := o.Start.Add(r.Meta.Mono - o.Mono)
		if by := start.Sub(r.Meta.Start); by != 0 && by.Abs() < mostShift {
			moved := *r
			moved.Meta.Start = start
			out[i] = &moved
		}
	}
	return out
}

// worthSkew is from where on a start before the job's own is noted. Slurm's times are
// whole seconds.
const worthSkew = time.Second

// clock says what the times of these runs are worth.
func clock(looks []*RunScan, said *SlurmSays, last int) *Clock {
	c := &Clock{Basis: "wall"}
	nodes, boots, monotonic := map[string]bool{}, map[string]bool{}, true
	first := map[string]map[string]time.Time{} // of a step, by node
	for _, k := range looks {
		m := &k.Run.Meta
		nodes[m.Node], boots[m.BootID] = true, true
		monotonic = monotonic && m.Mono > 0
		if m.Job == nil || m.Job.Restarts != last {
			continue
		}
		if said != nil && !said.Start.IsZero() {
			if by := said.Start.Sub(m.Start); by > worthSkew && appliesTo(said, k, last) {
				if c.Behind == nil {
					c.Behind = map[string]float64{}
				}
				c.Behind[m.Node] = max(c.Behind[m.Node], by.Seconds())
			}
		}
		if first[m.Job.Step] == nil {
			first[m.Job.Step] = map[string]time.Time{}
		}
		if at, ok := first[m.Job.Step][m.Node]; !ok || m.Start.Before(at) {
			first[m.Job.Step][m.Node] = m.Start
		}
	}
	if len(nodes) == 1 && len(boots) == 1 && monotonic {
		c.Basis = "monotonic"
	}
	for _, byNode := range first {
		if len(byNode) < 2 {
			continue
		}
		var low, high time.Time
		for _, at := range byNode {
			widen(&low, &high, at, at)
		}
		if spread := high.Sub(low).Seconds(); c.Spread == nil || spread < *c.Spread {
			c.Spread = &spread
		}
	}
	c.Nodes = len(nodes)
	return c
}
