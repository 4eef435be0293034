package phrase

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// absent says why there is none of a limit on memory, and what to do instead.
var absent = map[event.LimitName]string{
	event.LimitCgroup:   "no cgroup limits memory here",
	event.LimitThrottle: "no memory.high below memory.max slows anything down here (cgroup v1 has none)",
	event.LimitSlurm:    "Slurm enforces no limit on memory here (OverMemoryKill is off, or this is no Slurm job)",
	event.LimitNode:     "a cgroup limits memory here, so the node's is not looked at",
}

// Unmatched names the rules for a limit on memory that there is none of, a line for each.
// One may come later, as a site sets it on a job that runs.
func Unmatched(rules []event.Rule, limits []event.Limit) (lines []string) {
	for _, r := range rules {
		if absent[r.Limit] == "" || slices.ContainsFunc(limits, func(l event.Limit) bool { return l.Name == r.Limit && l.Limit > 0 }) {
			continue
		}
		lines = append(lines, fmt.Sprintf("the rule %q does not fire now: %s; rsswarden limits prints those that there are, leave the word %s out for all of them", r, absent[r.Limit], r.Limit))
	}
	return lines
}
