package limit

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// killCount are a level's OOM counters when the set was made.
type killCount struct {
	level *cgroup.Level
	was   cgroup.Events
	leaf  bool
	seen  uint64         // [cgroup.Level.OOMs] that AwaitVictim has waited for
	last  *cgroup.Events // of a level that is no longer looked at
}

func (s *cgroups) countKills(l *cgroup.Level, leaf bool) {
	e, err := l.Events()
	if err != nil && ended(l, err) {
		return
	}
	if err != nil {
		s.warn("cgroup", "%v", err)
		return
	}
	k := killCount{level: l, was: e, leaf: leaf}
	if l.Version == 2 {
		k.seen, _ = l.OOMs()
	}
	s.kills = append(s.kills, k)
}

// closeKills reads the counters of a level for the last time, and keeps them where
// something was killed or slowed down. The level may be gone.
func (s *cgroups) closeKills(l *cgroup.Level) {
	i := slices.IndexFunc(s.kills, func(k killCount) bool { return k.level == l })
	if i < 0 {
		return
	}
	if e, err := l.Events(); err == nil && (e.OOMKill > s.kills[i].was.OOMKill || e.High > s.kills[i].was.High) {
		s.kills[i].last = &e
	} else {
		s.kills = slices.Delete(s.kills, i, i+1)
	}
}

// Kills is what has happened at one level since the set was made.
type Kills struct {
	event.KernelKills        // 0 kills, too
	High              uint64 // allocations slowed down above memory.high
}

// OOMKills returns what the OOM killer has done at every level that has a
// limit, and at the leaf, since the set was made. Read it as "rose" or "did not": a group kill
// counts some processes twice, and on v1 kills in directories that are gone are lost.
func (s *cgroups) OOMKills() []Kills {
	var out []Kills
	for _, k := range s.kills {
		e, err := k.events()
		if err != nil && (ended(k.level, err) || s.hasMoved(k.level)) {
			continue
		}
		if err != nil {
			s.warn("cgroup", "%v", err)
			continue
		}
		out = append(out, Kills{event.KernelKills{
			Level: k.level.Dir, Scope: event.ScopeOfCgroup(k.level.Name), Leaf: k.leaf, Kills: less(e.OOMKill, k.was.OOMKill),
		}, less(e.High, k.was.High)})
	}
	return out
}

// AwaitVictim returns once the memory of a process that the kernel's OOM killer has just ended is
// given back, after 200 ms at the latest. Until then the limit is full, but the kernel no longer finds
// the victim among the processes (css_task_iter passes over one whose threads are gone): whoever
// allocates, be it by opening a file, has it kill another one, which may be us. What this reads
// is read by descriptors that are open.
func (s *cgroups) AwaitVictim() {
	const longest, step, enough = 200 * time.Millisecond, 2 * time.Millisecond, rss.MiB
	waited := time.Duration(0)
	for i := range s.kills {
		k := &s.kills[i]
		if k.level.Version != 2 || k.last != nil { // v1 does not report a kill
			continue
		}
		ooms, err := k.level.OOMs()
		if err != nil || ooms <= k.seen {
			continue
		}
		k.seen = ooms
		for ; waited < longest; waited += step {
			most, err1 := k.level.Max()
			used, err2 := k.level.Usage()
			if err1 != nil || err2 != nil || used+enough <= most {
				break
			}
			time.Sleep(step)
		}
	}
}

func (k *killCount) events() (cgroup.Events, error) {
	if k.last != nil {
		return *k.last, nil
	}
	return k.level.Events()
}

func less(now, was uint64) uint64 { return max(now, was) - was }

// ByKernel is where the kernel's OOM killer struck, the innermost level
// first.
func ByKernel(levels []Kills) (all []event.KernelKills) {
	for _, k := range levels {
		if k.Kills > 0 {
			all = append(all, k.KernelKills)
		}
	}
	slices.SortStableFunc(all, func(a, b event.KernelKills) int {
		return cmp.Or(cmp.Compare(len(b.Level), len(a.Level)), cmp.Compare(a.Level, b.Level))
	})
	return all
}

// Slowed is how many allocations memory.high slowed down, at the level where it was most.
func Slowed(levels []Kills) (n uint64) {
	for _, k := range levels {
		n = max(n, k.High)
	}
	return n
}

// OwnKills is how many processes of the job the kernel's OOM killer ended at least.
func OwnKills(levels []Kills) (kills uint64) {
	for _, k := range levels {
		// A level's count includes the levels below it on cgroup v2: above the
		// job they are others', whose processes are none of its own.
		if k.Leaf || k.Scope != event.ScopeCgroup {
			kills = max(kills, k.Kills)
		}
	}
	return kills
}
