package alert

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

const (
	backOff     = time.Second // after the first failure; it doubles
	mostBackOff = time.Minute
	mostLater   = time.Hour // believed of an answer
	// mostBodies is how many messages one process carries.
	mostBodies = 16
)

// receiver decides what one target is told next. It is pure: now and chance are
// handed in.
type receiver struct {
	target Target
	told   map[string]uint64 // the change of each alert that it knows of
	met    map[string]uint64 // … that it was to know of when it was looked at last
	no     map[string]uint64 // … that it has refused: others come first
	sentAt time.Time         // when it took something last
	tried  time.Time
	due    time.Time // no try before
	fails  int       // in a row
	// near says that there may soon be no room to tell it anything, and lasting that
	// what it was told last was made to outlast that.
	near, lasting bool
	// missed are the alerts that it was never told how they stood, by ID.
	missed map[string]bool
	// asked says that it was told for the last time, and what came of it is not known.
	asked bool
	Counts
	lastError string
	failedAt  time.Time
}

// Counts is what became of the states that a receiver was to be told of.
type Counts struct {
	Sent      int // requests that were taken
	Failed    int // … that were not
	Overtaken int // states that a newer one took the place of before they were taken
	Lost      int // states that were given up: untold for too long
}

// load is what one request carries.
type load struct {
	bodies []json.RawMessage
	// of are the alerts of each body, with their change.
	of      [][]change
	lasting bool // see receiver
}

type change struct {
	id string
	n  uint64
}

func newReceiver(t Target) *receiver {
	return &receiver{target: t, told: map[string]uint64{}, met: map[string]uint64{}, no: map[string]uint64{}, missed: map[string]bool{}}
}

// look counts what was overtaken or lost since the last look.
func (r *receiver) look(b *Book) {
	for id, n := range r.met {
		e := b.entries[id]
		switch untold := r.told[id] < n; {
		case e == nil:
			if untold {
				r.Lost++
				if len(r.missed) < mostDropped {
					r.missed[id] = true
				}
			}
			delete(r.met, id)
			delete(r.told, id)
			delete(r.no, id)
		case e.change != n && untold:
			r.Overtaken++
		}
	}
	for id, e := range b.entries {
		r.met[id] = e.change
	}
}

// inherit takes it that who told before us has told what stands in the book.
func (r *receiver) inherit(b *Book) {
	r.look(b)
	for id, e := range b.entries {
		r.told[id] = e.change
	}
}

// untold are the alerts of which it does not know how they stand.
func (r *receiver) untold(b *Book) (all []*entry) {
	for _, e := range b.sorted() {
		if r.told[e.id] != e.change {
			all = append(all, e)
		}
	}
	return all
}

// next is when it is to be told something, ok false for not at all.
func (r *receiver) next(b *Book) (at time.Time, ok bool) {
	if len(r.untold(b)) > 0 {
		return r.due, true // a time that was before now, or never set, is now
	}
	if r.target.Kind != Alertmanager || len(b.entries) == 0 {
		return at, false
	}
	if at = r.sentAt.Add(resend); r.near && !r.lasting && b.Firing() > 0 {
		return r.due, true
	}
	if at.Before(r.due) {
		at = r.due
	}
	return at, true
}

// refusal is 1 for what it has refused.
func (r *receiver) refusal(e *entry) int {
	if r.no[e.id] == e.change {
		return 1
	}
	return 0
}

// load makes what it is told now.
func (r *receiver) load(b *Book, now time.Time) (l load, err error) {
	if r.target.Kind == Alertmanager {
		list := b.sorted()
		of := make([]change, 0, len(list))
		for _, e := range list {
			of = append(of, change{e.id, e.change})
		}
		believed := holds
		if r.near {
			believed = lasts
		}
		body, err := managerBody(list, now, believed, func(id string) bool { return r.told[id] > 0 })
		return load{[]json.RawMessage{body}, [][]change{of}, r.near}, err
	}
	untold := r.untold(b)
	slices.SortStableFunc(untold, func(x, y *entry) int { return cmp.Compare(r.refusal(x), r.refusal(y)) })
	for _, e := range untold {
		if len(l.bodies) == mostBodies {
			break
		}
		body, err := hookBody(e)
		if err != nil {
			return l, err
		}
		l.bodies, l.of = append(l.bodies, body), append(l.of, []change{{e.id, e.change}})
	}
	return l, nil
}

// done takes in what came of a request. chance is between 0 and 1.
func (r *receiver) done(l load, a Answer, now time.Time, chance float64) {
	r.tried = now
	know := func(of []change) {
		for _, c := range of {
			if _, ok := r.met[c.id]; ok {
				r.told[c.id] = c.n
				delete(r.missed, c.id)
			}
		}
	}
	a.Taken = min(max(a.Taken, 0), len(l.of)) // the answer is another program's
	for _, of := range l.of[:a.Taken] {
		know(of)
	}
	r.Sent += a.Taken
	if a.Error == "" && a.Taken == len(l.of) {
		r.fails, r.due, r.sentAt, r.lasting = 0, time.Time{}, now, l.lasting
		return
	}
	if a.Taken > 0 {
		r.fails, r.sentAt = 0, now
	}
	if r.lastError = a.Error; a.Error == "" {
		r.lastError = "not all was taken"
	}
	r.Failed++
	r.failedAt = now
	r.fails++
	wait := min(backOff<<min(r.fails-1, 10), mostBackOff)
	switch {
	case a.Retry:
	case r.target.Kind == Alertmanager || a.Taken >= len(l.of):
		wait = mostBackOff // it is told all again, and somebody may have mended it
	default:
		// It is told this one again too, seldom, and the others first.
		again := false
		for _, c := range l.of[a.Taken] {
			again = again || r.no[c.id] == c.n
			r.no[c.id] = c.n
		}
		if again || a.Taken+1 == len(l.of) {
			wait = mostBackOff
		}
	}
	// Jobs of a site that lost Alertmanager together do not come back together.
	wait = time.Duration(float64(wait) * (0.5 + chance/2))
	r.due = now.Add(max(wait, min(a.Later, mostLater)))
}
