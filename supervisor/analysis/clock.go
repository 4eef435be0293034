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
