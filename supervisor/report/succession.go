package report

import (
	"cmp"
	"slices"
	"time"
)

// tenure is the time that one record of a leader covers.
type tenure struct {
	node         string
	restart      int
	start        time.Time // when its rank began, which may be long before it led
	began, ended time.Time // of its leading
	live         bool
	ranks        []rankKey // whom it knew, its own first
}

// successions returns for each tenure the index of the one that it went on from, -1
// for none. Leaders of one meeting place follow each other, and their limit is one
// limit. Ranks that were started otherwise meet elsewhere: two such leaders lead the
// same node at the same time, each with a limit of its own.
func successions(all []tenure) (before []int) {
	order := make([]int, len(all))
	before = make([]int, len(all))
	for i := range all {
		order[i], before[i] = i, -1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &all[a], &all[b]
		return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.restart, y.restart), x.began.Compare(y.began))
	})
	var last []int // of each line of leaders
	for _, i := range order {
		at := -1
		for n, l := range last {
			if all[l].handsTo(&all[i]) && (at < 0 || all[l].likelier(&all[last[at]], &all[i])) {
				at = n
			}
		}
		if at < 0 {
			last = append(last, i)
			continue
		}
		before[i], last[at] = last[at], i
	}
	return before
}

// handsTo says that the next one may have gone on from this one: later on the same
// node, by a rank that was there before. A step that came later is another job for
// the node.
func (t *tenure) handsTo(next *tenure) bool {
	return t.node == next.node && t.restart == next.restart && !t.live &&
		!t.ended.After(next.began.Add(handSlack)) && next.start.Before(t.ended)
}

// likelier says that the next one went on from this one rather than from the other:
// from a leader that knew its rank, else from the one that ended last.
func (t *tenure) likelier(other, next *tenure) bool {
	if a, b := t.knew(next), other.knew(next); a != b {
		return a
	}
	return t.ended.After(other.ended)
}

func (t *tenure) knew(next *tenure) bool { return slices.Contains(t.ranks, next.ranks[0]) }
