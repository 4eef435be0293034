package phrase

import (
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// absent says why there is none of a limit on memory, and what to do instead.
var absent = map[event.LimitName]string{
	event.LimitCgroup:   "no cgroup limits memory here",
	event.LimitThrottle: "there is no memory.high below memory.max",
	event.LimitSlurm:    "Slurm enforces no memory limit here",
	event.LimitNode:     "a cgroup limits memory here",
}

// Unmatched names the rules for a limit on memory that there is none of, a line for each.
// One may come later, as a site sets it on a job that runs.
func Unmatched(rules []event.Rule, limits []event.Limit) (lines []string) {
	for _, r := range rules {
		if absent[r.Limit] == "" || slices.ContainsFunc(limits, func(l event.Limit) bool { return l.Name == r.Limit && l.Limit > 0 }) {
			continue
		}
		lines = append(lines, fmt.Sprintf("rule %q does not fire: %s; see rsswarden limits", r, absent[r.Limit]))
	}
	return lines
}
