package supervisor

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/limit"
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
