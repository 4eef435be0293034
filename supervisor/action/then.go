package action

import (
	"slices"
	"time"
)

// Then carries first out and, when that has ended, what next returns: the
// harder way to the same end, or nil where the first was enough.
func Then(first Running, next func(World) Running) Running {
	return &sequence{running: first, next: next}
}

type sequence struct {
	running Running
	next    func(World) Running // nil once it was asked
	first   Result
}

func (a *sequence) Step(w World) (Result, bool) {
	r, done := a.running.Step(w)
	if !done {
		return Result{}, false
	}
	if a.next == nil {
		return a.first.and(r), true
	}
	next := a.next(w)
	if next == nil {
		return r, true
	}
	a.first, a.running, a.next = r, next, nil
	w.Said = nil // they were for the first
	if r, done = next.Step(w); !done {
		return Result{}, false
	}
	return a.first.and(r), true
}

// Awaits is that of what is carried out now.
func (a *sequence) Awaits() bool { return Awaits(a.running) }

// Wakes is that of what is carried out now.
func (a *sequence) Wakes() time.Duration { return Wakes(a.running) }

// and is what two actions brought of which one followed the other.
func (r Result) and(next Result) Result {
	all := next
	if r.OK && !next.OK {
		all.OK, all.Reason = true, r.Reason
	}
	all.Detail = join(r.Detail, next.Detail)
	all.Paused, all.Stopped = max(r.Paused, next.Paused), max(r.Stopped, next.Stopped)
	return all
}

// join puts details beside each other, those that say something.
func join(details ...string) string {
	text := ""
	for _, d := range slices.DeleteFunc(details, func(d string) bool { return d == "" }) {
		if text != "" {
			text += "; "
		}
		text += d
	}
	return text
}
