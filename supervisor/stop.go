package supervisor

import (
	"errors"
	"slices"
	"syscall"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/action"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/phrase"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

// beginStop stops the command, and the other ranks that are meant, unless nobody
// can be stopped or all have ended: the holder must not be told to pass over the
// status of a command that ended by itself.
func (w *watcher) beginStop(f *inFlight, l *event.Limit) {
	step := w.observe.Limits.Step(l)
	first, err := w.toStop(step)
	asked, news := w.node.StopOthers(step, w.Settings.StopStatus, w.Settings.Grace)
	w.heardNode(news)
	// Our own command may have been told to end before the lead fell to us.
	if len(first)+asked == 0 && !(w.node.Stopping() && w.observe.Pop.InScope(w.observe.Pop.Command, step)) {
		r := action.Result{Reason: event.ReasonError, Detail: err.Error()}
		if errors.Is(err, syscall.ESRCH) {
			r = action.Result{Reason: event.ReasonVanished}
			if w.observe.Pop.IsJob() {
				r.Detail = "no task of " + w.observe.Pop.Target(step)
			}
		}
		w.finish(r)
		return
	}
	if w.endsBy(first, step) {
		w.tell.Sum.Stopped = true
		if err := w.Link.Override(w.Settings.StopStatus); err != nil {
			w.fault("stop", err)
		}
	}
	if w.observe.Pop.IsJob() {
		f.target = w.observe.Pop.Target(step)
	}
	w.tell.Say(w.now(), "stop", phrase.Memory(l)+": stopping "+w.observe.Pop.Target(step)+" with TERM, KILL follows after "+text.Span(w.Settings.Grace))
	meant := func(s *rss.Sample) []rss.ProcID { return w.observe.Pop.All(s, step) }
	f.running = action.Stop(w.kill, first, meant, w.Settings.Grace, f.began)
}

// endsBy says that what we are to tell the end of ends by a stop whose TERM goes to
// first: our own command, whoever goes on beside it; what we attached to as a whole.
func (w *watcher) endsBy(first []rss.ProcID, step string) bool {
	if w.observe.Pop.Attached() {
		return w.observe.Pop.IsAll(&w.view.Sample, step)
	}
	return slices.Contains(first, w.observe.Pop.Command)
}

// toStop returns who gets the TERM of a stop from us: the command, or of a job
// every task that is meant and has no rsswarden of its own, whether it has a
// handler or not. One that was told already may be writing a checkpoint. The error
// says why there is nobody, ESRCH that all have ended.
func (w *watcher) toStop(step string) ([]rss.ProcID, error) {
	var failed error = syscall.ESRCH
	var list []rss.ProcID
	for _, id := range w.observe.Pop.Tasks() {
		p := w.view.Sample.Find(id.PID)
		if p != nil && p.ID == id && p.State == 'Z' && p.Threads <= 1 || !w.observe.Pop.InScope(id, step) || w.owner(id.PID) != &w.node.Me ||
			id == w.observe.Pop.Command && w.node.Stopping() {
			continue
		}
		if err := w.kill(id, 0); err == nil {
			list = append(list, id)
		} else if errors.Is(failed, syscall.ESRCH) {
			failed = err
		}
	}
	return list, failed
}
