package action

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/control"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

// Hook asks processes with the loader hook, each of which answers at its next batch. It
// returns the number that their answers carry.
type Hook interface {
	// Trim asks the processes to drop their mapped file pages, GC to run gc.collect and
	// malloc_trim. Both return those that they could ask.
	Trim(pids ...int) (request uint64, asked []int, err error)
	GC(pids ...int) (request uint64, asked []int, err error)
	// Recycle asks a trainer to replace the worker with that PID.
	Recycle(worker int, mode event.Mode) (request uint64, err error)
}

// noHook is why no loader can be asked for anything, where it is not told more closely.
const noHook = "no loader hook"

// NoHook says why no loader can be asked for anything.
func (a *Env) NoHook() string {
	if a.Loader != nil {
		return cmp.Or(a.Workers.NoHello(), "no DataLoader or pool workers found")
	}
	return cmp.Or(a.Able.Hook, noHook)
}

// hookTargets are those of the processes that a command means, by rank.
func (a *Env) hookTargets(cmd *control.Command, pids []int) []target {
	if a.Loader == nil {
		return nil
	}
	var todo []target
	for _, pid := range pids {
		task, ok := a.wanted(cmd, pid)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(todo, func(t target) bool { return t.task == task }); i >= 0 {
			todo[i].pids = append(todo[i].pids, pid)
		} else {
			todo = append(todo, target{task, []int{pid}})
		}
	}
	slices.SortFunc(todo, func(a, b target) int { return a.task - b.task })
	return todo
}

// round is one request to several processes, that each answers.
type round struct {
	what     event.Loader // the answer
	words    string
	deadline time.Duration
	trainers []int // whose pauses count

	request  uint64
	err      error
	asked    int
	waiting  map[int]bool
	answered int
	freed    rss.Bytes
	paused   time.Duration // the longest
}

func (a *round) ask(ask func(...int) (uint64, []int, error), pids []int) Running {
	var asked []int
	a.request, asked, a.err = ask(pids...)
	a.asked, a.waiting = len(asked), make(map[int]bool, len(asked))
	for _, pid := range asked {
		a.waiting[pid] = true
	}
	return a
}

func (a *round) Step(w World) (Result, bool) {
	if a.err != nil {
		return Result{Reason: event.ReasonError, Detail: a.err.Error()}, true
	}
	for _, s := range w.Said {
		if s.Request != a.request || s.What != a.what && s.What != event.LoaderRefused {
			continue
		}
		pid := cmp.Or(s.Worker, s.PID)
		if !a.waiting[pid] {
			continue
		}
		delete(a.waiting, pid)
		if s.What == a.what {
			a.answered++
			a.freed += s.Freed
			if slices.Contains(a.trainers, pid) {
				a.paused = max(a.paused, time.Duration(s.Paused*float64(time.Second)))
			}
		}
	}
	maps.DeleteFunc(a.waiting, func(pid int, _ bool) bool { return w.Sample != nil && w.Sample.Find(pid) == nil })
	if len(a.waiting) > 0 && w.Now < a.deadline {
		return Result{}, false
	}
	r := Result{OK: a.answered > 0, Reason: event.ReasonDone, Paused: a.paused}
	switch {
	case a.answered > 0:
	case len(a.waiting) > 0:
		r.Reason = event.ReasonTimeout
	default:
		r.Reason = event.ReasonVanished // ended or off, all of them
	}
	r.Detail = fmt.Sprintf(a.words, a.answered, a.asked, a.freed)
	return r, true
}
