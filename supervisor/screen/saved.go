package screen

import (
	"fmt"
	"strings"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

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
		case a.Worked > 0 && a.Action != event.ActionTrim && a.Action != event.ActionRecycle && a.Action != event.ActionWarn:
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

// sums draws for the first n nodes the peak and what was done.
func (d *drawing) sums(n int) {
	for i := range d.m.nodes[:n] {
		node := &d.m.nodes[i]
		front := "peak " + node.peak()
		if len(d.m.nodes) > 1 {
			front = node.name + " " + front
		}
		did := node.did()
		for len(did) > 1 && 1+len(front)+7+text.Columns(strings.Join(did, ", ")) > d.W {
			did = did[:len(did)-1] // no number is cut
		}
		x := d.put(1, d.y, d.W, Bold, front)
		if room := d.W - x - 7; room >= text.Columns(did[0]) || room > 20 {
			d.put(x, d.y, d.W, Plain, "   did "+strings.Join(did, ", "))
		}
		d.y++
	}
}
