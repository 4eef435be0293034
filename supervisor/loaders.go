package supervisor

import (
	"fmt"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/loader"
	"github.com/rsswarden/rsswarden/supervisor/view"
	"github.com/rsswarden/rsswarden/supervisor/workers"
)

// poll takes in what loaders said, and tells whether there is a new one, for
// which a budget must be found before it has outgrown every limit. told says that
// there is news.
func (w *watcher) poll(told bool) (added bool) {
	if w.observe.Loader == nil {
		return false
	}
	said, news := w.observe.HearLoaders(w.now(), w.view, told, w.tell.Sum.Watched)
	w.node.Stagger.Withdrawn(w.observe.Loader.Withdrawn(), w.now())
	w.heard(said, news)
	for i := range said {
		s := &said[i]
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter || s.What == event.LoaderPickling
		if w.flight != nil && w.flight.result == nil {
			w.said = append(w.said, action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
		}
	}
	return added
}

// heard tells of what loaders said, and sums it up.
func (w *watcher) heard(said []loader.Said, news view.News) {
	w.tell.Tell(w.now(), news)
	for i := range said {
		w.tell.Sum.Loader(w.now(), &said[i])
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
			bounds = append(bounds, workers.Bound{Limit: *l, Rung: rung, Rest: w.observe.LeastOf(l)})
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

// checkHook tells of trainings that the loader hook does not reach.
func (w *watcher) checkHook() {
	commands := []rss.ProcID{w.observe.Pop.Command}
	for i := range w.node.Others {
		commands = append(commands, w.node.Others[i].Command)
	}
	w.tell.Tell(w.now(), w.observe.CheckHook(commands))
}
