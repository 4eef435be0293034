package limit

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
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
	s.node.update()
	out := s.cgroups.limits(sample.Mono)
	out = append(out, s.step.limits(sample)...)
	out = append(out, s.readUser(sample)...)
	out = append(out, s.node.limits(out, s.holdsTree)...)
	out = append(out, s.step.time(sample.At)...)
	s.remember(sample, bind(out))
	return out
}

// bind puts limits into their order and marks the one that is binding, which it
// returns; empty where none is.
func bind(limits []event.Limit) event.Limit {
	order(limits)
	if len(limits) == 0 || rank(limits[0].Name) != 0 {
		return event.Limit{}
	}
	limits[0].Binding = true
	return limits[0]
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

// NeedsPSS says that a limit is compared in PSS, so that smaps_rollup is worth
// its cost.
func (s *Set) NeedsPSS() bool {
	sums, _ := s.rules.Sums()
	return event.Accounting(sums) == event.AccountingPSS ||
		s.hasUser() && s.user.accounting == event.AccountingPSS
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
