package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/counts"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/observe"
)

// heardCounts takes in what package counts has read, and says whether anything was, and
// whether a limit has reached a rung since the last look.
func (w *watcher) heardCounts() (news, reached bool) {
	fresh, news := w.observe.Counts.Take(w.look)
	return news, w.reached(fresh)
}

// reached says whether one of these limits stands at or above the rung that was
// the next at the last look.
func (w *watcher) reached(limits []event.Limit) bool {
	for i := range limits {
		l := &limits[i]
		if old := w.view.Limit(l.ID()); old == nil || l.Used >= w.ladder.NextRung(old) {
			return true
		}
	}
	return false
}

// heardPSS takes one reading in, and says whether there was one. It takes a full look
// where the decision depends on readings and no other is under way, unless looks cost
// too much here: then the next one comes as soon as they may take that much.
func (w *watcher) heardPSS() bool {
	r := w.observe.PSS
	if r == nil {
		return false
	}
	woken := r.Woken()
	if !r.TakeOne(w.now()) {
		return false
	}
	if !w.straddles() || r.Busy() {
		return true
	}
	if woken {
		r.Spend(w.pace.Full.Cost())
	}
	if w.pace.Hurry(w.now()) {
		w.full()
	}
	return true
}

// askSHMUsers asks who holds what in /dev/shm. The answer is told with a later look.
func (w *watcher) askSHMUsers() {
	pids := counts.Sharers(w.view.Sample.Procs, w.observe.Pop.Command.PID)
	if len(pids) == 0 {
		return
	}
	level := ""
	if l := w.leafLimit(); l != nil {
		level = l.Level
	}
	w.observe.SHMUsers.AskOf(pids[0], w.view.Sample.Procs, level)
}

// tellSHMUsers tells what was found, if anything was.
func (w *watcher) tellSHMUsers() {
	if text, _ := w.observe.SHMUsers.Take(); text != "" {
		w.tell.Say(w.now(), "holders", text)
		w.tell.Sum.Holders = text
	}
}

// answered takes in what scontrol said.
func (w *watcher) answered(a observe.SlurmAnswer) {
	news := w.observe.HearSlurm(a, w.ladder.JobEndAhead())
	if a.Open {
		w.applyEnforcement(w.fault)
	}
	w.tell.Tell(w.now(), news)
}

// heardSteps takes in the limits of other steps, and says whether any were found.
func (w *watcher) heardSteps() bool {
	warnings, found := w.observe.HearSteps()
	w.warn(warnings)
	return found > 0
}
