package replay

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// debt is what a recorded action freed that the model does not take.
type debt struct {
	deed       *deed
	accounting event.Accounting
	amount     rss.Bytes
	whose      map[int]bool // the workers that lived then; nil where none was seen
	risen      rss.Bytes    // by how much use has risen since, by the record
	last       rss.Bytes    // what it stood at
}

// debts are what recorded actions freed that are not taken. high says that what
// grew after an action comes on top of what that freed, else it is the same come
// back.
type debts struct {
	high bool
	list []*debt
	any  bool // there was one
}

// note begins a debt.
func (d *debts) note(r *deed, a event.Accounting, amount rss.Bytes, list []*worker) {
	e := &debt{deed: r, accounting: a, amount: amount, last: r.outcome.After}
	for _, w := range list {
		if e.whose == nil {
			e.whose = map[int]bool{}
		}
		e.whose[w.proc] = true
	}
	d.list, d.any = append(d.list, e), true
}

// drop ends those that a test names.
func (d *debts) drop(gone func(*debt) bool) {
	d.list = slices.DeleteFunc(d.list, gone)
}

// rise takes in what a limit stands at, by the record.
func (d *debts) rise(limit int, used rss.Bytes) {
	for _, e := range d.list {
		if e.deed.limit == limit {
			e.risen += used.Sub(e.last)
			e.last = used
		}
	}
}

// left is what an accounting counts of all debts now.
func (d *debts) left(a event.Accounting, list []*worker) (sum rss.Bytes) {
	for _, e := range d.list {
		if e.accounting == a {
			sum += e.left(d.high, list)
		}
	}
	return sum
}

func (e *debt) left(high bool, list []*worker) rss.Bytes {
	amount := e.amount
	if len(e.whose) > 0 {
		alive := 0
		for _, w := range list {
			if e.whose[w.proc] {
				alive++
			}
		}
		amount = amount.Scale(float64(alive) / float64(len(e.whose)))
	}
	if !high {
		amount = amount.Sub(e.risen)
	}
	return amount
}

// owe begins debts for what recorded actions have freed until now.
func (m *model) owe(now time.Duration) {
	for m.due < len(m.done) && m.done[m.due].doneAt <= now {
		d := m.done[m.due]
		m.due++
		o := d.outcome
		if m.claimed[d] || !o.OK || o.Freed == 0 || d.limit < 0 || d.limit >= len(m.run.Limits) {
			continue
		}
		freed := o.Freed
		if part, ok := m.has[d]; ok {
			freed = freed.Scale(part)
		}
		m.owed.note(d, m.run.Limits[d.limit].Accounting, freed, m.list)
	}
}
