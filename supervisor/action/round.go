package action

import (
	"fmt"
	"slices"
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
	return newRound(event.LoaderTrimmed, request, asked, err, "%d of %d workers gave back %v of mapped pages", now+TrimDeadline)
}

// Collector asks processes with the loader hook to collect garbage.
type Collector interface {
	// GC asks the processes and returns the number that their answers carry
	// and those it could ask.
	GC(pids ...int) (request uint64, asked []int, err error)
}

// Collect asks the processes with those PIDs to run gc.collect and malloc_trim
// and ends when each has answered or is gone. A process answers at its next
// batch. The trainers among them pause meanwhile; the longest pause counts.
func Collect(c Collector, pids, trainers []int, now time.Duration) Running {
	request, asked, err := c.GC(pids...)
	a := newRound(event.LoaderCollected, request, asked, err, "%d of %d processes gave back %v of anonymous memory", now+CollectDeadline)
	a.trainers = trainers
	return a
}

// round is one request to several processes, that each answers.
type round struct {
	what     event.Loader // the answer
	request  uint64
	err      error
	words    string
	asked    int
	waiting  map[int]bool
	answered int
	freed    rss.Bytes
	trainers []int         // whose pauses count
	paused   time.Duration // the longest
	deadline time.Duration
}

func newRound(what event.Loader, request uint64, asked []int, err error, words string, deadline time.Duration) *round {
	waiting := make(map[int]bool, len(asked))
	for _, pid := range asked {
		waiting[pid] = true
	}
	return &round{what: what, request: request, err: err, words: words, asked: len(asked), waiting: waiting, deadline: deadline}
}

func (a *round) Step(w World) (Result, bool) {
	if a.err != nil {
		return Result{Reason: event.ReasonError, Detail: a.err.Error()}, true
	}
	for _, s := range w.Said {
		if s.Request != a.request || s.What != a.what && s.What != event.LoaderRefused {
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
		if s.What == a.what {
			a.answered++
			a.freed += s.Freed
			if slices.Contains(a.trainers, pid) {
				a.paused = max(a.paused, time.Duration(s.Paused*float64(time.Second)))
			}
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
	r := Result{OK: a.answered > 0, Reason: event.ReasonDone, Paused: a.paused}
	switch {
	case a.answered > 0:
	case left > 0:
		r.Reason = event.ReasonTimeout
	default:
		r.Reason = event.ReasonVanished // ended or off, all of them
	}
	r.Detail = fmt.Sprintf(a.words, a.answered, a.asked, a.freed)
	return r, true
}
