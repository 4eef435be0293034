package limit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/cgroup"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Read returns every limit as of this sample, in the order in which they would
// end the job if all grew alike: the fullest first, then those that end
// nothing, the job's end last. The first that can end the job, or that the
// user set, is marked binding. Limits are read again.
//
// What the tree has moved to is among them: see [Set.Outside].
func (s *Set) Read(sample *rss.Sample) []event.Limit {
	s.follow(sample)
	return s.read(sample)
}

// read is Read of the cgroups that are known.
func (s *Set) read(sample *rss.Sample) []event.Limit {
	now := sample.Mono
	s.tick++
	if m, err := s.meminfo.Read(); err == nil {
		s.node, s.nodeOK = m, true
	} else if s.nodeOK {
		s.warn("node", "%v", err)
	}
	out := s.readCgroup(now)
	out = append(out, s.readSlurm(sample)...)
	out = append(out, s.readUser(sample)...)
	out = append(out, s.readNode(out)...)
	out = append(out, s.readTime(sample.At)...)
	order(out)
	if len(out) > 0 && rank(out[0].Name) == 0 {
		out[0].Binding = true
		s.remember(sample, out[0])
	} else {
		s.remember(sample, event.Limit{})
	}
	return out
}

// order sorts by rank, then by used over limit.
func order(limits []event.Limit) {
	slices.SortStableFunc(limits, func(a, b event.Limit) int {
		if r := cmp.Compare(rank(a.Name), rank(b.Name)); r != 0 {
			return r
		}
		return cmp.Compare(b.UsedMax.Of(b.Limit), a.UsedMax.Of(a.Limit))
	})
}

// rank is 0 for what memory can end or the user chose, 1 for what only slows
// down, 2 for the job's end.
func rank(n event.LimitName) int {
	switch n {
	case event.LimitThrottle:
		return 1
	case event.LimitTime:
		return 2
	}
	return 0
}

// nearAll is the share of the node's memory from which on a limit no longer
// keeps the job from exhausting the node.
const nearAll = 0.95

// readNode returns the node's own limit where no cgroup stands before it.
func (s *Set) readNode(found []event.Limit) []event.Limit {
	if !s.nodeOK {
		return nil
	}
	least := cgroup.Unlimited
	for i := range found {
		if found[i].Name == event.LimitCgroup && s.holdsTree(found[i].Level) {
			least = min(least, found[i].Limit)
		}
	}
	if least.Of(s.node.Size()) < nearAll {
		return nil
	}
	used := s.node.Used()
	e := event.Limit{
		Name: event.LimitNode, Scope: event.ScopeNode, Used: used, UsedMax: used, Limit: s.node.Size(),
		Enforcer:   killer + " of the node",
		UsedSource: "meminfo: MemTotal - MemAvailable", LimitSource: "meminfo: MemTotal",
		Note: "everything on the node counts",
	}
	if least != cgroup.Unlimited {
		e.Note = "the cgroup's limit is all of the node's memory or more; everything on the node counts"
	}
	if s.node.SwapTotal > 0 {
		e.UsedSource += " + SwapTotal - SwapFree"
		e.LimitSource += " + SwapTotal"
		e.Note += fmt.Sprintf("; %v of swap is counted in", s.node.SwapTotal)
	}
	return []event.Limit{e}
}

// readTime returns the job's own end.
func (s *Set) readTime(at time.Time) []event.Limit {
	if s.end.IsZero() {
		return nil
	}
	left := max(s.end.Sub(at).Seconds(), 0)
	source := "scontrol show job: EndTime"
	if s.end.Equal(s.job.End) {
		source = "SLURM_JOB_END_TIME"
	}
	return []event.Limit{{
		Name: event.LimitTime, Scope: event.ScopeJob, ETA: &left,
		Enforcer: "Slurm", LimitSource: source,
		Note: fmt.Sprintf("the job ends at %s", s.end.Format(time.RFC3339)),
	}}
}

// NeedsPSS says that a limit is compared in PSS, so that smaps_rollup is worth
// its cost.
func (s *Set) NeedsPSS() bool {
	sums, _ := s.rules.Sums()
	return event.Accounting(sums) == event.AccountingPSS ||
		s.hasUser() && s.user.accounting == event.AccountingPSS
}

// Accounting returns how the tree is added up for people: that of --limit, of
// the enforcer with the least limit, else rss.
func (s *Set) Accounting() event.Accounting {
	if s.hasUser() {
		return s.user.accounting
	}
	if _, acc, ok := s.least(); ok {
		return acc
	}
	return event.AccountingRSS
}

// Explanation is all that `rsswarden limits` shows.
type Explanation struct {
	// Limits are in the order in which they would end the job.
	Limits []event.Limit `json:"limits"`
	// Looked is every place that was looked at, also those that gave nothing.
	Looked   []Looked `json:"looked"`
	Warnings []string `json:"warnings,omitempty"`
}

// Explain returns the limits of the last reading, given as limits, with how
// they were found. warnings are those that Find and Warnings returned.
func (s *Set) Explain(limits []event.Limit, warnings []Warning) Explanation {
	e := Explanation{Limits: limits, Looked: s.looked}
	for _, w := range warnings {
		e.Warnings = append(e.Warnings, w.String())
	}
	return e
}
