package limit

import (
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// fastState is what the last full reading left for the fast tick.
type fastState struct {
	limit event.Limit // the binding limit; empty where there is none
	level *level      // its cgroup, nil where it is none
	extra rss.Bytes   // Used less the cgroup's unreclaimable: swap
	rss   rss.Bytes   // sum of the tree's RSS in the last full reading
}

const (
	// statPause is the least time between two readings of memory.stat for no
	// other reason than that usage is at the limit: 20 a second.
	statPause = 50 * time.Millisecond
	// statShare is the part of a core that those may take. The kernel flushes the
	// counters of every CPU for each, which takes milliseconds on large nodes.
	statShare = 0.02
)

// statEvery is the least time between two such readings.
func (l *level) statEvery() time.Duration {
	return min(max(statPause, l.statCost.Pause(statShare)), time.Second)
}

// Fast reads one counter of the binding limit: the cgroup's usage, the node's
// meminfo, or by sum the RSS of the tree ([proctree.Reader].SumRSS), whichever
// the limit is compared with. It reports false where no limit is binding or
// the counter cannot be read.
//
// memory.stat is read once usage less what was last seen to be reclaimable
// reaches threshold: only it can tell whether a full reading, which costs more,
// is called for. While usage is at the limit, where memory can turn
// unreclaimable without usage growing, it is read 20 times a second at most,
// and where a reading is expensive for no more than 2 % of a core.
//
// Of a cgroup Used is as good as a full reading's where it equals UsedMax; else it is the last one moved by
// what one counter grew, and UsedMax bounds it.
func (s *Set) Fast(now time.Duration, threshold rss.Bytes, sum func() (rss.Bytes, error)) (l event.Limit, ok bool) {
	l = s.fast.limit
	switch {
	case l.Name == "":
		return l, false
	case s.fast.level != nil:
		return s.fastCgroup(l, now, threshold)
	case l.Name == event.LimitNode:
		m, err := s.meminfo.Read()
		if err != nil {
			return l, false
		}
		l.Used, l.UsedMax = m.Used(), m.Used()
		return l, true
	case sum == nil || l.Accounting == event.AccountingVirtual:
		return l, false
	}
	n, err := sum()
	if err != nil {
		return l, false
	}
	grown, shrunk := n.Sub(s.fast.rss), s.fast.rss.Sub(n)
	switch l.Accounting {
	case event.AccountingRSS, event.AccountingCgroup:
		// What slurmstepd sums of its tasks' cgroups is too many files for a fast
		// tick; a full look follows where this comes near.
		l.Used = (l.Used + grown).Sub(shrunk)
		l.UsedMax = l.Used
	default:
		// What was dropped may have been shared and so not counted.
		l.Used = l.Used.Sub(shrunk)
		l.UsedMax += grown
	}
	return l, true
}

func (s *Set) fastCgroup(e event.Limit, now time.Duration, threshold rss.Bytes) (event.Limit, bool) {
	l := s.fast.level
	usage, err := l.Usage()
	if err != nil {
		return e, false
	}
	e.Charged, e.Used, e.UsedMax = usage, usage.Sub(l.mem.Reclaimable)+s.fast.extra, usage+s.fast.extra
	atLimit := usage.Of(l.last.Max) >= full
	if (e.Used >= threshold || atLimit && now-l.statAt >= l.statEvery()) && s.readMemory(l, now) {
		e.Used = l.mem.Unreclaimable + s.fast.extra
		e.UsedMax, e.Charged, e.WorkingSet = e.Used, l.mem.Charged, l.mem.WorkingSet
	}
	return e, true
}

func (s *Set) remember(sample *rss.Sample, binding event.Limit) {
	s.fast = fastState{limit: binding}
	if binding.Accounting == event.AccountingCgroup {
		for _, l := range s.all() {
			if l.Dir == binding.Level {
				s.fast.level = l
				s.fast.extra = binding.Used.Sub(l.mem.Unreclaimable)
			}
		}
	}
	for i := range sample.Procs {
		s.fast.rss += sample.Procs[i].RSS
	}
}
