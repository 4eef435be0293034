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
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// picklingFor is for how long a process is counted often that is about to send its data set
// to workers that are not forked. torch.multiprocessing then moves each tensor to shared
// memory by itself, and thousands of small ones run out of mappings or descriptors within
// seconds: 60,000 mappings take six.
const picklingFor = 30 * time.Second

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit. told says that
// there is news.
func (w *watcher) poll(told bool) (added bool) {
	if w.observe.Loader == nil {
		return false
	}
	heard := w.observe.Loader.Poll(told || !w.observe.Hears)
	w.node.Stagger.Withdrawn(w.observe.Loader.Withdrawn(), w.now())
	if w.observe.Loader.Malformed() > 0 {
		w.fault("loader", &said{"files in the run directory could not be understood"})
	}
	if slices.ContainsFunc(heard, func(s loader.Said) bool { return s.What == loader.Grown }) {
		// Whose those are may be among the same news: of a worker that is new, and of
		// all of them where this watcher is.
		w.observe.Workers.SetTrainers(w.observe.Loader.Trainers())
	}
	for _, s := range heard {
		// A training may begin before its first watcher does.
		s.Old = s.Old && !w.tell.Sum.Watched
		if s.What == loader.Grown {
			w.observe.Workers.Grown(s.Trainer, s.Worker, s.Batches, s.Half, s.Own) // what an earlier watcher was told too
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
		if p := w.view.Sample.Find(s.Worker); p != nil && !s.Old {
			w.observe.Workers.Trimmed(s.Worker, s.After.Sub(p.Shmem))
		}
		if s.Request == 0 {
			w.tell.Sum.Done.BudgetTrims += max(s.Count, 1)
			w.tell.Sum.Done.BudgetFreed += s.Freed
		}
	case event.LoaderRecycled:
		w.observe.Workers.Replaced(s.Worker, s.New)
		if s.Reason == string(event.ReasonDeferred) && !s.Old {
			w.tell.Sum.Done.Recycles++ // no action waited for it
			w.tell.Sum.Done.Forked++
			w.tell.Sum.Done.Paused += time.Duration(s.Paused * float64(time.Second))
		}
	case event.LoaderHello:
		w.sayRefused(s.PID)
	case event.LoaderIter:
		w.sayRefused(s.PID)
		w.tell.Sum.Shared(s.PID)
	case event.LoaderPickling:
		if s.Sharing != nil {
			w.observe.Counts.Hurry(s.PID, w.now()+picklingFor)
			w.tell.Say(w.now(), "pickling", phrase.Sharing(s.PID, s.Sharing))
			w.tell.Sum.Sharing(s.PID, s.Sharing, w.now())
		}
	case event.LoaderRaised:
		if s.Sharing != nil {
			w.cured(workers.RaisedFiles(&s.LoaderSaid))
		}
	case event.LoaderOff:
		if w.tell.Once("off", s.Reason) {
			w.tell.Warn(fmt.Sprintf("the loader hook in process %d switched itself off, training goes on without it: %s", s.PID, s.Reason))
		}
	}
}

// sayRefused says once why nothing is recycled with the torch of a process, where it is
// so for good.
func (w *watcher) sayRefused(pid int) {
	if line, why := workers.Trainers(w.observe.Loader.Trainers()).NotRecycled(pid); line != "" && w.tell.Once("hello", why) {
		w.tell.Info(line)
	}
}

// budget writes what each worker may keep mapped, where that differs from what
// they have: growth faster than our looks is met in the worker itself.
func (w *watcher) budget() {
	if w.observe.Loader == nil || !w.Settings.Trim.Hook() || w.Settings.DryRun {
		return
	}
	w.observe.Workers.SetTrainers(w.observe.Loader.Trainers())
	var bounds []workers.Bound
	for i := range w.view.Limits {
		l := &w.view.Limits[i]
		if rung, ok := w.ladder.Rung(event.ActionTrim, l); ok {
			bounds = append(bounds, workers.Bound{Limit: *l, Rung: rung, Rest: w.leastOf(l)})
		}
	}
	last := w.observe.Loader.Budget()
	each, rung, n := w.observe.Workers.Budget(bounds, last)
	if each == last {
		return
	}
	if err := w.observe.Loader.SetBudget(each); err != nil {
		w.fault("loader", err)
		return
	}
	if each != 0 {
		w.tell.Sum.Done.Budget = each
	}
	if n > 0 && w.tell.Once("budget", "") {
		w.tell.Sum.Done.BudgetTold = each
		w.tell.Info(fmt.Sprintf("%d loader workers keep to %v of mapped file pages each, so that all stays below %v; what they drop stays in the page cache",
			n, each, rung))
	}
}

// leastOf is the least that the anonymous memory of a trainer and its workers counts for
// l, 0 where that is not known. A process that is watched from outside may share with others
// outside.
func (w *watcher) leastOf(l *event.Limit) rss.Bytes {
	if w.observe.PSS == nil || w.observe.Loader == nil || w.observe.Pop.Attached() || l.Accounting != event.AccountingPSS || w.observe.Limits.Step(l) != "" && w.observe.Pop.IsJob() {
		return 0
	}
	return w.observe.Workers.PSSFloor()
}

// checkHook tells of trainings that the loader hook does not reach: once for each cause,
// whatever number of ranks it meets.
func (w *watcher) checkHook() {
	if w.observe.Loader == nil || w.observe.Pop.Attached() {
		return
	}
	commands := []rss.ProcID{w.observe.Pop.Command}
	for _, o := range w.node.Others {
		commands = append(commands, o.Command)
	}
	u := w.observe.Workers.CheckHook(w.Settings.Dir, commands)
	if u == nil {
		return
	}
	w.tell.Put(event.NameLoader, func(h event.Head) any {
		return event.LoaderSaid{Head: h, What: event.LoaderUnreached, PID: u.PID, Reason: u.Why}
	})
	if w.tell.Once("unreached", u.Why) {
		w.tell.Warn(u.Line(w.Settings.Trim.Ptrace()))
	}
}

// cured tells of a cure, on stderr and as an event.
func (w *watcher) cured(c event.Cure, text string) {
	w.tell.Put(event.NameCure, func(h event.Head) any { c.Head = h; return c })
	if w.tell.Once("cure", text) {
		w.tell.Sum.Cure(text)
		w.tell.Say(w.now(), "cure", text)
	}
}

// tryTorch has the torches of trainers tried that are not known, and reports what came of
// that once.
func (w *watcher) tryTorch() {
	if w.observe.Loader == nil {
		return
	}
	for _, n := range w.observe.Loader.Trials.Advance(w.now(), leastLeft(w.view.Limits), w.observe.Loader) {
		for _, err := range n.Errs {
			w.fault("trial", err)
		}
		if n.Why != "" {
			w.tell.Info(fmt.Sprintf("PyTorch %s has not been tried here: workers are trimmed, not recycled (%s); rsswarden doctor --torch -- %s tries it",
				n.Torch.Torch, n.Why, n.Torch.Executable))
			continue
		}
		w.observe.Workers.SetTrainers(w.observe.Loader.Trainers())
		for _, t := range w.observe.Workers.Trainers() {
			if t.Key != n.Torch.Key || n.Again {
				continue
			}
			w.tell.Put(event.NameLoader, func(h event.Head) any {
				return event.LoaderSaid{Head: h, What: event.LoaderTried, PID: t.ID.PID, Trial: t.Trial, Reason: t.Why}
			})
			w.sayRefused(t.ID.PID)
		}
	}
}

// leastLeft is what the fullest limit on memory leaves.
func leastLeft(readings []event.Limit) rss.Bytes {
	least := rss.Bytes(1) << 62
	for i := range readings {
		if l := &readings[i]; l.Name.Memory() {
			least = min(least, l.Limit.Sub(l.Used))
		}
	}
	return least
}
