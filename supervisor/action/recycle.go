package action

import (
	"slices"
	"strings"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Recycler asks a trainer to replace one of its loader workers.
type Recycler interface {
	// Recycle asks for the worker with that PID to be replaced and returns the
	// number that the answers carry.
	Recycle(worker int, mode event.Mode) (request uint64, err error)
}

// Recycle replaces one loader worker through the hook. It ends when the hook
// says that the old worker has ended, or that it will not be replaced.
func Recycle(r Recycler, worker int, mode event.Mode, now time.Duration) Running {
	request, err := r.Recycle(worker, mode)
	return &recycle{request: request, err: err, worker: worker, mode: mode, deadline: now + RecycleDeadline}
}

type recycle struct {
	request  uint64
	err      error
	worker   int
	mode     event.Mode
	deadline time.Duration
}

// overtaken are the hook's words for a worker that ended, mostly with its epoch, before it
// was replaced: its memory is gone too.
var overtaken = []string{"loader ended", "no such worker", string(event.ReasonVanished)}

func (a *recycle) Step(w World) (Result, bool) {
	r := Result{PID: a.worker}
	if a.err != nil {
		r.Reason, r.Detail = event.ReasonError, a.err.Error()
		return r, true
	}
	for _, s := range w.Said {
		if s.Request != a.request {
			continue
		}
		switch s.What {
		case event.LoaderRecycled:
			r.OK, r.Reason = true, event.ReasonDone
			r.Paused = time.Duration(s.Paused * float64(time.Second))
			r.Detail = string(a.mode)
			return r, true
		case event.LoaderAccepted:
			if s.Reason == string(event.ReasonDeferred) {
				// It stays asked for, and loaders say when it was done.
				r.Reason = event.ReasonDeferred
				return r, true
			}
		case event.LoaderRefused, event.LoaderOff:
			r.Reason, r.Detail = event.ReasonUnsupported, s.Reason
			switch {
			case strings.HasPrefix(s.Reason, string(event.ReasonForkRefused)):
				r.Reason = event.ReasonForkRefused
			case slices.Contains(overtaken, s.Reason):
				r.Reason = event.ReasonVanished
			}
			return r, true
		}
	}
	switch {
	case w.Now >= a.deadline:
		r.Reason = event.ReasonTimeout
	case w.Sample != nil && len(w.Sample.Procs) == 0:
		r.Reason = event.ReasonVanished
	default:
		return Result{}, false
	}
	return r, true
}
