package alert

import (
	"cmp"
	"slices"
	"time"
)

const (
	// keepFiring is how long a rung must have been left before its alert is
	// resolved: a job that the ladder carries crosses its rungs again and again.
	keepFiring = 30 * time.Second
	// keepResolved is how long a resolution is repeated.
	keepResolved = 5 * time.Minute
	// mostAlerts bounds the book. One limit has a handful of rungs.
	mostAlerts = 64
	// mostDropped bounds what is counted of those that there is no room for.
	mostDropped = 1000
)

// Store holds the alerts that are sent. It is pure: now is an argument.
type Store struct {
	entries map[string]*entry
	changes uint64          // of any alert so far: the last one has this number
	dropped map[string]bool // alerts that there was no room for, by ID
	gone    []*entry        // forgotten since [Store.forgotten]
}

type entry struct {
	Alert
	id     string
	gone   time.Time // when its rung was first seen left, zero where it is not
	ends   time.Time // when it was resolved, zero while it fires
	change uint64
	// inherited says that another Store had it, and this one has not seen its rung
	// crossed.
	inherited bool
}

func (e *entry) firing() bool { return e.ends.IsZero() }

func NewStore() *Store { return &Store{entries: map[string]*entry{}, dropped: map[string]bool{}} }

// Set takes in the rungs that are crossed now. Of two with the same labels the
// fuller one is kept. It returns whether a rung was crossed or left.
func (b *Store) Set(now time.Time, current []Alert) (moved bool) {
	before := b.changes
	seen := map[string]bool{}
	for i := range current {
		a := &current[i]
		id := a.ID()
		e := b.entries[id]
		if e == nil {
			if len(b.entries) >= mostAlerts && !b.makeRoom() {
				if len(b.dropped) < mostDropped {
					b.dropped[id] = true
				}
				continue
			}
			e = &entry{id: id, ends: now}
			b.entries[id] = e
		}
		known := a.Size != 0 || a.Left != nil
		fuller := seen[id] && e.Used.Of(e.Size) >= a.Used.Of(a.Size)
		since := a.Since
		if e.firing() || e.inherited {
			since = e.Since // it has been firing since then
		}
		if !e.firing() || e.inherited {
			*e = entry{Alert: *a, id: id}
			b.change(e)
		} else if known && !fuller {
			e.Alert = *a
		}
		e.Since, e.gone = since, time.Time{}
		seen[id] = true
	}
	for id, e := range b.entries {
		if !seen[id] && e.firing() && e.gone.IsZero() {
			e.gone, moved = now, true
		}
	}
	b.Tick(now)
	return moved || b.changes != before
}

func (b *Store) change(e *entry) {
	b.changes++
	e.change = b.changes
}

// Inherit takes in the alerts that another store had sent without a known delivery of
// their end. What does not fire here as well is resolved in time.
func (b *Store) Inherit(now time.Time, all []Alert) {
	for i := range all {
		id := all[i].ID()
		if b.entries[id] != nil || len(b.entries) >= mostAlerts {
			continue
		}
		e := &entry{Alert: all[i], id: id, gone: now, inherited: true}
		b.entries[id] = e
		b.change(e)
	}
}

// makeRoom forgets the alert that was resolved first.
func (b *Store) makeRoom() bool {
	var first *entry
	for _, e := range b.entries {
		if !e.firing() && (first == nil || e.ends.Before(first.ends)) {
			first = e
		}
	}
	if first == nil {
		return false
	}
	b.forget(first)
	return true
}

func (b *Store) forget(e *entry) {
	delete(b.entries, e.id)
	b.gone = append(b.gone, e)
}

// forgotten are the alerts that were forgotten since the last call.
func (b *Store) forgotten() (gone []*entry) {
	gone, b.gone = b.gone, nil
	return gone
}

// Tick resolves alerts whose rungs were left for long, and forgets those that were
// resolved long ago. It returns when it is to be called again, zero for never.
func (b *Store) Tick(now time.Time) (next time.Time) {
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, e := range b.sorted() {
		if e.firing() && !e.gone.IsZero() {
			if t := e.gone.Add(keepFiring); now.Before(t) {
				at(t)
			} else {
				e.ends = now
				b.change(e)
			}
		}
		if !e.firing() {
			if t := e.ends.Add(keepResolved); now.Before(t) {
				at(t)
			} else {
				b.forget(e)
			}
		}
	}
	return next
}

// End resolves all that fires: what it is about has ended.
func (b *Store) End(now time.Time) {
	for _, e := range b.sorted() {
		if e.firing() {
			e.ends = now
			b.change(e)
		}
	}
}

func (b *Store) Firing() (n int) {
	for _, e := range b.entries {
		if e.firing() {
			n++
		}
	}
	return n
}

// sorted are the alerts, the one first that changed first.
func (b *Store) sorted() []*entry {
	all := make([]*entry, 0, len(b.entries))
	for _, e := range b.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *entry) int { return cmp.Or(cmp.Compare(x.change, y.change), cmp.Compare(x.id, y.id)) })
	return all
}
