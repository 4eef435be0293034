package action

import (
	"fmt"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Trimmer asks processes with the loader hook to drop their mapped file pages.
type Trimmer interface {
	// Trim asks the processes and returns the number that their answers carry
	// and those it could ask.
	Trim(pids ...int) (request uint64, asked []int, err error)
}

// Trim asks the processes with those PIDs to drop their mapped file pages and
// ends when each has answered or is gone. A process answers at its next batch.
func Trim(t Trimmer, pids []int, now time.Duration) Running {
	request, asked, err := t.Trim(pids...)
	waiting := make(map[int]bool, len(asked))
	for _, pid := range asked {
		waiting[pid] = true
	}
	return &trim{request: request, err: err, asked: len(asked), waiting: waiting, deadline: now + TrimDeadline}
}

type trim struct {
	request  uint64
	err      error
	asked    int
	waiting  map[int]bool
	answered int
	freed    rss.Bytes
	deadline time.Duration
}

func (a *trim) Step(w World) (Result, bool) {
	if a.err != nil {
		return Result{Reason: event.ReasonError, Detail: a.err.Error()}, true
	}
	for _, s := range w.Said {
		if s.Request != a.request || s.What != event.LoaderTrimmed && s.What != event.LoaderRefused {
			continue
		}
		pid := s.PID
		if s.Worker != 0 {
			pid = s.Worker
		}
		if waiting, asked := a.waiting[pid]; !asked || !waiting {
			continue
		}
		a.waiting[pid] = false
		if s.What == event.LoaderTrimmed {
			a.answered++
			a.freed += s.Freed
		}
	}
	left := 0
	for pid, waiting := range a.waiting {
		if waiting && w.Sample != nil && w.Sample.Find(pid) == nil {
			a.waiting[pid] = false
			continue
		}
		if waiting {
			left++
		}
	}
	if left > 0 && w.Now < a.deadline {
		return Result{}, false
	}
	r := Result{OK: a.answered > 0, Reason: event.ReasonDone}
	switch {
	case a.answered > 0:
	case left > 0:
		r.Reason = event.ReasonTimeout
	default:
		r.Reason = event.ReasonVanished // ended or off, all of them
	}
	r.Detail = fmt.Sprintf("%d of %d workers gave back %v of mapped pages", a.answered, a.asked, a.freed)
	return r, true
}
