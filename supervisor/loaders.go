package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
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
	w.tell.Loaders(w.now(), said, news)
	for i := range said {
		s := &said[i]
		added = added || s.What == event.LoaderHello || s.What == event.LoaderIter || s.What == event.LoaderPickling
		w.acts.Hear(action.Said{LoaderSaid: s.LoaderSaid, Request: s.Request})
	}
	return added
}
