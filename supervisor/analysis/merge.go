package analysis

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// mergeRoles takes of each role the run in which it had most: memory of two
// nodes is under no common limit, so it is not added up.
func mergeRoles(looks []*RunScan) []Role {
	out := []Role{}
	for _, k := range looks {
		for _, g := range k.roles {
			switch i := slices.IndexFunc(out, func(r Role) bool { return r.Role == g.most.Role }); {
			case !g.seen:
			case i < 0:
				out = append(out, g.most)
			case g.most.Peak > out[i].Peak:
				out[i] = g.most
			}
		}
	}
	slices.SortFunc(out, func(a, b Role) int {
		return cmp.Or(slices.Index(roleOrder, a.Role)-slices.Index(roleOrder, b.Role), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// roleOrder is the order of roles in texts: starters first, helpers last.
var roleOrder = []rss.Role{rss.RoleAgent, rss.RoleTrainer, rss.RoleWorker, rss.RolePinThread, rss.RoleShmManager, rss.RoleOther}

// mergePeaks takes the fullest run by each accounting.
func mergePeaks(looks []*RunScan) Peaks {
	var p Peaks
	for i, to := range [accountings]**Peak{byRSS: &p.RSS, byPSS: &p.PSS, byNoShared: &p.NoShared, byCgroup: &p.Cgroup} {
		for _, k := range looks {
			if v := &k.peaks[i]; v.known && (*to == nil || v.v > (*to).Bytes) {
				*to = &Peak{Bytes: v.v, At: k.Wall(v.at), Run: k.Run.Meta.ID}
			}
		}
	}
	return p
}

func mergeActions(looks []*RunScan) (all event.Saved) {
	for _, k := range looks {
		all.Add(&k.Actions.Saved)
	}
	return all
}

func mergeCures(looks []*RunScan) []Cure {
	all := []Cure{}
	for _, k := range looks {
		for i := range k.Findings.cures {
			addCure(&all, &k.Findings.cures[i])
		}
	}
	slices.SortFunc(all, func(a, b Cure) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Remedy, b.Remedy))
	})
	return all
}
