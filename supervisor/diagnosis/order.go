package diagnosis

import (
	"cmp"
	"slices"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Findings returns what was found, the weightiest first. The events have no
// heads. They are made anew with a look, each second at first and each 10 s later,
// and whenever a process has ended; asking costs nothing. A nil State finds nothing.
func (s *State) Findings() []event.Diagnosis {
	if s == nil {
		return nil
	}
	out := slices.Clone(s.current)
	for k, old := range s.past {
		i := slices.IndexFunc(out, func(d event.Diagnosis) bool { return key{d.Finding, d.Role} == k })
		switch {
		case i < 0:
			out = append(out, old)
		case old.Rank() > out[i].Rank():
			out[i] = old
		}
	}
	slices.SortFunc(out, func(a, b event.Diagnosis) int {
		return cmp.Or(cmp.Compare(b.Weigh(s.tree, s.accounting), a.Weigh(s.tree, s.accounting)), cmp.Compare(a.Finding, b.Finding), cmp.Compare(a.Role, b.Role))
	})
	return out
}

// matters is from how many bytes on a growth counts.
func (s *State) matters() rss.Bytes {
	whole := s.limit
	if whole == 0 {
		whole = s.tree
	}
	return max(s.options.Least, whole.Scale(s.options.Share))
}

// countsMapped says that the limit counts pages of mapped files for each process,
// as far as is known.
func (s *State) countsMapped() bool {
	return s.accounting != event.AccountingCgroup && s.accounting != event.AccountingNoShared
}
