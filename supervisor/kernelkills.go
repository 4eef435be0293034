package supervisor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// killsByKernel is where the kernel's OOM killer struck, the innermost level
// first.
func killsByKernel(levels []limit.Kills) []event.KernelKills {
	var all []event.KernelKills
	for _, k := range levels {
		if k.OOMKill > 0 {
			all = append(all, event.KernelKills{Level: k.Level, Scope: k.Scope, Kills: k.OOMKill, Leaf: k.Leaf})
		}
	}
	slices.SortStableFunc(all, func(a, b event.KernelKills) int {
		return cmp.Or(cmp.Compare(len(b.Level), len(a.Level)), cmp.Compare(a.Level, b.Level))
	})
	return all
}

// ownKills is how many processes of the job the kernel's OOM killer ended at least.
func ownKills(levels []limit.Kills) (kills uint64) {
	for _, k := range levels {
		// A level's count includes the levels below it on cgroup v2: above the
		// job they are others', whose processes are none of its own.
		if k.Leaf || k.Scope != event.ScopeCgroup {
			kills = max(kills, k.OOMKill)
		}
	}
	return kills
}

// slowed says which memory.high allocations waited for, empty where none did. A
// level's count includes the levels below it: the innermost one is to blame.
func slowed(levels []limit.Kills, limits []event.Limit) string {
	var inner *limit.Kills
	for i := range levels {
		if k := &levels[i]; k.High > 0 && (inner == nil || len(k.Level) > len(inner.Level)) {
			inner = k
		}
	}
	if inner == nil {
		return ""
	}
	for i := range limits {
		if l := &limits[i]; l.Name == event.LimitThrottle && l.Level == inner.Level {
			return fmt.Sprintf("allocations above %v were slowed down %s (limit from %s); nothing is killed for that",
				l.Limit, text.Times(int(inner.High)), l.Place())
		}
	}
	return fmt.Sprintf("allocations were slowed down %s by memory.high of %s", text.Times(int(inner.High)), inner.Level)
}
