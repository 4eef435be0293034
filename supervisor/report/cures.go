package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Cure is one remedy that was applied, or that could not be, in all runs. What
// stood there is of the last time.
type Cure struct {
	Run    string       `json:"run"`
	Remedy event.Remedy `json:"remedy"`
	PID    int          `json:"pid,omitempty"`
	OK     bool         `json:"ok"`
	Before int64        `json:"before"`
	After  int64        `json:"after"`
	Reason string       `json:"reason,omitempty"`
	First  time.Time    `json:"first"`
	At     time.Time    `json:"time"`
	Times  int          `json:"times"`
}

// cured takes in a cure of the run id.
func (g *grown) cured(id string, at time.Time, c *event.Cure) {
	addCure(&g.cures, &Cure{
		Run: id, Remedy: c.Remedy, PID: c.PID, OK: c.OK, Before: c.Before, After: c.After, Reason: c.Reason, First: at, At: at, Times: 1,
	})
}

func addCure(list *[]Cure, c *Cure) {
	i := slices.IndexFunc(*list, func(o Cure) bool { return o.Remedy == c.Remedy && o.OK == c.OK })
	if i < 0 {
		if len(*list) < mostGrown {
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

func mergeCures(looks []*look) []Cure {
	all := []Cure{}
	for _, k := range looks {
		for i := range k.grown.cures {
			addCure(&all, &k.grown.cures[i])
		}
	}
	slices.SortFunc(all, func(a, b Cure) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Remedy, b.Remedy))
	})
	return all
}
