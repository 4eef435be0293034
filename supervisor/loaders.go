package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// assumedWorkers is for how many workers the first budget leaves room, before
// any loader has said how many it has: they may outgrow a limit within the
// second in which they are first seen.
const assumedWorkers = 8

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit. told says that
// there is news.
func (w *watcher) poll(told bool) (added bool) {
	if w.loader == nil {
		return false
	}
	heard := w.loader.Poll(told || !w.hears)
	w.withdrew()
	if n := w.loader.Malformed(); n > w.workers.malformed {
		w.workers.malformed = n
		w.fault("loader", &said{"files in the run directory could not be understood"})
	}
	if slices.ContainsFunc(heard, func(s loader.Said) bool { return s.What == loader.Grown }) {
		// Whose those are may be among the same news: of a worker that is new, and of
		// all of them where this watcher is.
		w.workers.trainers = w.loader.Trainers()
	}
	for _, s := range heard {
		// A training may begin before its first watcher does.
		s.Old = s.Old && !w.sum.Watched
		if s.What == loader.Grown {
			w.workers.grown(&s) // what an earlier watcher was told too
			continue
		}
		if s.Old || s.What == loader.Private { // kept with its loader
			continue
		}
		w.heard(s)
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter || s.What == event.LoaderPickling
		if w.flight != nil && w.flight.result == nil {
			w.said = append(w.said, action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
		}
	}
	return added
}

// heard passes on what a loader said and remembers what follows from it.
func (w *watcher) heard(s loader.Said) {
	w.tell.Put(event.NameLoader, func(h event.Head) any {
		e := s.LoaderSaid
		e.Head, e.Count, e.Exit = h, s.Count, s.Exit
		return e
	})
	if w.diagnosis.state != nil {
		w.diagnosis.state.Tell(w.now(), &s.LoaderSaid)
	}
	switch s.What {
	case event.LoaderTrimmed:
		w.workers.trimmed(&s, &w.last)
		if s.Request == 0 {
			w.sum.Done.BudgetTrims += max(s.Count, 1)
			w.sum.Done.BudgetFreed += s.Freed
		}
	case event.LoaderRecycled:
		if s.New != 0 {
			w.workers.took[s.Worker] = s.New
		}
		if s.Reason == string(event.ReasonDeferred) && !s.Old {
			w.sum.Done.Recycles++ // no action waited for it
			w.sum.Done.Forked++
			w.sum.Done.Paused += time.Duration(s.Paused * float64(time.Second))
		}
	case event.LoaderHello:
		w.sayRefused(s.PID)
	case event.LoaderIter:
		w.sayRefused(s.PID)
		w.sum.Shared(s.PID)
	case event.LoaderPickling:
		w.pickling(&s)
	case event.LoaderRaised:
		w.raised(&s)
	case event.LoaderOff:
		if w.tell.Once("off", s.Reason) {
			w.tell.Warn(fmt.Sprintf("the loader hook in process %d switched itself off, training goes on without it: %s", s.PID, s.Reason))
		}
	}
}

// sayRefused says once why nothing is recycled with the torch of a process, where it is
// so for good.
func (w *watcher) sayRefused(pid int) {
	if t := w.trainer(pid); t != nil && !t.CanRecycle && t.Trial != event.TrialWaiting && w.tell.Once("hello", t.Why) {
		w.tell.Info(fmt.Sprintf("PyTorch %s in process %d: workers are trimmed, not recycled (%s)", t.Torch, pid, t.Why))
	}
}

func (w *watcher) trainer(pid int) *loader.Trainer {
	for _, t := range w.loader.Trainers() {
		if t.ID.PID == pid {
			return &t
		}
	}
	return nil
}

// budget writes what each worker may keep mapped, where that differs from what
// stands: growth faster than our looks is met in the worker itself.
func (w *watcher) budget() {
	if w.loader == nil || !w.Settings.Trim.Hook() || w.Settings.DryRun {
		return
	}
	w.workers.trainers = w.loader.Trainers()
	var least, rung rss.Bytes
	last := w.loader.Budget()
	n := 0
	for i := range w.readings {
		l := &w.readings[i]
		at, ok := w.ladder.Rung(event.ActionTrim, l)
		if !ok {
			continue
		}
		mappers := w.workers.mappers(&w.last, l.Accounting)
		known := len(mappers) > 0
		if !known {
			mappers = make([]workers.Usage, assumedWorkers)
		}
		b := workers.Budget(workers.BudgetInput{Limit: *l, Rung: at, Workers: mappers, Rest: w.leastOf(l), Last: last})
		if b != 0 && (least == 0 || b < least) {
			least, rung = b, at
			n = 0
			if known {
				n = len(mappers)
			}
		}
	}
	if least == last {
		return
	}
	if err := w.loader.SetBudget(least); err != nil {
		w.fault("loader", err)
		return
	}
	if least != 0 {
		w.sum.Done.Budget = least
	}
	if n > 0 && w.tell.Once("budget", "") {
		w.sum.Done.BudgetTold = least
		w.tell.Info(fmt.Sprintf("%d loader workers keep to %v of mapped file pages each, so that all stays below %v; what they drop stays in the page cache",
			n, least, rung))
	}
}

// picklingFor is for how long a process is counted often that is about to send its data set
// to workers that are not forked. torch.multiprocessing then moves each tensor to shared
// memory by itself, and thousands of small ones run out of mappings or descriptors within
// seconds: 60,000 mappings take six.
const picklingFor = 30 * time.Second

// pickling passes the warning on and looks closely for a while.
func (w *watcher) pickling(s *loader.Said) {
	if s.Sharing == nil {
		return
	}
	w.counts.Hurry(s.PID, w.now()+picklingFor)
	w.tell.Say(w.now(), "pickling", phrase.Sharing(s.PID, s.Sharing))
	w.sum.Sharing(s.PID, s.Sharing, w.now())
}

// raised tells that the hook has raised a limit, by --nofile.
func (w *watcher) raised(s *loader.Said) {
	if s.Sharing == nil {
		return
	}
	c := event.Cure{
		Remedy: event.RemedyNoFile, PID: s.PID, OK: s.Reason == "",
		Before: int64(s.Sharing.Before), After: int64(s.Sharing.MaxFDs), Reason: s.Reason,
	}
	line := fmt.Sprintf("--nofile: process %d may have %s descriptors now, %s before", s.PID, text.Digits(uint64(c.After)), text.Digits(uint64(c.Before)))
	if !c.OK {
		line = fmt.Sprintf("--nofile: the descriptors of process %d could not be raised from %s: %s", s.PID, text.Digits(uint64(c.Before)), c.Reason)
	} else if s.Sharing.FDs > s.Sharing.MaxFDs {
		line += fmt.Sprintf("; it will need %s", text.Digits(uint64(s.Sharing.FDs)))
	}
	w.cured(c, line)
}

// cured tells of a cure, on stderr and as an event.
func (w *watcher) cured(c event.Cure, text string) {
	w.tell.Put(event.NameCure, func(h event.Head) any { c.Head = h; return c })
	if w.tell.Once("cure", text) {
		w.sum.Cure(text)
		w.tell.Say(w.now(), "cure", text)
	}
}
