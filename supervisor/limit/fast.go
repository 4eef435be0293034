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

type Fast struct {
	// Limit is the binding limit of the last full reading, with Used and
	// UsedMax as of now.
	Limit event.Limit
	// Exact says that Used is as good as a full reading's; else it is the last
	// one moved by what one counter grew, and UsedMax bounds it.
	Exact bool
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
func (s *Set) Fast(now time.Duration, threshold rss.Bytes, sum func() (rss.Bytes, error)) (Fast, bool) {
	f := Fast{Limit: s.fast.limit}
	switch {
	case f.Limit.Name == "":
		return f, false
	case s.fast.level != nil:
		return s.fastCgroup(f, now, threshold)
	case f.Limit.Name == event.LimitNode:
		m, err := s.meminfo.Read()
		if err != nil {
			return f, false
		}
		f.Limit.Used = m.Used()
		f.Limit.UsedMax, f.Exact = f.Limit.Used, true
		return f, true
	case sum == nil || f.Limit.Accounting == event.AccountingVirtual:
		return f, false
	}
	n, err := sum()
	if err != nil {
		return f, false
	}
	grown, shrunk := n.Sub(s.fast.rss), s.fast.rss.Sub(n)
	switch f.Limit.Accounting {
	case event.AccountingRSS, event.AccountingCgroup:
		// What slurmstepd sums of its tasks' cgroups is too many files for a fast
		// tick; a full look follows where this comes near.
		f.Limit.Used = (f.Limit.Used + grown).Sub(shrunk)
		f.Limit.UsedMax = f.Limit.Used
	default:
		// What was dropped may have been shared and so not counted.
		f.Limit.Used = f.Limit.Used.Sub(shrunk)
		f.Limit.UsedMax += grown
	}
	return f, true
}

func (s *Set) fastCgroup(f Fast, now time.Duration, threshold rss.Bytes) (Fast, bool) {
	l := s.fast.level
	usage, err := l.Usage()
	if err != nil {
		return f, false
	}
	estimate := usage.Sub(l.mem.Reclaimable) + s.fast.extra
	atLimit := usage.Of(l.last.Max) >= full
	if (estimate >= threshold || atLimit && now-l.statAt >= l.statEvery()) && s.readMemory(l, now) {
		usage, estimate = l.mem.Charged, l.mem.Unreclaimable+s.fast.extra
		f.Exact = true
	}
	f.Limit.Charged = usage
	f.Limit.Used = estimate
	f.Limit.UsedMax = usage + s.fast.extra
	if f.Exact {
		f.Limit.WorkingSet = l.mem.WorkingSet
		f.Limit.UsedMax = estimate
	}
	return f, true
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
