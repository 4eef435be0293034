package analysis

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// maxFindings bounds what is kept of one run: a journal is text that anybody may
// have changed.
const maxFindings = 64

// findingsSeen are the findings of one run. The zero value is ready.
type findingsSeen struct {
	Found []findingSeen
	cures []Cure
}

type findingSeen struct {
	*event.Diagnosis
	first, At time.Duration
}

// diagnosed takes in a finding at a moment. A finding comes again where it has become
// more certain or weighs more, and from a second watcher from the start.
func (g *findingsSeen) diagnosed(at time.Duration, d *event.Diagnosis) {
	i := slices.IndexFunc(g.Found, func(t findingSeen) bool { return t.Finding == d.Finding && t.Role == d.Role })
	switch {
	case i < 0 && len(g.Found) < maxFindings:
		g.Found = append(g.Found, findingSeen{d, at, at})
	case i >= 0 && d.Rank() >= g.Found[i].Rank():
		g.Found[i].Diagnosis, g.Found[i].At = d, at
	}
}

// isNew takes in a finding and says whether it is new.
func (g *findingsSeen) isNew(d *event.Diagnosis) bool {
	n := len(g.Found)
	g.diagnosed(0, d)
	return len(g.Found) > n
}

// Of returns a finding, nil where it was not reported.
func (g *findingsSeen) Of(f event.Finding) *findingSeen {
	if i := slices.IndexFunc(g.Found, func(t findingSeen) bool { return t.Finding == f }); i >= 0 {
		return &g.Found[i]
	}
	return nil
}

// MergeFindings puts findings of several runs together, the weightiest first.
func MergeFindings(looks []*RunScan) []Diagnosis {
	list := []Diagnosis{}
	for _, k := range looks {
		for i := range k.Findings.Found {
			t := &k.Findings.Found[i]
			d := Diagnosis{
				Run: k.Run.Meta.ID, Finding: t.Finding, Confidence: t.Confidence, Role: t.Role, PID: t.PID, Bytes: t.Bytes,
				Evidence: append([]string{}, t.Evidence...), Advice: append([]string{}, t.Advice...),
				First: k.Wall(t.first), At: k.Wall(t.At), Runs: 1, weight: t.Weigh(k.peaks[byRSS].v, k.binding()),
			}
			n := slices.IndexFunc(list, func(o Diagnosis) bool { return o.Finding == d.Finding && o.Role == d.Role })
			if n < 0 {
				list = append(list, d)
				continue
			}
			old := &list[n]
			first, runs := old.First, old.Runs+1
			if d.First.Before(first) {
				first = d.First
			}
			if d.weight > old.weight {
				*old = d
			}
			old.First, old.Runs = first, runs
		}
	}
	slices.SortFunc(list, func(a, b Diagnosis) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.Finding, b.Finding), cmp.Compare(a.Role, b.Role))
	})
	return list
}

func (g *findingsSeen) cured(id string, at time.Time, c *event.Cure) {
	addCure(&g.cures, &Cure{
		Run: id, Remedy: c.Remedy, PID: c.PID, OK: c.OK, Before: c.Before, After: c.After, Reason: c.Reason, First: at, At: at, Times: 1,
	})
}

func addCure(list *[]Cure, c *Cure) {
	i := slices.IndexFunc(*list, func(o Cure) bool { return o.Remedy == c.Remedy && o.OK == c.OK })
	if i < 0 {
		if len(*list) < maxFindings {
			*list = append(*list, *c)
		}
		return
	}
	o := &(*list)[i]
	sum := *c
	if c.At.Before(o.At) {
		sum = *o
	}
	sum.Times, sum.First = o.Times+c.Times, o.First
	if c.First.Before(o.First) {
		sum.First = c.First
	}
	*o = sum
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

// SharingSeen is the warning of the loader hook that a data set of many tensors is sent to
// workers which are not forked. Descriptors run out a tenth of a second after that begins,
// before any count gets near. Sharing is never nil.
type SharingSeen struct {
	*event.LoaderSaid
	At time.Duration
}

// TooMuch is what there would not be enough of, empty where all suffices. What
// goes in one message goes after all is open, and of two limits the lower one is
// met first.
func (s *SharingSeen) TooMuch() event.Cause {
	n := s.Sharing
	maps, fds := n.MaxMaps > 0 && n.Maps > n.MaxMaps, n.MaxFDs > 0 && n.FDs > n.MaxFDs
	switch {
	case maps && (!fds || n.MaxMaps < n.MaxFDs):
		return event.CauseMaps
	case fds, n.MaxSent > 0 && n.Sent > n.MaxSent:
		return event.CauseFDs
	}
	return ""
}

// SentHolds is for how long after it a failure is attributed to it: the workers import
// torch before they take what was sent.
const SentHolds = 2 * time.Minute

// warned takes in a warning, and returns the one that counts: the last of one that takes too much, else the last.
func warned(old *SharingSeen, at time.Duration, s *event.LoaderSaid) *SharingSeen {
	if s.What != event.LoaderPickling || s.Sharing == nil {
		return old
	}
	n := &SharingSeen{s, at}
	if old == nil || old.PID == s.PID || n.TooMuch() != "" || old.TooMuch() == "" {
		return n
	}
	return old
}
