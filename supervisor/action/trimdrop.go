package action

import (
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// TrimDrop trims processes and then has the page cache forget the files that
// they had mapped: in this order, because a page that is mapped stays.
type TrimDrop struct {
	Dropper
	Of []rss.ProcID
	// Trim begins the trim, nil where there is nobody to be trimmed; and Trimmed
	// says after it who was.
	Trim    func(World) Running
	Trimmed func(rss.ProcID) bool
	// Note is for the end of the detail.
	Note string
}

// Begin asks for the files first: who has ended when it was trimmed shows none.
func (o TrimDrop) Begin(now time.Duration) Running {
	a := &trimDrop{TrimDrop: o, deadline: now + FindDeadline}
	a.step = a.find
	a.Find(o.Of)
	return a
}

type trimDrop struct {
	TrimDrop
	step     func(World) (Result, bool)
	deadline time.Duration // of what was asked of the Dropper
	files    []File
	running  Running // the trim, while it is under way
	trimmed  Result
	asked    int // files
	dropped  []Dropped
}

func (a *trimDrop) Step(w World) (Result, bool) { return a.step(w) }

// Awaits is that of the trim.
func (a *trimDrop) Awaits() bool { return Awaits(a.running) }

// Wakes is that of the trim.
func (a *trimDrop) Wakes() time.Duration { return Wakes(a.running) }

func (a *trimDrop) find(w World) (Result, bool) {
	switch {
	case w.Found != nil:
		a.files = w.Found.Files
	case w.Now >= a.deadline:
		return Result{Reason: event.ReasonTimeout, Detail: "which files they map could not be read; nothing was trimmed"}, true
	default:
		return Result{}, false
	}
	if a.running = a.Trim(w); a.running == nil {
		return done(event.ReasonNothing)
	}
	a.step = a.trim
	return a.trim(w)
}

// trim leaves files in the cache where nobody was trimmed: all of it would be
// mapped still.
func (a *trimDrop) trim(w World) (Result, bool) {
	r, ended := a.running.Step(w)
	if !ended || !r.OK {
		return r, ended
	}
	a.running, a.trimmed = nil, r
	a.files = slices.DeleteFunc(a.files, func(f File) bool { return !slices.ContainsFunc(f.Mappers, a.Trimmed) })
	a.deadline = w.Now + DropDeadline
	a.step = a.drop
	w.Dropped = nil
	return a.drop(w)
}

func (a *trimDrop) drop(w World) (Result, bool) {
	a.dropped = append(a.dropped, w.Dropped...)
	switch {
	case len(a.dropped) == len(a.files), w.Now >= a.deadline:
		return a.trimmed.and(a.told()), true
	case a.asked == len(a.dropped):
		a.Drop(a.files[a.asked])
		a.asked++
	}
	return Result{}, false
}
