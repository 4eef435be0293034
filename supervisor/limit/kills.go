package limit

import (
	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// killCount is what a level's OOM counters stood at when the set was made.
type killCount struct {
	level *cgroup.Level
	was   cgroup.Events
}

func (s *Set) countKills(l *cgroup.Level) {
	e, err := l.Events()
	if err != nil && ended(l, err) {
		return
	}
	if err != nil {
		s.warn("cgroup", "%v", err)
		return
	}
	s.kills = append(s.kills, killCount{l, e})
}

// Kills is what has happened at one level since the set was made.
type Kills struct {
	Level string
	Scope event.Scope
	// Leaf says that the processes are in this directory, not below it.
	Leaf bool
	// OOMKill counts processes that the kernel's OOM killer ended. Read it as
	// "rose" or "did not": a group kill counts some twice, and on v1 kills in
	// directories that are gone are lost.
	OOMKill uint64
	// Hit counts how often the charge met the limit, page cache included.
	Hit uint64
	// High counts allocations slowed down above memory.high.
	High uint64
}

// OOMKills returns what the OOM killer has done at every level that has a
// limit, and at the leaf, since the set was made.
func (s *Set) OOMKills() []Kills {
	var out []Kills
	for _, k := range s.kills {
		e, err := k.level.Events()
		if err != nil && ended(k.level, err) {
			continue
		}
		if err != nil {
			s.warn("cgroup", "%v", err)
			continue
		}
		out = append(out, Kills{
			Level: k.level.Dir, Scope: scope(k.level.Name), Leaf: k.level == s.path.Levels[0],
			OOMKill: less(e.OOMKill, k.was.OOMKill), Hit: less(e.Hit, k.was.Hit), High: less(e.High, k.was.High),
		})
	}
	return out
}

func less(now, was uint64) uint64 {
	if now < was {
		return 0
	}
	return now - was
}

// ChargePeak returns the highest charge in the life of the binding cgroup, page
// cache included, and the level it was read at: a hint, since the cgroup may
// have lived before the command. It reports false where the kernel keeps none.
func (s *Set) ChargePeak() (rss.Bytes, string, bool) {
	if s.path == nil {
		return 0, "", false
	}
	l := s.path.Levels[0]
	if s.fast.level != nil {
		l = s.fast.level.Level
	}
	n, err := l.Peak()
	return n, l.Dir, err == nil
}
