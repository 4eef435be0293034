package supervisor

import (
	"github.com/rsswarden/rsswarden/supervisor/wake"
)

// What the bell rings for.
const (
	loaderNews wake.Cause = 1 << iota // something was put into a run directory
	rankNews                          // a rank came or went, or answers
	limitMet                          // a limit of cgroup v2 has slowed a process, was met, or had one killed
	stalled                           // tasks of the node wait for memory
	actionDue                         // the action in flight goes on
)

// rung does what the bell has rung for, and says whether that was anything.
func (w *watcher) rung(why wake.Cause) (done bool) {
	full := false
	if why&rankNews != 0 {
		done, full = true, (ranks{w}).answers() && w.acts.Advance() || w.meet()
	}
	if why&actionDue != 0 && w.acts.Advance() {
		full = true
	}
	if why&loaderNews != 0 && (w.poll(true) || w.acts.Heard()) {
		full = true
	}
	if full = full || why&(limitMet|stalled) != 0 && w.pace.Hint(w.now()); full {
		w.full()
	}
	return full || done
}
