package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// node is the last that one leader said.
type node struct {
	control.Status
	// name is that of the node, with the job or the leader where the node has several
	// leaders.
	name string
	// skew is the least by which the node's clock was seen behind ours when it
	// had something new to say: so much of the age of its data is no age. It is
	// known once the node has said two things.
	skew  time.Duration
	known bool
	// missing says that the last answer was without it.
	missing bool
	ceiling rss.Bytes // the limit that growth is small against; 0 for none
}

// age is how old the node's data are.
func (n *node) age(now time.Time) time.Duration { return max(0, now.Sub(n.Time)-n.skew) }

// ladder is the rules in one line. Those that differ only in their limit are one.
func (n *node) ladder() string {
	type group struct{ limits, rule string }
	var groups []group
	for _, r := range n.Rules {
		g := group{rule: r}
		if limit, rule, ok := strings.Cut(r, " "); ok && !strings.Contains(limit, ":") {
			g = group{limit, rule}
		}
		same := slices.IndexFunc(groups, func(o group) bool { return g.limits != "" && o.limits != "" && o.rule == g.rule })
		if same < 0 {
			groups = append(groups, g)
		} else {
			groups[same].limits += "/" + g.limits
		}
	}
	var all []string
	for _, g := range groups {
		all = append(all, strings.TrimSpace(g.limits+" "+g.rule))
	}
	line := strings.Join(all, ", ")
	if n.DryRun && line != "" {
		line += " (dry run: nothing of it is done)"
	}
	return line
}

// peak is the highest reading so far. It names its limit where a line above shows another.
func (n *node) peak() string {
	if n.Peak == nil {
		return "-"
	}
	share := percent(n.Peak)
	if b := n.binding(); b != nil && b.ID() != n.Peak.ID() {
		share += " of " + n.label(n.Peak)
	}
	return share
}

// binding is the limit that ends first, nil where there is none on memory.
func (n *node) binding() *event.Limit {
	rows := limitRows([]node{*n})
	if len(rows) == 0 {
		return nil
	}
	return &rows[0].Limit.Limit
}

// did is what was done so far, what matters most first.
func (n *node) did() []string {
	s := n.Saved
	if s == nil {
		return []string{"unknown to rsswarden " + n.Version}
	}
	var all []string
	trims := s.Sum(event.ActionTrim).Worked
	if s.WorkerTrims > 0 {
		all = append(all, text.Count(s.WorkerTrims, "trim")+" by workers")
	}
	switch {
	case trims > 0 && s.WorkerTrims > 0:
		all = append(all, text.Digits(uint64(trims))+" by rule")
	case trims > 0:
		all = append(all, text.Count(trims, "trim"))
	}
	if s.Recycled > 0 {
		all = append(all, text.Count(s.Recycled, "recycle"))
	}
	for _, a := range s.Actions {
		dry := a.Reasons[event.ReasonDryRun]
		switch {
		case dry > 0:
			all = append(all, fmt.Sprintf("would %s %s", a.Action, text.Times(dry)))
		case a.Worked > 0 && !a.Action.Row().Trims && !a.Action.Row().Single:
			all = append(all, fmt.Sprintf("%s %s", a.Action, text.Times(a.Worked)))
		}
	}
	if p := s.Paused(); p >= 0.005 {
		all = append(all, fmt.Sprintf("paused %.2f s", p))
	}
	switch skipped := phrase.Skipped(s); {
	case n.DryRun:
		all = append([]string{"nothing (dry run)"}, all...)
	case skipped != "":
		all = append(all, skipped)
	case len(all) == 0:
		all = []string{"nothing so far"}
	}
	return all
}

// merged replaces one answer by the next. A leader that is missing in it stays with what it
// said last where the answer has a gap, by its errors, or is empty; else it has ended.
func merged(old []node, answer []control.Status, errs int, at time.Time) []node {
	next := make([]node, 0, len(answer))
	same := func(a, b *control.Status) bool { return a.Node == b.Node && a.Job == b.Job }
	for _, s := range answer {
		n := node{Status: s}
		if b := n.binding(); b != nil && b.Name.Memory() {
			n.ceiling = b.Limit
		}
		for i := range old {
			if o := &old[i]; same(&o.Status, &s) && o.Leader == s.Leader {
				n.skew, n.known = o.skew, o.known
				if s.Time.After(o.Time) {
					n.skew = at.Sub(s.Time)
					if o.known {
						n.skew = min(o.skew, n.skew)
					}
					n.known = true
				}
			}
		}
		next = append(next, n)
	}
	for _, o := range old {
		answered := slices.ContainsFunc(answer, func(s control.Status) bool { return same(&o.Status, &s) })
		if !answered && (errs > 0 || len(answer) == 0) {
			o.missing = true
			next = append(next, o)
		}
	}
	slices.SortStableFunc(next, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), natural(a.Node, b.Node), cmp.Compare(a.Leader, b.Leader))
	})
	named(next)
	return next
}

// named gives each leader a name that no other has.
func named(nodes []node) {
	for i := range nodes {
		n := &nodes[i]
		n.name = n.Node
		leaders, ofJob := 0, 0
		for j := range nodes {
			if o := &nodes[j]; o.Node == n.Node {
				leaders++
				if o.Job == n.Job {
					ofJob++
				}
			}
		}
		switch {
		case leaders > 1 && ofJob == 1 && n.Job != "":
			n.name += ":" + n.Job
		case leaders > 1:
			n.name += ":" + strconv.Itoa(n.Leader)
		}
	}
}

// natural compares names as people count: n2 before n10.
func natural(a, b string) int {
	digits := func(s string) int {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		return n
	}
	for a != "" && b != "" {
		if n, m := digits(a), digits(b); n > 0 && m > 0 {
			if c := cmp.Or(cmp.Compare(n, m), cmp.Compare(a[:n], b[:m])); c != 0 {
				return c
			}
			a, b = a[n:], b[m:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}
